#!/usr/bin/env bash
# The core without the GIL, on CPython 3.13t: bash tools/freethreaded.sh [SECONDS]
#
# No module of dlbridge turns the GIL on again, the core's tests pass, and eight threads run for so many seconds (60).
source "$(dirname "$0")/common.sh"
source "$(dirname "$0")/interpreters.sh"

seconds=${1:-60}
tree=$work/tree
bin=$work/venv/bin
export DLBRIDGE_TEST_LIBRARIES=

# imports NAME...: turning the GIL on for a module is a warning of Python's, and so an error here.
imports() {
    "$bin/python" -W error - "$@" <<'PYTHON'
import importlib
import sys

for name in sys.argv[1:]:
    importlib.import_module(name)
assert not sys._is_gil_enabled()
print(len(sys.argv) - 1, "modules,", sys.version)
PYTHON
}

stage "CPython 3.13t, and dlbridge for it"
find_python 3.13t || fail "there is no free-threaded CPython"
copy_tree "$tree"
check "wheel" wheel_of "$tree" "$work"
environment "$work/venv" "$python" --only-binary=:all: numpy pytest hypothesis
"$bin/pip" install -q --no-deps --force-reinstall "$wheel"
cd "$work"      # where no folder is called dlbridge

stage "the GIL stays off"
touch needs_gil.pyx
"$work/builder/bin/cythonize" -qi needs_gil.pyx >"$logs/needs_gil.log" 2>&1
check_finds "seeded: a module that turns the GIL on" "GIL\) has been enabled to load module 'needs_gil'" imports needs_gil
modules=$(cd "$tree" && find dlbridge -name '*.pyx' | sed 's/\.pyx$//; s|/|.|g')
# shellcheck disable=SC2086
check "every module leaves it off" imports $modules

stage "tests"
check "tests" "$bin/pytest" -q "$tree/tests"
check "selftest" "$bin/dlbridge" selftest
check "8 threads for $seconds s" \
    env PYTHONPATH="$tree/tests" "$bin/python" -m support.stress --seconds "$seconds" --threads 8
result "$(tail -n 1 "$logs/8_threads_for_${seconds}_s.log" | xargs)"
finish
