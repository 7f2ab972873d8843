"""The route: the sources and the target for a type and a ``to``, cached."""

from typing_extensions import CapsuleType

from dlbridge.libraries.library import Library

__pyx_capi__: dict[str, CapsuleType]
__test__: dict[str, str]

def target_name(to: object, imported: bool = True) -> str: ...
def target_facts(to: object, imported: bool = True) -> Library: ...
