"""Whether the system forbids to write to memory: then a write ends the process."""

HINT = 'a write ends the process: map the file with mode="c" of numpy.memmap or with mmap.ACCESS_COPY, and it does not'


def is_write_protected(address: int) -> bool:
    """Whether an address is in pages without leave to write; False where the system does not list its pages."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
            for line in maps:
                pages, leave = line.split(maxsplit=2)[:2]
                begin, _, end = pages.partition("-")
                if int(begin, 16) <= address < int(end, 16):
                    return "w" not in leave
    except OSError:
        pass
    return False
