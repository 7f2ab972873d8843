#!/usr/bin/env bash
# The whole products of the tests, of which CI runs a part: bash tools/full.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

stage "an environment with the test extra"
with_dlbridge test
stage "tests"
check "pytest --full" "$bin/pytest" -q --full -n auto "$tree/tests"
finish
