"""DLPack capsules over a Managed: what travels from a producer's ``__dlpack__`` to a consumer."""

from typing_extensions import CapsuleType

__pyx_capi__: dict[str, CapsuleType]
__test__: dict[str, str]
