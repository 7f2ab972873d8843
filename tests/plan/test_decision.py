"""The quick tests in front of the decision share nothing that the decision would not share."""

import itertools

import pytest
from support.optional import params
from support.strided import LAYOUTS

from dlbridge.testing.producers import Producer

CUDA, ROCM = 2, 10
WRITABLE, OR_COPY = 1, 16       # flags of a want
pytestmark = pytest.mark.needs("Cython")


def arrays():
    """Arrays of every layout, writable and read-only, in both byte orders, and without elements."""
    for layout, dtype in itertools.product(LAYOUTS.values(), ("float32", "complex64", "bool")):
        array = layout(dtype)
        frozen = array.view()
        frozen.flags.writeable = False
        yield from (array, frozen, array.view(array.dtype.newbyteorder()))
        if array.ndim:
            yield from (array[:0], array[..., -1:])


def disagreements(ask, *cases, made=lambda array: array):
    """Where the quick test shares and the decision does not; both shall have said yes and no."""
    answers = [(case, array.strides, array.dtype.str, *ask(made(array), *case)) for case in cases for array in arrays()]
    assert {quick for *_, quick, _ in answers} == {decision for *_, decision in answers} == {False, True}
    return [answer for answer in answers if answer[-2] and not answer[-1]]


@pytest.mark.parametrize("target", params(["numpy", "torch", "jax", "memoryview", "dlbridge", "dlpack"]))
def test_what_fits_is_shared(target, deciding):
    cases = itertools.product([target], [None, "cpu"], [None, True], ["copy", "share"], [None, "C"])
    assert disagreements(deciding.by_target, *cases) == []


@pytest.mark.parametrize("device_type", [CUDA, ROCM])
@pytest.mark.parametrize("target", ["dlbridge", "dlpack"])
def test_what_fits_on_a_device_is_shared(target, device_type, deciding):
    def there(array):
        native = array.astype(array.dtype.newbyteorder("="), copy=False)       # DLPack has no byte order
        return Producer(native, device_type=device_type, flags=int(not array.flags.writeable))

    cases = itertools.product([target], [None, "cpu"], [None, True], ["copy", "share"], [None, "C"])
    assert disagreements(deciding.by_target, *cases, made=there) == []


def test_what_an_extension_sees_as_it_is_is_shared(deciding):
    """By every want that makes sense; a copy is asked for by those that are not met."""
    wants = [(flags,) for flags in range(32) if not (flags & WRITABLE and flags & OR_COPY)]
    assert disagreements(deciding.by_want, *wants) == []
