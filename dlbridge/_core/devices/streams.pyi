"""Which stream waits for which when device memory is handed over, and when it is released."""

__test__: dict[str, str]

def unordered_releases() -> int: ...
