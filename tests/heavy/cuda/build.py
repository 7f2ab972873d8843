"""What torch, CuPy and Numba for CUDA load, made for a machine without a GPU: python build.py FOLDER CUPY.

FOLDER gets the fake driver, CUDA's runtime over it (runtime.c), and a library for each other one that torch and CuPy
are linked with, whose functions answer "not supported". A program that has it in LD_LIBRARY_PATH finds two devices.
CuPy has a runtime of its own inside one module: that one is compiled once more, from the sources in CUPY.
"""

import collections
import pathlib
import re
import subprocess
import sys
import sysconfig

HERE = pathlib.Path(__file__).parent
SITE = pathlib.Path(sysconfig.get_path("platlib"))
HEADERS = SITE / "nvidia" / "cu13" / "include"
DRIVER = HERE.parents[1] / "fake_driver" / "driver.c"
CUDA = re.compile(r"lib(cu|nv|nccl)\w*\.so\.")
# Of libraries that give their symbols no version: how their functions begin.
BEGINNINGS = {"cuFile": "libcufile.so.0", "cusparseLt": "libcusparseLt.so.0", "nccl": "libnccl.so.2",
              "curand": "libcurand.so.10", "cuda": "libcudart.so.13", "cu": "libcuda.so.1"}
NOT_SUPPORTED = 801


def compile_module(folder: pathlib.Path, sources: pathlib.Path) -> None:
    """Put a module of CuPy that calls a runtime beside it into the place of the one that has a runtime in it."""
    module = "cupy_backends/cuda/api/runtime"
    settings = "CUPY_CUDA_VERSION=13000,CUPY_HIP_VERSION=0,CUPY_USE_CUDA_PYTHON=False"
    subprocess.run([sys.executable, "-m", "cython", "-3", "--cplus", "-E", settings, f"{module}.pyx"],
                   cwd=sources, check=True)
    includes = [f"-I{folder}" for folder in (HEADERS, sysconfig.get_path("include"))]
    [made] = SITE.glob(f"{module}.*.so")
    subprocess.run(["c++", "-w", "-O2", "-std=c++17", "-shared", "-fPIC", "-DCUPY_CUDA_VERSION=13000", *includes,
                    f"{module}.cpp", "-o", made, f"-L{folder}", "-l:libcudart.so.13"], cwd=sources, check=True)


def wanted() -> dict[str, set[str]]:
    """The symbols that extension modules need, by the library that has them, with the version that they name."""
    found: dict[str, set[str]] = collections.defaultdict(set)
    for file in (file for package in ("torch", "cupy", "cupy_backends") for file in (SITE / package).rglob("*.so*")):
        listed = subprocess.check_output(["nm", "-D", "--undefined-only", file], text=True, stderr=subprocess.DEVNULL)
        for symbol, at, version in (line.split()[-1].partition("@") for line in listed.splitlines()):
            if version == "NVSHMEM":
                found["libnvshmem_host.so.3"].add(symbol)
            elif CUDA.match(version):
                found[version].add(symbol)
            elif not at:
                for beginning, library in BEGINNINGS.items():
                    if re.match(beginning + "[A-Z]", symbol) or (beginning == "nccl" and symbol.startswith("pnccl")):
                        found[library].add(symbol)
                        break
    # torch looks all of these up by name, with the first device that it asks for.
    text = (SITE / "torch" / "lib" / "libc10_cuda.so").read_bytes()
    found["libcuda.so.1"].update(name.decode() for name in re.findall(rb"\0(cu[A-Z]\w+)(?=\0)", text))
    found["libcurand.so.10"] |= set()
    return found


def build(folder: pathlib.Path, library: str, symbols: set[str]) -> None:
    """Compile one library: what it does, if it is the driver or the runtime, and the names that are missing."""
    source = {"libcuda.so.1": DRIVER, "libcudart.so.13": HERE / "runtime.c"}.get(library)
    text = source.read_text(encoding="utf-8") if source else ""
    missing = sorted(symbol for symbol in symbols if not re.search(rf"\b{symbol}\b", text))
    code = f'{text}\n' + "".join(f"int {symbol}() {{ return {NOT_SUPPORTED}; }}\n" for symbol in missing)
    file, versions = folder / f"{library}.c", folder / f"{library}.map"
    file.write_text(code, encoding="utf-8")
    name = "NVSHMEM" if "nvshmem" in library else library
    versions.write_text(f"{name} {{ global: *; }};\n", encoding="utf-8")
    flags = [] if library == "libcuda.so.1" else [f"-Wl,--version-script={versions}", f"-L{folder}", "-l:libcuda.so.1"]
    subprocess.run(["cc", "-w", "-std=gnu11", "-O1", "-fno-builtin", "-shared", "-fPIC", "-pthread", "-DHIP=0",
                    f"-I{HEADERS}", f"-Wl,-soname,{library}", file, "-o", folder / library, *flags, "-ldl"], check=True)


def main(folder: pathlib.Path, sources: pathlib.Path) -> None:
    folder, sources = folder.resolve(), sources.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    for library in "libcuda.so.1", "libcudart.so.13":       # what is built later is linked with these
        build(folder, library, set())
    compile_module(folder, sources)
    for library, symbols in sorted(wanted().items()):
        build(folder, library, symbols)


if __name__ == "__main__":
    main(*map(pathlib.Path, sys.argv[1:]))
