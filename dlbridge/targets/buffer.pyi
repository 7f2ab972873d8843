"""A memoryview, over a Tensor."""

from dlbridge.dtypes import NAMES as NAMES
