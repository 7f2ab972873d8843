#!/usr/bin/env bash
# What takes the libraries and long: bash tools/with_libraries.sh NAME [ARGUMENT...]
#
#   full                    the whole products of the tests, of which CI runs a part
#   threads [SECONDS]       eight threads with the GIL, over all the libraries of the test extra
#   walks [FIRST [COUNT]]   random walks through the libraries (tests/support/walks.py), by other seeds than the tests' own
#   matrix                  every pair of libraries, in a process of its own: none may have got worse than docs/matrix.md
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

name=${1:-}
shift || true
work=$work/$name logs=$work/$name/logs      # of its own: these may run side by side, with other environments
mkdir -p "$logs"
stage "an environment with the libraries"
case $name in
    full | threads | walks) with_dlbridge test ;;
    matrix) with_dlbridge test all ;;
    *) fail "there is no $name (full, threads, walks or matrix)" ;;
esac
stage "$name"
case $name in
    full) check "pytest --full" "$bin/pytest" -q --full -n auto "$tree/tests" ;;
    threads)
        check threads env PYTHONPATH="$tree/tests" "$bin/python" -m support.stress --seconds "${1:-60}" --threads 8 ;;
    walks)
        check walks env PYTHONFAULTHANDLER=1 PYTHONPATH="$tree/tests" "$bin/python" "$tree/tests/support/walks.py" \
            "${1:-1000}" "${2:-3000}" ;;
    matrix)
        command -v clang >/dev/null || export DEV=PYTHON    # tinygrad's one device on the host that compiles nothing
        check matrix "$bin/python" "$tree/tools/pages" matrix --check ;;
esac
[ "$name" = full ] || result "$(tail -n 1 "$logs/$name.log" | xargs)"
finish
