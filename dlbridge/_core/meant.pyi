"""What a user means by what is no target, or no source."""

from typing_extensions import CapsuleType

__pyx_capi__: dict[str, CapsuleType]
__test__: dict[str, str]

def about_target(to: object, names: list[str]) -> tuple[str, str, str]: ...
def check_order(src: object, function: str = "convert") -> None: ...
