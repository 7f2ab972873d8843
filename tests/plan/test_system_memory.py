"""How much memory a copy may take: what the machine has left, and what the process's control groups may have."""


import numpy as np
import pytest

import dlbridge
from dlbridge._core import system_memory
from dlbridge._core.system_memory import NO_LIMIT, available_bytes

MEBIBYTE = 1 << 20
V1 = "35 31 0:32 {root} /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory"
V2 = "30 23 0:26 {root} /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate"


@pytest.fixture
def system(tmp_path):
    """Write a folder with the files of a machine that has 1000 MiB left."""
    def write(files):
        for name, text in {"proc/meminfo": "MemTotal: 4 kB\nMemAvailable:   1024000 kB\n", **files}.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return str(tmp_path)

    return write


def process(mount, path, root="/"):
    """What the process says of itself: its group's path in either version, and where groups are mounted."""
    line = f"4:cpu,memory:{path}" if mount is V1 else f"0::{path}"
    return {"proc/self/cgroup": f"2:pids:/other\n{line}\n",
            "proc/self/mountinfo": f"31 23 0:28 / / rw - tmpfs tmpfs rw\n{mount.format(root=root)}\n"}


def group(mount, path, limit, used, reclaimable=0):
    """The files of a group; numbers are MiB."""
    limit = limit if isinstance(limit, str) else str(limit * MEBIBYTE)
    if mount is V1:
        folder, names, stat = "sys/fs/cgroup/memory", ("memory.limit_in_bytes", "memory.usage_in_bytes"), "total_"
    else:
        folder, names, stat = "sys/fs/cgroup", ("memory.max", "memory.current"), ""
    return {f"{folder}{path}/{names[0]}": f"{limit}\n", f"{folder}{path}/{names[1]}": f"{used * MEBIBYTE}\n",
            f"{folder}{path}/memory.stat": f"anon 1\n{stat}inactive_file {reclaimable * MEBIBYTE}\nfile 7\n"}


def room(system, *files):
    return available_bytes(system({name: text for each in files for name, text in each.items()})) // MEBIBYTE


@pytest.mark.parametrize("mount", [V1, V2], ids=["v1", "v2"])
class TestGroups:
    def test_the_groups_own_limit(self, system, mount):
        assert room(system, process(mount, "/a"), group(mount, "/a", 300, 100)) == 200

    def test_pages_of_files_can_be_taken_back(self, system, mount):
        assert room(system, process(mount, "/a"), group(mount, "/a", 300, 100, 50)) == 250

    def test_an_ancestors_limit(self, system, mount):
        assert room(system, process(mount, "/a/b/c"), group(mount, "/a", 300, 180), group(mount, "/a/b", 500, 170),
                    group(mount, "/a/b/c", 400, 160)) == 120

    def test_the_group_of_a_container_is_what_is_mounted(self, system, mount):
        limits = group(mount, "", 300, 100)
        for path, root in (("/docker/1f", "/docker/1f"), ("/", "/"), ("/../other", "/"), ("/docker/1f", "/")):
            assert room(system, process(mount, path, root), limits) == 200

    def test_a_group_below_what_is_mounted(self, system, mount):
        assert room(system, process(mount, "/docker/1f/inner", "/docker/1f"), group(mount, "", 300, 100),
                    group(mount, "/inner", 90, 80)) == 10

    def test_more_is_used_than_the_limit(self, system, mount):
        assert room(system, process(mount, "/a"), group(mount, "/a", 100, 120)) == 0

    def test_no_limit(self, system, mount):
        none = "max" if mount is V2 else str(NO_LIMIT - 4095)
        assert room(system, process(mount, "/a"), group(mount, "/a", none, 100)) == 1000

    def test_the_machine_has_less(self, system, mount):
        assert room(system, process(mount, "/a"), group(mount, "/a", 9000, 100)) == 1000


def test_both_versions_are_mounted(system):
    first, second = process(V1, "/a"), process(V2, "/b")
    both = {name: first[name] + second[name] for name in first}
    assert room(system, both, group(V1, "/a", 300, 100), group(V2, "/b", 200, 150)) == 50


def test_what_the_system_does_not_say_is_no_limit(tmp_path):
    assert available_bytes(str(tmp_path)) == NO_LIMIT
    assert 0 < available_bytes() < NO_LIMIT


def test_a_copy_that_the_group_may_not_have_is_refused(monkeypatch):
    asked = []
    monkeypatch.setattr(system_memory, "available_bytes", lambda: asked.append(1) or 1 << 27)
    for nbytes in (1 << 20, 1 << 27):
        dlbridge.convert(np.zeros(nbytes, "uint8"), "numpy", copy=True)
    with pytest.raises(MemoryError, match="place: copy 134217729 bytes: do not fit into the memory available"):
        dlbridge.convert(np.zeros((1 << 27) + 1, "uint8"), "numpy", copy=True)
    assert len(asked) == 2
    for kind, export in (bytes, "__dlpack__"), (bytearray, "__arrow_c_array__"):
        source = kind((1 << 27) + 1)
        with pytest.raises(MemoryError, match='make the Tensor with readonly="share"'):
            getattr(dlbridge.asdlpack(source), export)()
        assert getattr(dlbridge.asdlpack(source, readonly="share"), export)()
