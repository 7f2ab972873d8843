#!/usr/bin/env bash
# The tests under AddressSanitizer and UndefinedBehaviorSanitizer: bash tools/asan.sh [TEST...]
#
# TEST is a file or a folder below tests/, such as sources/test_arrow.py; .ci/run names those that are about what parses,
# owns and releases. Without one all the tests run, but for those that need more than a sanitizer leaves
# (tests/support/optional.py) and for tests/gpu. valgrind.sh and debug_python.sh look for what is lost.
# PYTHON, if set, is the python of an environment that has the test extra; else one is made.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
need gcc build-essential

if [ -z "${PYTHON:-}" ]; then
    stage "an environment with the test extra"
    environment_with test
    PYTHON=$bin/python
fi

stage "build"
seeded_tree "$work/tree"
# -fno-wrapv: Python's own flags have -fwrapv, which makes signed overflow defined.
flags="-O1 -g -fno-omit-frame-pointer -fno-wrapv -fsanitize=address,undefined"
must "the package, instrumented" \
    env CFLAGS="$flags" "$PYTHON" -m pip install --no-deps --upgrade --target "$work/installed" "$work/tree"
rm "$work/tree/dlbridge/seeded.pyx"     # the tests read the sources, too

export PYTHONPATH=$work/installed PYTHONMALLOC=malloc
# handle_segv=0: tests that see a library crash look for the signal; elsewhere Python's faulthandler reports it.
sanitized=(
    env LD_PRELOAD="$(gcc -print-file-name=libasan.so) $(gcc -print-file-name=libubsan.so)"
    ASAN_OPTIONS=detect_leaks=0:handle_segv=0 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
    "$PYTHON" -P
)

stage "which build runs"
"${sanitized[@]}" -c "
import dlbridge._core.block
print(dlbridge._core.block.__file__)
assert dlbridge._core.block.__file__.startswith('$work/installed/')"

stage "seeded bugs"
while read -r bug text; do
    check_finds "$bug" "$text" "${sanitized[@]}" -c "from dlbridge import seeded; seeded.$bug()"
done <<'BUGS'
read_beyond AddressSanitizer: heap-buffer-overflow
use_freed AddressSanitizer: heap-use-after-free
free_twice AddressSanitizer: attempting double-free
overflow runtime error: signed integer overflow
misalign runtime error: load of misaligned address
BUGS

stage "tests"
cd "$work/tree"
export DLBRIDGE_TEST_WITHOUT="an installation,plain memory,an end beside threads of C"
if [ $# = 0 ]; then set -- --ignore=tests/gpu; else set -- "${@/#/tests/}"; fi
# --capture=sys: a sanitizer's report reaches the log, although it ends the process.
check "tests" "${sanitized[@]}" -m pytest -v --capture=sys -p no:cacheprovider -n auto --dist worksteal "$@"
check "self-test" "${sanitized[@]}" -m dlbridge selftest
finish
