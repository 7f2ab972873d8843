"""What a torch tensor carries beside its memory: a gradient, and lazy bits that change what the memory means."""

from typing import Final

from typing_extensions import CapsuleType

__pyx_capi__: dict[str, CapsuleType]
__test__: dict[str, str]

# attribute of the tensor, what it means, the way out
REFUSALS: Final[tuple[tuple[str, str, str], ...]]
