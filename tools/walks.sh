#!/usr/bin/env bash
# Random walks through the libraries (tests/support/walks.py), by other seeds than the tests' own.
#
#     tools/walks.sh [FIRST [COUNT]]        in an environment with dlbridge and its test extra
set -euo pipefail
cd "$(dirname "$0")/.."

JAX_PLATFORMS=cpu PYTHONFAULTHANDLER=1 python tests/support/walks.py "${1:-1000}" "${2:-100000}"
