"""Every row of the quirks table for the libraries that only the extra "all" has."""

import pytest
from support.quirk_rows import OF_ALL
from test_layouts import EXERCISES, NEEDS_A_DRIVER

import dlbridge
from dlbridge.targets.quirks import QUIRKS

ROWS = [quirk for quirk in QUIRKS
        if not quirk.below and quirk.library in OF_ALL and quirk.lacks not in NEEDS_A_DRIVER]
EXERCISES = EXERCISES | {"SHARING": lambda: EXERCISES["ANY_ORDER"]().T}


def test_every_library_has_rows():
    assert {quirk.library for quirk in ROWS} == OF_ALL


@pytest.mark.parametrize("quirk", ROWS, ids=lambda quirk: f"{quirk.library}-{quirk.lacks}")
def test_every_quirk_stops_a_conversion(quirk):
    with pytest.raises(dlbridge.ConversionError, match=r"\(.+\)$"):
        dlbridge.convert(EXERCISES[quirk.lacks](), quirk.library, copy=False)
