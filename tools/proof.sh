#!/usr/bin/env bash
# What a run of the tests proves, by two yardsticks: bash tools/proof.sh NAME [ARGUMENT OF PYTEST...]
#
# Into $TOOLS/proof/NAME.branches goes each branch of the generated C that was taken, Cython's own helpers left out; into
# NAME.decisions each (protocol, target, dtype, steps, reason, refusal) that decide() found. Two runs are compared by
# diff: what a shorter suite no longer proves is a line that it lacks.
# PYTHON, if set, is the python of an environment that has the test extra; else one is made.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
need gcc build-essential
name=$1
shift

if [ -z "${PYTHON:-}" ]; then
    stage "an environment with the test extra"
    environment_with test
    PYTHON=$bin/python
fi

stage "build"
tree=$work/tree
find "$tree" -name '*.gcda' -delete 2>/dev/null || true
copy_tree "$tree"
"$PYTHON" - "$tree/dlbridge/_core/decision.pyx" <<'PYTHON'
import pathlib
import re
import sys

path = pathlib.Path(sys.argv[1])
text = path.read_text()
# By their names: the numbers are not the same in every version.
steps = path.with_suffix(".pxd").read_text().partition("cdef enum Step:\n")[2].partition("\n\n")[0]
steps = re.findall(r"^    (\w+) = 1 << (\d+)", steps, re.MULTILINE)
head = "cdef void decide(\n"
assert text.count(head) == 1
path.write_text(text.replace(head, "cdef void decide_in_silence(\n") + '''

import os
from dlbridge._core.dtypes cimport dtype_name
seen = set()
STEPS = ''' + repr(steps) + '''


cdef void decide(
    const Managed* managed, Target target, const Request* request, const Findings* findings, Decision* out,
) noexcept:
    decide_in_silence(managed, target, request, findings, out)
    steps = "+".join([name for name, bit in STEPS if out.steps >> int(bit) & 1])
    line = (f"{managed.protocol}\\t{target.name}\\t{dtype_name(managed.abi.dl_tensor.dtype)}\\t"
            f"{steps}\\t{<int> out.reason}\\t{<int> out.refused}\\n")
    if line not in seen:
        seen.add(line)
        with open(f"{os.environ['DECISIONS']}/{os.getpid()}", "a") as file:
            file.write(line)
''')
PYTHON
must "the package, with counters of branches" env CFLAGS="-O0 --coverage" LDFLAGS=--coverage \
    "$PYTHON" "$tree/setup.py" -q build_ext --inplace

# A child that ends by os._exit() would leave no counts: libc's exit() writes them.
mkdir -p "$work/site"
cat >"$work/site/sitecustomize.py" <<'PYTHON'
import ctypes
import os

leave = ctypes.CDLL(None).exit
os._exit = lambda code: leave(code)
PYTHON

stage "tests"
# Noting a decision allocates, and takes signals, which the first two count; and it needs what is gone in the last
# finalizers, which the others are about.
counting=(
    --deselect tests/lifetime/test_injected_failures.py::test_every_allocation_of_every_path_fails
    --deselect tests/lifetime/test_interrupts.py::test_signals_at_any_moment_leave_nothing_behind
    --deselect tests/lifetime/test_exit.py::test_a_finalizer_runs_among_the_last
    --deselect tests/lifetime/test_exit.py::test_a_registered_source_and_a_registered_target_end
    --deselect tests/lifetime/test_lifetime.py::test_python_ends_with_a_finalizer_that_converts
)
export DECISIONS=$work/decisions PYTHONPATH=$tree:$work/site
rm -rf "$DECISIONS"
mkdir "$DECISIONS"
cd "$tree"
check "tests" env PYTHONSAFEPATH=1 DLBRIDGE_TEST_WITHOUT="an installation" "$PYTHON" -m pytest -q \
    -p no:cacheprovider -n auto "${counting[@]}" "$@"
unset PYTHONPATH

stage "branches"
sort -u "$DECISIONS"/* >"$work/$name.decisions"
"$PYTHON" - "$tree" >"$work/$name.branches" <<'PYTHON'
import json
import pathlib
import re
import subprocess
import sys

for data in sorted(pathlib.Path(sys.argv[1]).rglob("*.gcda")):
    done = subprocess.run(["gcov", "--branch-probabilities", "--json-format", "--stdout", data.name], cwd=data.parent,
                          capture_output=True, text=True, check=True)
    for line in done.stdout.splitlines():
        for file in json.loads(line)["files"]:
            if not file["file"].endswith(".c"):
                continue
            for number in file["lines"]:
                if re.match(r"_*Pyx|__pyx_(pymod|modinit|bisect)", number.get("function_name", "__Pyx")):
                    continue
                for index, branch in enumerate(number["branches"]):
                    if branch["count"]:
                        print(file["file"], number["function_name"], number["line_number"], index)
PYTHON
wc -l "$work/$name.branches" "$work/$name.decisions"
finish
