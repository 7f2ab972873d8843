#!/usr/bin/env bash
# Builds events.c into a folder, to stand before the driver: bash tests/gpu/events.sh FOLDER; LD_LIBRARY_PATH=FOLDER python …
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
folder=$1
mkdir -p "$folder"

# Where the loader finds the driver.
driver=$("${PYTHON:-python3}" - <<'PYTHON'
import ctypes

ctypes.CDLL("libcuda.so.1")
with open("/proc/self/maps") as maps:
    print(next(line.split()[-1] for line in maps if "/libcuda.so" in line))
PYTHON
)
# Only a name with a folder in it makes the loader take the driver for another library than this one, which has its name.
echo | cc -shared -x c - -o "$folder/named.so" -Wl,-soname,"$driver"
cc -shared -fPIC -O1 -Wall -DREAL_DRIVER="\"$driver\"" "$here/events.c" -o "$folder/libcuda.so.1" \
    -Wl,-soname,libcuda.so.1 -Wl,--no-as-needed "$folder/named.so" -ldl
rm "$folder/named.so"
