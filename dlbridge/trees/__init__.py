"""Batches: every array in a container, and every array that a function is called with.

What these functions do is in the modules beside this one, which are imported with the first call: they take a seventh
of the time that the rest of dlbridge takes. A ``__getattr__`` of the package would do the same, but with one Python
looks up ``dlbridge.convert`` anew in every call (seen in CPython 3.11 to 3.13), which takes a fifteenth of a
conversion.
"""

import sys

from dlbridge._core.late import load_module


def convert_tree(tree, to, *, others="pass", columns="raise", **keywords):
    """Give every array in a container to a library: a training batch, in one call.

    Parameters
    ----------
    tree : dict, list, tuple, deque, UserDict, dataclass, or any subclass of these
        Arrays in containers, nested to any depth; classes of attrs and pydantic, and what is registered with optree,
        torch or JAX, are containers too, also where they pose as arrays (flax.nnx), and so are classes that are known
        by :func:`register_container`. Files and datasets become dictionaries (NpzFile; groups of h5py, zarr and
        netCDF4; xarray.Dataset, without its coordinates). A table of pandas, polars or
        pyarrow becomes a dictionary of its columns, and a structured ndarray one of its fields, each of which is a
        view. The tree is not changed: the result is a new one of the same form. No constructor of a dataclass runs.
    to
        As for :func:`dlbridge.convert`.
    others : {"pass", "raise"}
        What becomes of leaves that are no arrays: they are handed on as they are, or raise an error. Strings, bytes and
        Python's numbers count as no arrays here, and so do arrays of strings and of objects. NumPy's numbers are arrays
        without axes.
    columns : {"raise", "pass"}
        What becomes of a table's columns that are no array: of strings, or with nulls. They raise an error, or
        are handed on as they are. A column of bools of one bit is unpacked, which is a copy.
    **keywords
        As for :func:`dlbridge.convert`; they hold for every array.

    Returns
    -------
    object
        A container of the same form.

    Raises
    ------
    UnsupportedError
        A leaf is no array, with ``others="raise"``.
    DLBridgeError
        As :func:`dlbridge.convert` does; the message says where in the tree the array is.

    Examples
    --------
    >>> import numpy, dlbridge
    >>> batch = {"image": numpy.zeros((2, 3)), "label": [numpy.ones(2)], "name": "a"}
    >>> converted = dlbridge.convert_tree(batch, "torch")
    >>> converted["image"].shape, converted["label"][0].dtype, converted["name"]
    (torch.Size([2, 3]), torch.float64, 'a')
    """
    return load_module("dlbridge.trees.leaves").convert_tree(tree, to, others, columns, keywords)


def collate(samples):
    """Stack the samples of a batch into tensors of torch: a ``collate_fn`` for ``torch.utils.data.DataLoader``.

    Parameters
    ----------
    samples : sequence
        Arrays of any library, or containers of them, all of the same form and with the same shapes. Dataclasses, and
        what is registered with :func:`register_container`, are containers, too.

    Returns
    -------
    object
        A container of the form of a sample, as ``torch.utils.data.default_collate`` gives it: of tensors with one axis
        more, which have memory of their own. In a worker of a DataLoader it is shared memory, which reaches the main
        process without a copy.

    Raises
    ------
    MissingLibraryError
        torch is not installed.
    DLBridgeError
        As :func:`convert_tree` does.
    TypeError, KeyError, RuntimeError
        As ``torch.utils.data.default_collate`` does, for samples of different forms or shapes; the message says where.

    Examples
    --------
    >>> import numpy, dlbridge
    >>> samples = [{"x": dlbridge.asdlpack(numpy.ones(2)), "label": label} for label in (3, 4)]
    >>> dlbridge.collate(samples)
    {'x': tensor([[1., 1.],
            [1., 1.]], dtype=torch.float64), 'label': tensor([3, 4])}
    """
    return load_module("dlbridge.trees.stacking").collate(samples)


def prefetch(batches, to, *, depth=2, others="pass", columns="raise", **keywords):
    """Convert the next batches in a thread while the caller works on this one.

    Parameters
    ----------
    batches : iterable
        Batches as :func:`convert_tree` takes them: a ``DataLoader``, a generator, a list.
    to
        As for :func:`dlbridge.convert`.
    depth : int
        How many batches there are at most beside the caller's: the one that is being read, and those that wait.
    others, columns, **keywords
        As for :func:`convert_tree`. With ``device="cuda"`` a batch is on the device when the caller gets it. A device
        without a number is the one that is current where this is called. ``copy=False`` is the caller's word that the
        source gives new memory each time: its batches are shared where :func:`dlbridge.convert` can, and refused where
        it cannot. The copy to the device that is asked for is made all the same.

    Returns
    -------
    iterator
        It gives what ``convert_tree(batch, to, …)`` gives for each batch, in their order and as soon as it is there. A
        batch is the caller's own: memory that somebody else can write to is copied in the thread, and so are, without
        their objects, arrays of strings and objects that are handed on. An error of the source or of a conversion is
        raised in the place of its batch, and is the end. ``close()``, or the end of a ``with`` block, ends the thread
        and releases the source; so does the end of the iterator's life. An array of a device is ready for the stream
        that is current where it is taken.

    Raises
    ------
    DLBridgeError, ValueError, TypeError
        For ``to``, ``depth`` and the keywords, at once; for a batch, in its place.

    Examples
    --------
    >>> import numpy, dlbridge
    >>> batches = ({"image": numpy.full(2, index)} for index in range(3))
    >>> for batch in dlbridge.prefetch(batches, "torch"):
    ...     print(batch["image"])
    tensor([0, 0])
    tensor([1, 1])
    tensor([2, 2])
    """
    return load_module("dlbridge.trees.prefetching").Prefetched(batches, to, depth, others, columns, keywords)


def accepts(to, *, returns=None, gradients=False, callback=False, others="pass", columns="raise", **keywords):
    """Let a function that was written for one library be called with the arrays of any.

    Parameters
    ----------
    to
        As for :func:`dlbridge.convert`: what the function's arrays shall be.
    returns : {None, "like"}
        What becomes of the arrays that it returns: they stay as they are, or become arrays of the library and on the
        device of the first array that it was called with. If that is a Series of pandas or polars, they become Series
        with its name, and its index where the length is the same.
    gradients : bool
        Whether the library that calls can differentiate the function: torch one of JAX that it calls with tensors, and
        JAX one of torch that it calls with its arrays. The result is like these, whatever the first array is. It goes
        with ``returns="like"``, and not with ``detach``. A function of JAX is compiled by ``jax.jit``, so it must be
        pure. The page "Train across libraries" says more.
    callback : bool or callable
        Whether JAX may call the function while it traces (``jax.jit``, ``vmap``): it then runs on the host, by
        :func:`jax.pure_callback`, each time that there are values. It must be pure, and goes with ``returns="like"``.
        To see what it gives, it is called with zeros once for each trace; or ``callback`` is a function that gives, for
        the same arguments, a :class:`jax.ShapeDtypeStruct` for each result. There are no gradients.
    others, columns
        As for :func:`convert_tree`: what becomes of arguments that are no arrays, and of a table's columns that are
        none.
    **keywords
        As for :func:`dlbridge.convert`; they hold for every argument. With ``callback``, and for a function of torch
        with ``gradients=True``, there is one more, ``vmap_method``: whether ``jax.vmap`` calls it for one element after
        the other (``"sequential"``), or once for the batch (``"expand_dims"``, ``"broadcast_all"``), as
        :func:`jax.pure_callback` does.

    Returns
    -------
    callable
        A decorator. The function keeps its name, signature and annotations. Arrays are converted in positional and
        keyword arguments and in containers (see :func:`convert_tree`); everything else is handed on, and so is a first
        parameter called ``self`` or ``cls``. The result of a coroutine function is converted when it is awaited. What a
        generator yields is left as it is.

    Examples
    --------
    >>> import numpy, dlbridge
    >>> @dlbridge.accepts("torch", returns="like")
    ... def double(x):
    ...     return x.mul(2)
    >>> double(numpy.arange(3))
    array([0, 2, 4])

    torch differentiates a function of JAX:

    >>> import jax, torch
    >>> @dlbridge.accepts("jax", returns="like", gradients=True)
    ... def energy(x):
    ...     return jax.numpy.sum(x ** 2)
    >>> x = torch.ones(2, requires_grad=True)
    >>> energy(x).backward()
    >>> x.grad
    tensor([2., 2.])
    """
    if callback is not False:
        if gradients:
            raise ValueError("accepts: callback: gives no gradients (leave out callback= or gradients=)")
        return load_module("dlbridge.gradients.callback").accepts(to, returns, others, columns, keywords, callback)
    calls = load_module("dlbridge.gradients.crossings" if gradients else "dlbridge.trees.boundary")
    return calls.accepts(to, returns, others, columns, keywords)


if "torch._dynamo" in sys.modules:
    load_module("dlbridge.trees.compiled").substitute()
