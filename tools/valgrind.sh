#!/usr/bin/env bash
# pytest -m memcheck, one test for each path, under valgrind's memcheck: bash tools/valgrind.sh
#
# PYTHON, if set, is the python of an environment that has the test extra; else one is made. CPython, the dynamic loader
# and the libraries have errors of their own there: what counts is an error, or memory definitely lost, with dlbridge's
# code in the stack (and no Python code that it called).
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
need valgrind valgrind
need gcc build-essential

if [ -z "${PYTHON:-}" ]; then
    stage "an environment with the test extra"
    environment_with test
    PYTHON=$bin/python
fi

stage "build"
seeded_tree "$work/tree"
check "the package" env CFLAGS="-O1 -g" \
    "$PYTHON" -m pip install --no-deps --upgrade --target "$work/installed" "$work/tree"

export PYTHONPATH=$work/installed PYTHONMALLOC=malloc
cd "$work/tree"

# memcheck REPORT ARGUMENT...: the python with these arguments; its errors, those with dlbridge in the stack, are told.
memcheck() {
    local report=$1
    shift
    valgrind --xml=yes --xml-file="$report" --num-callers=40 --error-limit=no --keep-stacktraces=alloc \
        --suppressions=tests/support/valgrind.supp --leak-check=full --show-leak-kinds=definite "$PYTHON" -P "$@" || return
    "$PYTHON" tests/support/memcheck.py "$report" "$work/installed/dlbridge"
}

stage "seeded bugs"
while read -r bug text; do
    check_finds "$bug" "$text" memcheck "$work/$bug.xml" -c "from dlbridge import seeded; seeded.$bug()"
done <<'BUGS'
read_beyond InvalidRead: .* dlbridge_read_beyond
branch_on_unset Uninit(Condition|Value): .*branch_on_unset
lose_memory Leak_DefinitelyLost: .* dlbridge_lose
BUGS

stage "every path"
check "pytest -m memcheck" memcheck "$work/paths.xml" -m pytest -m memcheck -q -p no:faulthandler -p no:cacheprovider
result "$(tail -n 1 "$logs/pytest_-m_memcheck.log")"
finish
