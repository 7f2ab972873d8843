"""The table of the first page: a program for each of its cells.

A program prints True for a tick. ``f`` is the function of the column, and the sources are on the host; those for CuPy,
on a GPU, are in tests/gpu/test_readme.py. One process imports the libraries, and each program runs in a child of
it, since some end.
"""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"
REFUSED = "(ValueError, TypeError, RuntimeError, BufferError, AttributeError)"
# What a program calls beside f: whether f refuses, and how its result is read and written where it has no elements.
HELPERS = f"""
def refuses(source):
    try:
        f(source)
    except {REFUSED}:
        return True
    return False

def first(result):
    return float((result if hasattr(result, "__getitem__") else np.from_dlpack(result))[0])

def write(result):
    try:
        (result if hasattr(result, "__setitem__") else torch.from_dlpack(result))[0] = 7
    except (ValueError, TypeError):     # its arrays are immutable, or flagged as read-only
        pass
"""
# In the first four, a refusal is a tick too.
ROWS = {
    "never ends the process": 'refuses(np.zeros(3, "f4")[::-1]); print(True)',
    "read-only memory stays so": """
        memory = bytes(range(8))
        array = np.frombuffer(memory, "u1")
        arrow = pyarrow.array(np.frombuffer(memory, "i8"))
        for source in memory, array, arrow:
            if not refuses(source):
                write(f(source))
        print([memory[0], arrow[0].as_py() & 255] == [0, 0])""",
    "large numbers stay the same": """
        large = np.array([2**40 + 1]), np.array([1e300])
        print(all(refuses(source) or first(f(source)) == source[0] for source in large))""",
    "signs stay (torch's negative bit)": """
        source = torch.imag(torch.tensor([1 + 2j]).conj())
        print(refuses(source) or first(f(source)) == -2)""",
    # At a multiple of 64 bytes, where JAX could share it.
    "`copy=True` copies": """
        room = np.zeros(1024, "u1")
        source = room[-room.ctypes.data % 64:][:256].view("f4")
        copy = f(source, copy=True)
        source[:] = 1
        print(first(copy) == 0)""",
    "`device=` is accepted": """
        f(np.zeros(3, "f4"), device=jax.devices("cpu")[0] if f is jnp.from_dlpack else "cpu")
        print(True)""",
    "negative strides": 'print(np.from_dlpack(f(np.arange(3, dtype="f4")[::-1])).tolist() == [2, 1, 0])',
    "bfloat16 (ml_dtypes)": """
        source = torch.ones(3, dtype=torch.bfloat16) if f is np.from_dlpack else np.ones(3, ml_dtypes.bfloat16)
        print("bfloat16" in str(f(source).dtype))""",
    "images of Pillow": 'print(tuple(f(PIL.Image.new("L", (2, 2))).shape) == (2, 2))',
    "`bytes`": 'print(tuple(f(b"abc").shape) == (3,))',
}
# Each column's functions; what is not so for one of them is not so.
COLUMNS = {
    "dlbridge": [f"lambda source, **keywords: dlbridge.convert(source, {to!r}, **keywords)"
                 for to in ("torch", "numpy", "jax")],
    "torch": ["torch.from_dlpack"],
    "NumPy": ["np.from_dlpack"],
    "JAX": ["jnp.from_dlpack"],
    "pydlpack": ["lambda source, **keywords: torch.from_dlpack(dlpack.asdlpack(source, **keywords))"],
    "tvm-ffi": ["tvm_ffi.from_dlpack"],
}
# JAX starts its threads in the child, where it is used.
IMPORTS = "import numpy as np, torch, jax, jax.numpy as jnp, ml_dtypes, PIL.Image, pyarrow, dlpack, tvm_ffi, dlbridge"
PROGRAM = """
import os, sys, json, signal, warnings
{imports}
warnings.simplefilter("ignore")
for code, function in json.loads(sys.stdin.read()):
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        signal.alarm(60)
        os.dup2(writer, 1)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        try:
            exec({helpers!r} + code, {{**globals(), "f": eval(function)}})
        except Exception as error:
            print(type(error).__name__)
        sys.stdout.flush()
        os._exit(0)
    os.close(writer)
    status = os.waitpid(child, 0)[1]
    print(os.read(reader, 100).decode().strip() if status == 0 else "ended", flush=True)
"""


def table():
    """The cells of the page by column and row; True is a tick."""
    lines = [[cell.strip() for cell in line.strip("|").split("|")]
             for line in README.read_text(encoding="utf-8").splitlines() if "✓" in line or "tvm-ffi |" in line]
    (_, *names), *rows = lines
    return {name: {row[0]: row[column] == "✓" for row in rows} for column, name in enumerate(names, 1)}


def run(programs, imports=IMPORTS, platforms="cpu"):
    """Whether each program, of a code and its function, printed True; ``platforms`` are JAX's."""
    work = json.dumps([(textwrap.dedent(code), function) for code, function in programs])
    done = subprocess.run([sys.executable, "-P", "-c", PROGRAM.format(imports=imports, helpers=HELPERS)], input=work,
                          capture_output=True, text=True, timeout=500, env={**os.environ, "JAX_PLATFORMS": platforms})
    assert done.returncode == 0, done.stderr
    found = done.stdout.split()
    assert len(found) == len(programs), done.stdout
    # A program that is wrong itself is no cross.
    assert not {"NameError", "SyntaxError", "ImportError", "ModuleNotFoundError"} & {*found}, found
    return [line == "True" for line in found]
