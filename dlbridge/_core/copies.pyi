from collections.abc import Callable

OWN: str
OWN_HINT: str

def begin(function: Callable[[object, object, str, str, str, str, int | None, str, str], None]) -> None: ...
def end() -> None: ...
