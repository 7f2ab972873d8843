#!/usr/bin/env bash
# The versions that CI installs, written anew into constraints.txt: bash tools/constraints.sh
#
# The newest of everything that the extras take together, on the python3 in PATH. A version that the extra for CUDA 12
# wants otherwise is left out, since one file cannot hold both. Run it, run .ci/run, and commit the file by itself.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
unset PIP_CONSTRAINT PIP_BUILD_CONSTRAINT

# frozen NAME EXTRA...: what pip installs for these extras, without a local part such as +cpu.
frozen() {
    local name=$1 each
    shift
    for each in "$@"; do extra "$each"; done | grep -v '^dlbridge\[' | sort -u >"$work/$name.in"
    rm -rf "${work:?}/$name"
    python3 -m venv "$work/$name"
    "$work/$name/bin/pip" install -q -U -r "$work/$name.in" setuptools 2>"$logs/$name.log" ||
        { tail -n 20 "$logs/$name.log"; fail "the extras $* could not be installed together"; }
    "$work/$name/bin/pip" freeze --all | sed 's/+.*//' | grep -v '^pip==' | LC_ALL=C sort -f >"$work/$name.txt"
}

frozen tested test all cluster bench docs lint wheels
frozen cuda cuda12
{
    echo "# The versions that CI tests with, on $(python3 -c 'import platform; print("Python", platform.python_version())')."
    echo "# Made by tools/constraints.sh."
    # A name that both have must have one version in both.
    LC_ALL=C sort -u -f "$work/tested.txt" "$work/cuda.txt" |
        awk -F== '{count[$1]++; line[NR] = $0; name[NR] = $1} END {for (i = 1; i <= NR; i++) if (count[name[i]] == 1) print line[i]}'
} >"$repository/constraints.txt"
grep -vc '^#' "$repository/constraints.txt"
