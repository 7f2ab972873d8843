"""As right.py, with torch."""

from typing import Any, assert_type

import torch

import dlbridge

tensor = torch.zeros(3)

assert_type(dlbridge.convert(b"", "torch"), torch.Tensor)
assert_type(dlbridge.convert(b"", torch.Tensor), torch.Tensor)
assert_type(dlbridge.convert(b"", torch), Any)
assert_type(dlbridge.convert(b"", tensor), Any)
assert_type(dlbridge.convert(tensor, "torch", device=torch.device("cuda", 1)), torch.Tensor)
assert_type(dlbridge.convert(tensor, "torch", stream=torch.cuda.current_stream()), torch.Tensor)
assert_type(dlbridge.asdlpack(tensor, device=tensor.device, detach=True), dlbridge.Tensor)
