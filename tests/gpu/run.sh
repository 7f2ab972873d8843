#!/usr/bin/env bash
# All tests that need a GPU, in one command, on a machine that has nothing but Python, a GPU and some of the libraries:
#     bash tests/gpu/run.sh
# It uses no network. What the machine lacks is taken from a folder of wheels (pack.sh fills one). Settings, by environment:
#     PART      some of these, in this order: first pointers races order calls latency rest hops soak; all (the default);
#               or build: list what is there, build, and stop
#     WHEELS    the folder of wheels (tests/gpu/wheels)
#     OUT       where the report goes: report.txt, report.json, logs (tests/gpu/report)
#     LIMIT     seconds for everything together (570); what does not fit is said to be not run
#     COUNT     hand-overs of the soak (1000000)
#     ROUNDS    rounds of every race (200), and LATENCY_ROUNDS of every latency (400)
#     SECONDS_OF_HOPS   of each run of random chains (30)
#     PYTHON    the interpreter (python3)
#     EVENTS    0: do not put the library that counts live CUDA events before the driver in the soak
#     GPU_FAKE  1: on the fake driver of tests/fake_driver, on a machine without a GPU, to see that all of this works
# Each part stands alone, and writes its lines as it goes. Within 10 minutes for a command, these three do all of it:
#     PART="first pointers races order"    PART="calls latency rest hops"    PART=soak
# The exit status: 0 if something ran and all that ran passed, 1 if anything failed, 2 if nothing could be run.
set -uo pipefail
exec </dev/null

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repository=$(cd "$here/../.." && pwd)
part=${PART:-all}
wheels=${WHEELS:-$here/wheels}
out=${OUT:-$here/report}
limit=${LIMIT:-570}
python=${PYTHON:-python3}
export DLBRIDGE_GPU_ROUNDS=${ROUNDS:-200}
export PYTHONUNBUFFERED=1 PIP_DISABLE_PIP_VERSION_CHECK=1
export JAX_PLATFORMS=${JAX_PLATFORMS:-cuda,cpu} XLA_PYTHON_CLIENT_PREALLOCATE=${XLA_PYTHON_CLIENT_PREALLOCATE:-false}
export NUMBA_CUDA_LOW_OCCUPANCY_WARNINGS=0

parts="first pointers races order calls latency rest hops soak"
[ "$part" != all ] || part=$parts
for name in $part; do
    case " $parts build " in *" $name "*) ;; *) echo "PART=$name: some of $parts; all; or build"; exit 2 ;; esac
done
command -v "$python" >/dev/null || { echo "PYTHON=$python: not found"; exit 2; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$out"
out=$(cd "$out" && pwd)
rm -f "$out"/*.{txt,json,log,xml}
: >"$work/parts"

stage() { printf '\n==== %s (after %d s)\n' "$1" "$SECONDS"; }
# What became of a part, for the report; also when a later one is cut off.
became() {
    printf '%s\t%s\n' "$1" "$2" >>"$work/parts"
    "$python" "$here/report.py" summary "$work" "$out"
}
finish() {
    stage "report"
    cat "$out/report.txt"
    printf '\n%s: %s\nreport: %s\n' "$1" "$2" "$out/report.txt"
    exit "$1"
}

stage "wheels from $wheels"
# Every wheel in a folder of its own, since pip merges nothing into a package, such as cuda, that is there already. A
# folder in PYTHONPATH has no .pth files, and numba-cuda needs its own.
site=$work/site
mkdir "$site"
cat >"$site/sitecustomize.py" <<'PYTHON'
import site
from pathlib import Path

for folder in Path(__file__).parent.iterdir():
    if folder.is_dir():
        site.addsitedir(str(folder))
PYTHON
# add WHEEL: install it for this run alone.
add() {
    local folder=$site/$(basename "$1" .whl)
    "$python" -m pip install --quiet --no-index --no-deps --no-compile --target "$folder" "$1" || return 1
    PYTHONPATH=$folder${PYTHONPATH:+:$PYTHONPATH}
}
added=
if [ -d "$wheels" ]; then
    missing=$("$python" "$here/wheels.py" "$wheels")
    while IFS= read -r wheel; do
        [ -n "$wheel" ] || continue
        if add "$wheel"; then added="$added $(basename "$wheel")"; else echo "NOT ADDED: $(basename "$wheel")"; fi
    done <<<"$missing"
    echo "added:${added:- nothing}"
else
    echo "no such folder: nothing is added"
fi
export PYTHONPATH=$site${PYTHONPATH:+:$PYTHONPATH}

stage "what is here"
"$python" "$here/report.py" inventory "$work/inventory.json"

# The extension: from a wheel of dlbridge in the folder, else by Cython where there is one that will do, else from C that
# Cython made elsewhere: dlbridge-c.tar.gz in the folder, or .c files beside their .pyx in the checkout.
sources_are_those_of() { (cd "$repository" && sha256sum --check --quiet "$1"); }
build() {
    cd "$repository" || return 1
    if [ "${GPU_FAKE:-0}" = 1 ]; then
        echo "the installed one"
        installed=yes
        return
    fi
    local wheel
    for wheel in "$wheels"/dlbridge-*.whl; do
        [ -e "$wheel" ] || continue
        echo "from $wheel"
        add "$wheel" >"$out/build.log" 2>&1 && installed=yes && return
        echo "it cannot be installed here; see build.log"
    done
    if "$python" "$here/wheels.py" --has cython; then
        echo "by Cython"
        "$python" setup.py build_ext --inplace >"$out/build.log" 2>&1
        return
    fi
    if [ -f "$wheels/dlbridge-c.tar.gz" ]; then
        echo "from $wheels/dlbridge-c.tar.gz (Cython is missing)"
        sources_are_those_of "$wheels/dlbridge-sources.sha256" || { echo "it was made from other sources: run pack.sh again"; return 1; }
        tar -xzf "$wheels/dlbridge-c.tar.gz" || return 1
    elif ! ls dlbridge/*.c >/dev/null 2>&1; then
        echo "there is no Cython 3.3, no wheel of dlbridge and no generated C: bash tests/gpu/pack.sh makes what is needed"
        return 1
    else
        echo "from the .c files in the checkout (Cython is missing)"
    fi
    "$python" "$here/build_c.py" >"$out/build.log" 2>&1
}

stage "the extension"
installed=
if ! build; then
    [ ! -f "$out/build.log" ] || tail -n 20 "$out/build.log"
    became build failed
    finish 1 "the extension could not be built"
fi
# A checkout that is not built would hide an installed package.
export PYTHONPATH=$([ -n "$installed" ] || echo "$repository:")$repository/tests:$PYTHONPATH
cd "$here" || exit 1
if ! "$python" -P -c 'import dlbridge; print("dlbridge", dlbridge.__version__, "in", dlbridge.__path__[0])'; then
    became build "built, and cannot be imported"
    finish 1 "the extension cannot be imported"
fi
became build passed
[ "$part" != build ] || finish 0 "built; nothing else was asked for"

if [ "${GPU_FAKE:-0}" = 1 ]; then
    stage "the fake driver"
    "$python" -P -c 'import sys; from fake_driver import harness; harness.build(sys.argv[1], "cuda")' "$work/fake" || exit 2
    export LD_LIBRARY_PATH=$work/fake FAKE_DRIVER=libcuda.so.1
fi
if reason=$("$python" -P -c 'from gpu import driver; import sys; r = driver.why_no_gpu(); print(r); sys.exit(not r)'); then
    for name in $part; do became "$name" "not run: $reason"; done
    finish 2 "nothing was run: $reason"
fi

failed=0
ran=0
# limited NAME COMMAND…: within what is left of the time; what was cut off has failed.
limited() {
    local name=$1 left=$((limit - SECONDS)) status
    shift
    if [ "$left" -lt 20 ]; then
        became "$name" "not run: no time left of LIMIT=$limit (PART=$name runs it alone)"
        failed=1
        return
    fi
    stage "$name (at most $left s)"
    timeout --signal=INT --kill-after=20 "$left" "$@" 2>&1 | tee "$out/$name.log"
    status=${PIPESTATUS[0]}
    if [ -f "$out/$name.xml" ]; then
        [ "$status" != 0 ] || tail -n 1 "$out/$name.log" | grep -q ' passed' || status=skipped
        [ "$status" != 2 ] || status=interrupted
    fi
    case $status in
        0) became "$name" passed; ran=1 ;;
        2) became "$name" "not run" ;;
        skipped) became "$name" "not run: every test was skipped" ;;
        124|137) became "$name" "failed: not through after $left s"; failed=1 ;;
        *) became "$name" "failed ($status)"; failed=1 ;;
    esac
}

# script NAME [ARGUMENT…]
script() { limited "$1" "$python" -P "$here/$1.py" "${@:2}"; }
# tests NAME FILE…; the suite's own conftest wants libraries that are not needed here.
tests() {
    limited "$1" "$python" -P -m pytest -m gpu "${@:2}" --rootdir "$repository" -c "$repository/pyproject.toml" \
        --confcutdir "$here" -p no:cacheprovider -q -rfEs --durations=10 --junitxml "$out/$1.xml"
}
soak() {
    local before_driver=
    if [ "${EVENTS:-1}" = 0 ]; then
        echo "live events are not counted: EVENTS=0"
    elif PYTHON=$python bash "$here/events.sh" "$work/events"; then
        before_driver=$work/events
    else
        echo "live events are not counted: events.c cannot be built"
    fi
    LD_LIBRARY_PATH=$before_driver${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} \
        script soak --count "${COUNT:-1000000}" --json "$out/soak.json"
}

for name in $parts; do
    case " $part " in
        *" $name "*) ;;
        *) became "$name" "not run: PART=$part"; continue ;;
    esac
    case $name in
        races) tests races test_lost_values.py ;;
        order) tests order test_handover.py test_rewriting.py test_streams.py test_capture.py ;;
        latency) script latency --json "$out/latency.json" --rounds "${LATENCY_ROUNDS:-400}" ;;
        # Managed memory comes last in test_memory.py.
        rest) tests rest test_readme.py test_state.py test_gradients.py test_pairs.py test_large_copies.py \
            test_batches.py test_shared.py test_memory.py ;;
        hops) script hops --seconds "${SECONDS_OF_HOPS:-30}" ;;
        soak) soak ;;
        *) script "$name" ;;
    esac
done

[ "$failed" = 0 ] || finish 1 "something failed"
[ "$ran" = 1 ] || finish 2 "nothing could be run"
finish 0 "all that ran passed"
