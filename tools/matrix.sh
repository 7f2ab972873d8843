#!/usr/bin/env bash
# Every pair of libraries, in a process of its own, against docs/matrix.md: bash tools/matrix.sh
#
# No pair may have got worse since tools/matrix_page.py wrote the page.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

stage "an environment with every library"
with_dlbridge test all
stage "pairs"
command -v clang >/dev/null || export DEV=PYTHON        # tinygrad's one device on the host that compiles nothing
check "no pair got worse" "$bin/python" "$tree/tools/matrix_page.py" --check
result "$(tail -n 1 "$logs/no_pair_got_worse.log")"
finish
