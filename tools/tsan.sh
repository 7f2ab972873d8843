#!/usr/bin/env bash
# Eight threads under ThreadSanitizer, on CPython 3.13t: bash tools/tsan.sh [SECONDS]
#
# CPython and dlbridge are built with it by one compiler; NumPy's wheel is not, so nothing is seen of what it does, nor
# of what it orders. CPython's own races are left out: by the list in its source, and by one for ctypes, which calls the
# fake producers of the tests. What counts is a report that names dlbridge's code in one of its stacks. What runs for
# long without a thread (Cython, pip) does so in an ordinary 3.13t.
source "$(dirname "$0")/common.sh"
source "$(dirname "$0")/interpreters.sh"

seconds=${1:-30}
tree=$work/tree
reports=$work/reports
symbolizer=/usr/lib/llvm-19/bin/llvm-symbolizer
options="exitcode=0:history_size=4:external_symbolizer_path=$symbolizer"

# under_tsan COMMAND...: what it says, and then its reports.
under_tsan() {
    rm -rf "$reports"
    mkdir -p "$reports"
    TSAN_OPTIONS="$options:suppressions=$suppressions:log_path=$reports/report" "$python" "$@" || return
    cat "$reports"/* 2>/dev/null || true
}

# no_report COMMAND...: none that names dlbridge; how many others there were is said.
no_report() {
    under_tsan "$@" >"$logs/reports.log" 2>&1 || { cat "$logs/reports.log"; return 1; }
    python3 - "$logs/reports.log" <<'PYTHON'
import re
import sys

text = open(sys.argv[1], errors="replace").read()
reports = re.findall(r"WARNING: ThreadSanitizer.*?SUMMARY[^\n]*", text, re.DOTALL)
ours = [report for report in reports if re.search(r"^ +#\d+ \S+ (\S*/)?dlbridge/", report, re.MULTILINE)]
print(text.partition("==================")[0])
print(*ours[:5], sep="\n\n")
print(f"{len(reports)} reports, {len(ours)} of them with dlbridge's code")
sys.exit(bool(ours))
PYTHON
}

stage "CPython 3.13t with ThreadSanitizer, and dlbridge for it"
find_python 3.13t || fail "there is no free-threaded CPython"
environment "$work/venv" "$python" --only-binary=:all: "setuptools>=77" "Cython>=3.3,<4" "numpy>=2"
need "$symbolizer" llvm-19     # suppressions are names
find_python 3.13t-tsan || fail "there is no CPython with ThreadSanitizer"
suppressions=$work/suppressions
cat "$(dirname "$python")/Tools/tsan/suppressions_free_threading.txt" - >"$suppressions" <<'LIST'
# Each instance marks its type as final, in no order with the other threads (_ctypes.c of 3.13).
race_top:generic_pycdata_new
race_top:PyCData_AtAddress
race_top:PyCData_FromBaseObj
race_top:PyCFuncPtr_new
LIST
seeded_tree "$tree"
check "build" env -C "$tree" CC="clang-19 -fsanitize=thread" LDSHARED="clang-19 -shared -fsanitize=thread" \
    CFLAGS="-O1 -g -fno-omit-frame-pointer" "$work/venv/bin/python" setup.py build_ext --inplace
export PYTHONPATH=$tree:$tree/tests:$(echo "$work"/venv/lib/*/site-packages)
cd "$work"

stage "threads"
cat >race.py <<'PYTHON'
import threading
from dlbridge import seeded


def race(barrier):
    barrier.wait()      # one that began after the other's end would be in order with it
    seeded.race(100_000_000)


barrier = threading.Barrier(2)
threads = [threading.Thread(target=race, args=(barrier,)) for _ in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
PYTHON
check_finds "seeded: a race" "SUMMARY: ThreadSanitizer: data race .*dlbridge_race" no_report race.py
check "8 threads for $seconds s" no_report -m support.stress --seconds "$seconds" --threads 8
result "$(tail -n 1 "$logs/8_threads_for_${seconds}_s.log")"
finish
