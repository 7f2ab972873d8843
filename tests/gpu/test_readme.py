"""The column of CuPy in the README's table, and its line about JAX and an array of CuPy."""

import numpy as np
import pytest
from gpu.libraries import FAKE, MILLISECONDS
from support import first_page

import dlbridge

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(FAKE, reason="what is told is of CuPy and JAX themselves")]
IMPORTS = "import numpy as np, torch, jax, jax.numpy as jnp, cupy, PIL.Image"
REFUSED = first_page.REFUSED
# As in support/first_page.py, with sources on a GPU, which only the children use: CUDA does not survive a fork.
ROWS = {
    "never ends the process": "f(cupy.zeros(3)[::-1]); print(True)",
    "read-only memory stays so": f"""
        source = jnp.ones(3)
        try:
            f(source)[0] = 7
        except {REFUSED}:
            pass
        cupy.cuda.Device().synchronize()
        print(float(jnp.copy(source)[0]) == 1)""",
    "large numbers stay the same": """
        print([int(f(torch.tensor([2**40 + 1], device="cuda"))[0]),
               float(f(torch.tensor([1e300], dtype=torch.float64, device="cuda"))[0])] == [2**40 + 1, 1e300])""",
    "signs stay (torch's negative bit)": f"""
        try:
            print(float(f(torch.imag(torch.tensor([1 + 2j], device="cuda").conj()))[0]) == -2)
        except {REFUSED}:
            print(True)""",
    "`copy=True` copies": """
        source = torch.zeros(64, device="cuda")
        copy = f(source, copy=True)
        source.fill_(1)
        torch.cuda.synchronize()
        print(float(copy[0]) == 0)""",
    "`device=` is accepted": "f(cupy.zeros(3), device=(2, 0)); print(True)",
    "negative strides": "print(f(cupy.arange(3)[::-1]).tolist() == [2, 1, 0])",
    "bfloat16 (ml_dtypes)": 'print("bfloat16" in str(f(jnp.ones(3, jnp.bfloat16)).dtype))',
    "images of Pillow": 'print(tuple(f(PIL.Image.new("L", (2, 2))).shape) == (2, 2))',
    "`bytes`": 'print(tuple(f(b"abc").shape) == (3,))',
}


def test_the_ticks_and_crosses_of_cupy(library):
    for name in ("cupy", "torch", "jax"):
        library(name)
    pytest.importorskip("PIL.Image")
    found = first_page.run([(code, "cupy.from_dlpack") for code in ROWS.values()], IMPORTS, platforms="cuda,cpu")
    assert dict(zip(ROWS, found, strict=True)) == first_page.table()["CuPy"]


def early_reads(cupy, convert, rounds=20):
    """In how many rounds JAX reads other values than CuPy's last, which a slow kernel before them holds up."""
    stream = cupy.legacy_stream()               # JAX refuses arrays of any other
    array = cupy.module.zeros(1 << 16, np.float32)
    early = 0
    for value in range(rounds + 1):             # the first loads kernels, which waits by itself
        cupy.spin(stream)
        array.fill(value)
        read = np.asarray(convert(array) + 0)
        early += bool(value) and bool((read != value).any())
        stream.synchronize()
    return early


def test_jax_reads_an_array_of_cupy_early(library):
    import jax

    cupy = library("cupy")
    library("jax")
    assert MILLISECONDS > 10
    assert early_reads(cupy, jax.numpy.asarray)
    assert early_reads(cupy, lambda array: dlbridge.convert(array, "jax")) == 0
