"""numpy.ndarray, through NumPy's C API."""

from dlbridge.dtypes import NAMES as NAMES
