#!/usr/bin/env bash
# Eight threads with the GIL, over all the libraries of the test extra: bash tools/threads.sh [SECONDS]
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

seconds=${1:-60}
stage "an environment with the test extra"
with_dlbridge test
stage "threads"
check "8 threads for $seconds s" \
    env PYTHONPATH="$tree/tests" "$bin/python" -m support.stress --seconds "$seconds" --threads 8
result "$(tail -n 1 "$logs/8_threads_for_${seconds}_s.log" | xargs)"
finish
