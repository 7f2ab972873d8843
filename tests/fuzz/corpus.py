"""The corpora: a file of lines in base64 for each target, and a folder of files for the fuzzer.

python -m fuzz.corpus unpack FOLDER, or pack FOLDER: between corpus/TARGET.txt and FOLDER/TARGET/*.
python -m fuzz.corpus replay TARGET BOARD: every case once, each written to the file BOARD before.
"""

import base64
import hashlib
import importlib
import sys
from pathlib import Path

FOLDER = Path(__file__).with_name("corpus")


def names():
    return sorted(path.stem for path in FOLDER.glob("*.txt"))


def cases(name):
    return [base64.b64decode(line) for line in (FOLDER / f"{name}.txt").read_text().split()]


def unpack(folder):
    for name in names():
        where = Path(folder, name)
        where.mkdir(parents=True, exist_ok=True)
        for case in cases(name):
            (where / hashlib.sha1(case).hexdigest()).write_bytes(case)


def pack(folder):
    for where in Path(folder).iterdir():
        found = sorted({path.read_bytes() for path in where.iterdir()}, key=lambda case: (len(case), case))
        lines = "".join(base64.b64encode(case).decode() + "\n" for case in found if case)
        (FOLDER / f"{where.name}.txt").write_text(lines)


def replay(name, board):
    """Run every case of a target; the first line of the file ``board`` is the one that a crash is due to."""
    from fuzz.harness import Input

    run = importlib.import_module(f"fuzz.{name}").run
    found = cases(name)
    with open(board, "wb", buffering=0) as file:
        for case in found:
            file.seek(0)
            file.write(base64.b64encode(case) + b"\n")
            run(Input(case))
    print(len(found))


if __name__ == "__main__":
    {"unpack": unpack, "pack": pack, "replay": replay}[sys.argv[1]](*sys.argv[2:])
