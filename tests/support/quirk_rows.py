"""Whose rows of the quirks table need the extra "all": tests/libraries tries those."""

OF_ALL = frozenset(("paddle", "tensorflow", "mlx", "warp", "tvm_ffi", "onnxruntime"))
# … or tools/heavy.sh.
HEAVY = frozenset(("dpnp", "mindspore"))
