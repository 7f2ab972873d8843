#!/usr/bin/env bash
# Every path a thousand times on a debug CPython: no reference and no block is left: bash tools/debug_python.sh
#
# First with a NumPy compiled for that interpreter too, for only then is the total of all references exact; then with all
# the libraries, as wheels (see tests/support/references.py). Debian's debug interpreter loads the wheels of the ordinary one.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
need python3.11-dbg python3.11-dbg
need /usr/lib/python3.11/ensurepip/_bundled python3.11-venv
need gcc build-essential
python=$(command -v python3.11-dbg)

seeded_tree "$work/tree"
export PYTHONPATH=$work/tree/tests

# paths NAME REFERENCES: all the paths of an environment, after the package was built for it, and the seeded bug.
paths() {
    local name=$1 references=$2 folder=$work/$1
    check "$name: the package" "$folder/bin/pip" install --no-deps --upgrade --force-reinstall "$work/tree"
    (cd "$work" && "$folder/bin/python" -c '
import importlib, sys, dlbridge._core.block
print(sys.version, hex(sys.hexversion), dlbridge._core.block.__file__)
for library in ("numpy", "torch", "jax", "ml_dtypes", "pyarrow"):
    try:
        print(library, importlib.import_module(library).__version__)
    except ImportError as error:
        print(error)')
    check_finds "$name: a reference lost" '^a reference lost: \+1000 references' \
        "$folder/bin/python" -X dev "$work/tree/tests/support/references.py" seeded
    check "$name: every path" "$folder/bin/python" -X dev "$work/tree/tests/support/references.py" "$references"
    result "$name: $(tail -n 1 "$logs/${name}:_every_path.log")"
}

stage "NumPy compiled for the debug interpreter"
environment "$work/compiled" "$python" --no-binary numpy --config-settings=setup-args=-Dcpu-dispatch=none numpy ||
    fail "NumPy could not be compiled"
paths compiled total

stage "wheels"
environment "$work/wheels" "$python" -c "$repository/constraints.txt" torch jax ml_dtypes pyarrow || fail "the wheels could not be installed"
paths wheels each
finish
