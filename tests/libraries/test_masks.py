"""Astropy's masked arrays, which are ndarrays: their memory alone would make masked values pass for real ones."""

import numpy as np
import pytest
from astropy import nddata, units
from astropy.table import MaskedColumn
from astropy.utils.masked import Masked
from support.hints import code_in

import dlbridge

VALUES = np.arange(3.0)
MASKED = {
    "array": lambda: Masked(VALUES, mask=[False, True, False]),
    "view": lambda: Masked(VALUES, mask=[False, True, False])[1:],
    "scalar": lambda: Masked(np.float64(1), mask=True),
    "quantity": lambda: Masked(VALUES * units.m, mask=[False, True, False]),
    "column": lambda: MaskedColumn(VALUES, mask=[False, True, False]),
}


@pytest.mark.parametrize("make", MASKED.values(), ids=MASKED)
@pytest.mark.parametrize("convert", [
    lambda x: dlbridge.convert(x, "numpy"),
    lambda x: dlbridge.convert(x, "torch"),
    dlbridge.asdlpack,
    lambda x: dlbridge.convert_tree([x], "numpy"),
    dlbridge.accepts("numpy")(lambda x: x),
], ids=["numpy", "torch", "Tensor", "convert_tree", "accepts"])
def test_a_mask_is_not_dropped(make, convert):
    x = make()
    with pytest.raises(dlbridge.UnsupportedError, match="mask of Masked") as raised:
        convert(x)
    assert dlbridge.explain(x, "numpy").hint == raised.value.hint


def test_a_hint_drops_no_mask():
    image = nddata.CCDData(np.ones((2, 2)), unit="adu", mask=np.eye(2, dtype=bool))
    with pytest.raises(dlbridge.UnsupportedError) as raised:
        dlbridge.convert(image, "torch")
    [code] = code_in(raised.value.hint, ("numpy",))
    with pytest.raises(dlbridge.UnsupportedError, match="mask of MaskedArray: hides 2 of 4"):
        dlbridge.convert(eval(code, {"numpy": np, "x": image}), "torch")


def test_a_mask_that_hides_nothing_is_no_reason():
    for x in (Masked(VALUES), MaskedColumn(VALUES, mask=[False, False, False]), Masked(VALUES, mask=[0, 1, 0])[::2]):
        assert dlbridge.convert(x, "numpy", copy=False).tolist() == np.asarray(x).tolist()


def test_the_hints():
    x = Masked(VALUES.copy(), mask=[False, True, False])
    assert dlbridge.explain(x, "numpy").hint == "pass x.filled(0), or x.unmasked if the mask does not matter"
    assert dlbridge.convert(x.filled(9), "numpy").tolist() == [0, 9, 2]
    assert dlbridge.convert(x.unmasked, "numpy").tolist() == [0, 1, 2]


def test_other_subclasses_are_taken_as_their_memory():
    length = VALUES * units.m
    assert dlbridge.convert(length, "numpy", copy=False).ctypes.data == length.ctypes.data
