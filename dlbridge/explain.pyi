"""explain(): the plan of a conversion, for people."""

from typing import Literal, NamedTuple

from dlbridge.convert import _Device, _Readonly, _Stream, _To

class Plan(NamedTuple):
    action: Literal["return", "share", "copy", "refuse"]
    source: str
    target: str
    protocol: str = ""
    reason: str = ""
    way_out: str = ""
    dtype: str = ""
    device: str = ""
    shape: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None
    strides_unit: Literal["elements", "bytes"] = "elements"
    nbytes: int = 0
    readonly: bool = False

    def _repr_html_(self) -> str: ...

def explain(
    src: object,
    to: _To,
    *,
    device: _Device | None = None,
    copy: bool | None = None,
    stream: _Stream | None = None,
    readonly: _Readonly = "copy",
    detach: bool = False,
) -> Plan: ...
