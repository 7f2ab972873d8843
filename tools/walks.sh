#!/usr/bin/env bash
# Random walks through the libraries (tests/support/walks.py), by other seeds than the tests' own.
#
#     bash tools/walks.sh [FIRST [COUNT]]
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

stage "an environment with the test extra"
with_dlbridge test
stage "walks"
check "walks" env PYTHONFAULTHANDLER=1 PYTHONPATH="$tree/tests" "$bin/python" "$tree/tests/support/walks.py" \
    "${1:-1000}" "${2:-3000}"
result "$(tail -n 1 "$logs/walks.log")"
finish
