"""What the system says of memory: how much it can still give, and whether it may be written.

The kernel ends a process that uses more memory than its control group may have, though the machine has more. So the
limits of the group and of its ancestors count, in both versions of control groups.
"""

import functools
import os
from collections.abc import Iterator
from typing import NamedTuple

NO_LIMIT = 0x7FFFFFFFFFFFFFFF
BEYOND_ANY_MACHINE = 1 << 60        # version 1 says "no limit" by a number of about 2**63


class Files(NamedTuple):
    """The names of a control group's files, and of the part of its use that the kernel can take back at once."""

    limit: str
    used: str
    reclaimable: str


# By the type of the file system.
FILES = {
    "cgroup2": Files("memory.max", "memory.current", "inactive_file"),
    "cgroup": Files("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}


def available_bytes(root: str = "/") -> int:
    """The bytes that the system says it can still give; what it does not say is no limit.

    Parameters
    ----------
    root : str
        The folder that ``proc`` and the mounted file systems are in.
    """
    rooms = [room_of_machine(root), *(room_of_group(folder, files) for folder, files in kept_groups(root))]
    return max(min(rooms), 0)


def room_of_machine(root: str) -> int:
    """The bytes that the machine can still give."""
    for line in lines_of(f"{root}/proc/meminfo"):
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return NO_LIMIT


def room_of_group(folder: str, files: Files) -> int:
    """The bytes that a control group can still give. Pages of files that nobody uses are given back first."""
    limit = number_in(f"{folder}/{files.limit}")
    used = number_in(f"{folder}/{files.used}") if limit < BEYOND_ANY_MACHINE else NO_LIMIT
    if used == NO_LIMIT:
        return NO_LIMIT
    pairs = (line.split() for line in lines_of(f"{folder}/memory.stat"))
    return limit - used + sum(int(pair[1]) for pair in pairs if pair[0] == files.reclaimable)


@functools.lru_cache(maxsize=8)
def kept_groups(root: str) -> tuple[tuple[str, Files], ...]:
    """The groups, read once: a process is seldom moved, and to find them takes as long as all the rest."""
    return tuple(groups(root))


def groups(root: str) -> Iterator[tuple[str, Files]]:
    """The folders of the process's memory control groups and of their ancestors, as far as they are mounted."""
    paths = {}
    for line in lines_of(f"{root}/proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        if not controllers or "memory" in controllers.split(","):
            paths["cgroup" if controllers else "cgroup2"] = path
    for line in lines_of(f"{root}/proc/self/mountinfo"):
        mount, _, described = line.partition(" - ")
        kind, _, options = described.split(" ")[:3]
        if kind in paths and (kind == "cgroup2" or "memory" in options.split(",")):
            mounted, point = mount.split(" ")[3:5]
            folder = f"{root}{point}"
            yield folder, FILES[kind]
            for part in below(paths[kind], mounted):
                folder = f"{folder}/{part}"
                yield folder, FILES[kind]


def below(path: str, mounted: str) -> list[str]:
    """The parts of a group's path below the group that is mounted; none if the path is outside, as a container's is."""
    inner = os.path.relpath(path, mounted).split("/")
    return [] if inner[0] in (".", "..") else inner


def number_in(path: str) -> int:
    """The number that a file has; no limit if there is no such file, or it says "max"."""
    try:
        return int(lines_of(path)[0])
    except (IndexError, ValueError):
        return NO_LIMIT


def lines_of(path: str) -> list[str]:
    """The lines of a file without their ends; none if it cannot be read."""
    try:
        with open(path, errors="replace", newline="\n") as file:     # the name of a file may have other ends of lines
            text = file.read()
    except OSError:
        return []
    return text.removesuffix("\n").split("\n") if text else []


# ---- pages that must not be written ----------------------------------------------------------------------------------

WRITE_ENDS = ('a write ends the process: map the file with mode="c" of numpy.memmap or with mmap.ACCESS_COPY, and it '
              "does not")


# File systems whose files are on no disk: of memory, of devices, of the system itself.
NOT_ON_DISK = {"tmpfs", "devtmpfs", "ramfs", "hugetlbfs", "sysfs", "debugfs", "proc"}


def is_write_protected(address: int) -> bool:
    """Whether an address is in pages that must not be written; False where the system does not list its pages."""
    leave = pages_at(address)[:1]
    return bool(leave) and "w" not in leave[0]


def is_file_for_reading(address: int) -> bool:
    """Whether an address is in pages of a file on a disk, not to be written; False where the system does not say.

    A file that is on no disk, or has no name, is memory that other programs, or the system, may write.
    """
    pages = pages_at(address)
    if len(pages) < 5 or "w" in pages[0]:
        return False
    _, _, device, _, path = pages
    kinds = {}
    for line in lines_of("/proc/self/mountinfo"):
        mount, _, described = line.partition(" - ")
        _, _, number, _, point = mount.split(" ")[:5]
        kinds[number] = kinds[point] = described.split(" ")[0]
    major, minor = (int(part, 16) for part in device.split(":"))
    kind = kinds.get(f"{major}:{minor}")
    while kind is None and path.startswith("/") and os.path.exists(path):    # of an overlay the system names a layer
        path = os.path.dirname(path)
        kind = kinds.get(path)
        if path == "/":
            break
    return kind is not None and kind not in NOT_ON_DISK


def pages_at(address: int) -> list[str]:
    """The permissions, offset, device and inode of the pages around an address, and their file if they have one."""
    for line in lines_of("/proc/self/maps"):
        pages, *said = line.split(maxsplit=5)
        begin, _, end = pages.partition("-")
        if int(begin, 16) <= address < int(end, 16):
            return said
    return []
