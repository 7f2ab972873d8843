#!/usr/bin/env bash
# Fills a folder with what a GPU machine may lack and cannot fetch: bash tests/gpu/pack.sh [PYTHON_VERSION [FOLDER]]
# Run it where Cython, a C compiler and a package registry are. The C that Cython makes goes along, for a machine without it.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repository=$(cd "$here/../.." && pwd)
version=${1:-3.12}
folder=${2:-$here/wheels}
python=${PYTHON:-python3}
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)

# Small, and enough where NumPy and the GPU libraries are. NUMBA=1 adds Numba, of which llvmlite alone has 60 MB.
packages=(cython setuptools pytest iniconfig pluggy pygments packaging ml_dtypes)
[ -z "${NUMBA:-}" ] || packages+=(numba numba-cuda llvmlite cuda-bindings cuda-core cuda-pathfinder)
platforms=()
for number in 17 24 27 28; do platforms+=(--platform "manylinux_2_${number}_x86_64"); done
"$python" -m pip download --quiet --no-deps --only-binary=:all: --dest "$folder" --implementation cp \
    --python-version "$version" "${platforms[@]}" --platform manylinux2014_x86_64 "${packages[@]}"

cd "$repository"
"$python" setup.py build_ext --inplace >"$folder/cython.log" 2>&1 || { cat "$folder/cython.log"; exit 1; }
rm "$folder/cython.log"
# The checksums say which sources the C was made from.
find dlbridge \( -name '*.pyx' -o -name '*.pxd' \) -print0 | sort -z | xargs -0 sha256sum >"$folder/dlbridge-sources.sha256"
find dlbridge -name '*.c' -print0 | sort -z | tar -czf "$folder/dlbridge-c.tar.gz" --null -T -
ls -l "$folder"
du -sh "$folder"
