#!/usr/bin/env bash
# The tests under AddressSanitizer and UndefinedBehaviorSanitizer: bash tools/asan.sh
#
# PYTHON, if set, is the python of an environment that has the test extra; else one is made. Two pytests run at a time.
# Left out:
#   tests/gpu, which need a GPU;
#   test_bench, test_bench_floors, test_large_files and test_ten_thousand_conversions: times and sizes mean nothing where
#     memory has red zones and freed memory is held back; valgrind.sh and debug_python.sh look for what is lost;
#   test_injected_failures, which brings a malloc() of its own;
#   test_typing, test_packaging, test_side_effects, test_command_line: mypy, and what pip installs (the self-test is run
#     by itself);
#   test_the_threads_that_are_not_there: a sanitizer's process does not fit into the memory that it limits.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
need gcc build-essential

if [ -z "${PYTHON:-}" ]; then
    stage "an environment with the test extra"
    mapfile -t wanted < <(extra test)
    environment "$work/environment" python3 "${wanted[@]}" || fail "the test extra could not be installed"
    PYTHON=$work/environment/bin/python
fi

stage "build"
copy_tree "$work/tree"
# -fno-wrapv: Python's own flags have -fwrapv, which makes signed overflow defined.
flags="-O1 -g -fno-omit-frame-pointer -fno-wrapv -fsanitize=address,undefined"
check "the package, instrumented" \
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
# --capture=sys: a sanitizer's report reaches the log, although it ends the process.
tests=("${sanitized[@]}" -m pytest -v --capture=sys -p no:cacheprovider
    --deselect=tests/test_lifetime.py::test_ten_thousand_conversions_leave_nothing
    --deselect=tests/test_copies.py::test_the_threads_that_are_not_there_are_done_without
)
left_out=(tests/gpu tests/test_{bench,bench_floors,large_files,typing,packaging,side_effects,command_line,injected_failures}.py)
in_children=(tests/test_hostile_producers.py tests/fake_driver)

"${tests[@]}" "${in_children[@]}" >"$work/children.log" 2>&1 &
background=$!
children() {
    local code=0
    wait "$background" || code=$?
    cat "$work/children.log"
    return "$code"
}
check "the other tests" "${tests[@]}" "${left_out[@]/#/--ignore=}" "${in_children[@]/#/--ignore=}"
check "tests of hostile input and of the fake driver, each in a child" children
check "self-test" "${sanitized[@]}" -m dlbridge selftest
finish
