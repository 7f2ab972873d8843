"""Work through files that are larger than memory, block by block, in torch and in JAX.

    python examples/large_files.py [--mebibytes N] [--folder FOLDER]

The same rows of float32 are written as .npy, as safetensors and as Arrow. Each file is mapped, and one block after the
other goes to torch and to JAX. What is not shared is copied, one block at a time. After each block, the process gives
the file's pages back, so it never holds more than a block of the file either. What is printed of memory is read from
Linux, and is 0 elsewhere.
"""

import argparse
import json
import mmap
import struct
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow
import torch
from rich.console import Console
from rich.table import Table

import dlbridge

ROW = 1024                              # a row has 4 KiB
ROWS_PER_BLOCK = 8192                   # a block has 32 MiB
STATUS = Path("/proc/self/status")
Blocks = Iterator[Any]


# ---- formats: each writes rows, and says where they lie in the mapped file -------------------------------------------

def write_npy(path: Path, blocks: Blocks, count: int) -> None:
    rows = np.lib.format.open_memmap(path, "w+", "<f4", (count, ROW))
    for index, block in enumerate(blocks):
        rows[index * ROWS_PER_BLOCK:][:len(block)] = block


def npy_blocks(mapped: mmap.mmap) -> Blocks:
    np.lib.format.read_magic(mapped)
    shape, _, dtype = np.lib.format.read_array_header_1_0(mapped)       # leaves the file where the elements begin
    return row_blocks(np.frombuffer(mapped, dtype, offset=mapped.tell()).reshape(shape))


def write_safetensors(path: Path, blocks: Blocks, count: int) -> None:
    """The format is the length of a header, the header in JSON, and the elements of every tensor after it."""
    entry = {"dtype": "F32", "shape": [count, ROW], "data_offsets": [0, 4 * count * ROW]}
    header = json.dumps({"rows": entry}).encode()
    header += b" " * (-len(header) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.writelines(memoryview(block) for block in blocks)


def safetensors_blocks(mapped: mmap.mmap) -> Blocks:
    length, = struct.unpack_from("<Q", mapped)
    entry = json.loads(mapped[8:8 + length])["rows"]
    begin, end = (8 + length + offset for offset in entry["data_offsets"])
    return row_blocks(np.frombuffer(memoryview(mapped)[begin:end], "<f4").reshape(entry["shape"]))


def write_arrow(path: Path, blocks: Blocks, count: int) -> None:
    schema = pyarrow.schema({"rows": pyarrow.fixed_shape_tensor(pyarrow.float32(), [ROW])})
    with pyarrow.OSFile(str(path), "wb") as file, pyarrow.ipc.new_file(file, schema) as writer:
        for block in blocks:
            tensors = pyarrow.FixedShapeTensorArray.from_numpy_ndarray(block)
            writer.write_batch(pyarrow.record_batch([tensors], schema))


def arrow_blocks(mapped: mmap.mmap) -> Blocks:
    reader = pyarrow.ipc.open_file(pyarrow.py_buffer(mapped))
    return (reader.get_batch(index).column("rows") for index in range(reader.num_record_batches))


def row_blocks(rows: np.ndarray) -> Blocks:
    return (rows[start:start + ROWS_PER_BLOCK] for start in range(0, len(rows), ROWS_PER_BLOCK))


FORMATS: dict[str, tuple[Callable[[Path, Blocks, int], None], Callable[[mmap.mmap], Blocks]]] = {
    "npy": (write_npy, npy_blocks),
    "safetensors": (write_safetensors, safetensors_blocks),
    "arrow": (write_arrow, arrow_blocks),
}


# ---- the work --------------------------------------------------------------------------------------------------------

TARGETS: dict[str, Callable[[Any], float]] = {
    "torch": lambda block: float(torch.linalg.vector_norm(block, dim=1).max()),
    "jax": lambda block: float(jnp.linalg.norm(block, axis=1).max()),
}


@dataclass
class Seen:
    """What was seen on the way through a file; memory in bytes above what the process had before."""

    longest: float = 0.0                # the norm of the longest row
    blocks: int = 0
    shared: int = 0
    anonymous: int = 0
    resident: int = 0


def through(path: Path, blocks_of: Callable[[mmap.mmap], Blocks], target: str) -> Seen:
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    first = np.frombuffer(mapped, "u1").ctypes.data
    seen = Seen()
    anonymous, resident = memory("RssAnon"), memory("VmRSS")
    for block in blocks_of(mapped):
        array = dlbridge.convert(block, to=target, readonly="share")    # nothing here writes
        seen.longest = max(seen.longest, TARGETS[target](array))
        seen.blocks += 1
        seen.shared += first <= dlbridge.asdlpack(array).data_ptr < first + len(mapped)
        seen.anonymous = max(seen.anonymous, memory("RssAnon") - anonymous)
        seen.resident = max(seen.resident, memory("VmRSS") - resident)
        # The mapping cannot be written, so its pages are read from the file again if anything still looks at them.
        if hasattr(mapped, "madvise"):
            mapped.madvise(mmap.MADV_DONTNEED)
    return seen


def memory(field: str) -> int:
    """The bytes that proc(5) has in a field of this process's status, or 0 where there is no such file."""
    if not STATUS.exists():
        return 0
    lines = STATUS.read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(field))


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mebibytes", type=positive, default=1024, help="the size of each file")
    parser.add_argument("--folder", type=Path, help="where the files are written and kept; else they are removed")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        show(folder, given.mebibytes)


def positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


def random_blocks(count: int) -> Blocks:
    """The rows to write: the same in each call, and one block in memory at a time."""
    random = np.random.default_rng(0)
    for start in range(0, count, ROWS_PER_BLOCK):
        yield random.standard_normal((min(ROWS_PER_BLOCK, count - start), ROW), dtype="float32")


def show(folder: Path, mebibytes: int) -> None:
    count = mebibytes * 256
    for name, (write, _) in FORMATS.items():
        write(folder / f"rows.{name}", random_blocks(count), count)
    for work in TARGETS.values():
        work(jnp.ones((8, ROW)) if work is TARGETS["jax"] else torch.ones(8, ROW))      # what is compiled and imported
    table = Table("file", "target", "blocks shared", "anonymous MiB", "resident MiB", "longest row",
                  title=f"{mebibytes} MiB in blocks of 32 MiB; memory at most, above what the process had")
    for name, (_, blocks_of) in FORMATS.items():
        for target in TARGETS:
            seen = through(folder / f"rows.{name}", blocks_of, target)
            table.add_row(name, target, f"{seen.shared} of {seen.blocks}", f"{seen.anonymous / (1 << 20):.1f}",
                          f"{seen.resident / (1 << 20):.1f}", f"{seen.longest:.3f}")
    Console().print(table)


if __name__ == "__main__":
    jax.config.update("jax_platforms", "cpu")
    main()
