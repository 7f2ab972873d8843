#!/usr/bin/env bash
# Whether the tests find faults that are seeded into the package: bash tools/faults.sh [NAME...]
#
# faults.py has them, each with the tests that are about it.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

stage "an environment with the test extra, and the package in a tree of its own"
environment_with test
tree=$work/tree
rm -rf "$tree"          # a run that was stopped has left a fault there
copy_tree "$tree"
must "the package" env -C "$tree" CFLAGS=-O0 "$bin/python" setup.py -q build_ext --inplace

stage "faults"
check "every fault is found" "$bin/python" "$tree/tools/faults.py" "$tree" "$@"
result "$(grep -c ': found by' "$logs/every_fault_is_found.log" || true) found"
finish
