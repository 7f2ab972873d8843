from collections.abc import Callable

OWN: str
OWN_HINT: str
GIVEN: str
GATHERED: str
GATHERED_HINT: str
COPIED: str

def begin(function: Callable[[object, object, str, str, str, str, int | None, str, str], None]) -> None: ...
def end() -> None: ...
