"""A child that is forked while another thread makes the first call of a function can make that call too."""

import pytest
from support.children import in_child
from support.optional import marked

# Each is the first call of its process; "array" is an ndarray.
CALLS = {
    "convert": marked('dlbridge.convert(array, "memoryview")'),
    "convert, a copy": marked('dlbridge.convert(array[::-1], "memoryview", copy=True)'),
    "convert, bytes": marked('dlbridge.convert(bytes(8), "numpy", dtype="float32", shape=(2,))'),
    "convert, into an array": marked('dlbridge.convert(array, "numpy", out=array.copy())'),
    "convert, an error": marked('refused(lambda: dlbridge.convert([1], "numpy"))'),
    "convert, to torch": marked('dlbridge.convert(array, "torch")', "torch"),
    "asdlpack": marked("dlbridge.asdlpack(array)"),
    "asdlpack, an interface": marked("dlbridge.asdlpack(Interface())"),
    "from_dlpack": marked("dlbridge.from_dlpack(array)"),
    "to_dlpack": marked("dlbridge.to_dlpack(array)"),
    "from_pointer": marked('dlbridge.from_pointer(array.ctypes.data, (4,), "float64")'),
    "explain": marked('str(dlbridge.explain(array, "memoryview")._repr_html_())'),
    "convert_tree": marked('dlbridge.convert_tree({"x": array}, "memoryview")'),
    "accepts": marked('dlbridge.accepts("memoryview")(lambda x: x)(array)'),
    "accepts, gradients": marked('dlbridge.accepts("torch", returns="like", gradients=True)(lambda x: x)', "torch"),
    "collate": marked("dlbridge.collate([array, array])", "torch"),
    "prefetch": marked('list(dlbridge.prefetch([array], "memoryview"))'),
    "register_source": marked("dlbridge.register_source(Interface, lambda interface: array)"),
    "register_target": marked('dlbridge.register_target("mine", lambda tensor: tensor)'),
    "register_container": marked("dlbridge.register_container(Interface, lambda tree: ([], 0), lambda *_: None)"),
    "targets": marked("dlbridge.targets()"),
    "a repr": marked("dlbridge.asdlpack(array)._repr_html_()"),
}


@pytest.mark.parametrize(
    "CALL", [pytest.param(*each.values, marks=each.marks, id=name) for name, each in CALLS.items()])
@in_child(warnings="ignore")
def test_a_child_that_is_forked_during_a_first_call(CALL):
    import contextlib
    import importlib
    import os
    import signal
    import sys
    import threading
    import time

    import numpy

    import dlbridge

    if "torch" in CALL or "collate" in CALL:        # the import of another library is not dlbridge's to wait for
        importlib.import_module("torch.utils.data")
    array = numpy.arange(4.0)
    begun = threading.Event()

    class Interface:
        __array_interface__ = array.__array_interface__

    class Slow:
        """Every module of dlbridge takes a while to import."""

        def find_spec(self, name, path=None, target=None):
            if name.startswith("dlbridge.") and threading.current_thread() is first:
                begun.set()
                time.sleep(0.005)

    def refused(function):
        with contextlib.suppress(dlbridge.DLBridgeError):
            function()

    def call():
        try:
            eval(CALL)
        finally:
            begun.set()

    sys.meta_path.insert(0, Slow())
    first = threading.Thread(target=call)
    first.start()
    while first.is_alive():
        assert begun.wait(60)
        begun.clear()
        child = os.fork()
        if not child:
            signal.alarm(60)        # ends a child that would wait for ever
            eval(CALL)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    first.join()
