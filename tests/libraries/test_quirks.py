"""Every row of what libraries lack for the libraries that only the extra "all" has."""

import pytest
from support.lacking import LACKS
from support.quirk_rows import OF_ALL
from test_layouts import EXERCISES, NEEDS_A_DRIVER

import dlbridge

ROWS = [quirk for quirk in LACKS
        if not quirk.fact.below and quirk.library in OF_ALL and quirk.lacks not in NEEDS_A_DRIVER]
EXERCISES = EXERCISES | {"SHARING": lambda: EXERCISES["ANY_ORDER"]().T}


def test_every_library_has_rows():
    assert {quirk.library for quirk in ROWS} == OF_ALL


@pytest.mark.parametrize("quirk", ROWS, ids=lambda quirk: f"{quirk.library}-{quirk.lacks}")
def test_every_quirk_stops_a_conversion(quirk):
    expected = dlbridge.DeviceError if quirk.lacks == "OTHER_DEVICES" else dlbridge.ConversionError
    with pytest.raises(expected, match=r"\(.+\)$"):
        dlbridge.convert(EXERCISES[quirk.lacks](), quirk.library, copy=False)
