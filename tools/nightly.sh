#!/usr/bin/env bash
# Everything that is too long for CI: bash tools/nightly.sh [STAGE...]
#
# Without a name, every stage that has not passed on this code yet, so a run that was stopped goes on where it ended; and
# "latest", which depends on more than the code.
# With names, these; --list prints them. Each stage leaves a line in docs/reliability.tsv: its name, the last commit
# that changed more than docs (with a "+" where the tree has more changes), the date, the seconds and the result.
# tools/pages makes the table of docs/reliability.md from these lines. Run .ci/run first.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

LIMIT=2400      # seconds that a stage may take
RECORD=docs/reliability.tsv
LOGS=${TOOLS:-build/tools}/nightly
export RUNS=${RUNS:-1200000}        # executions of each target of the fuzzer

stages() {
    cat <<'STAGES'
full tools/with_libraries.sh full
faults tools/with_libraries.sh faults
asan tools/asan.sh
threads tools/with_libraries.sh threads
freethreaded tools/freethreaded.sh
tsan tools/tsan.sh
valgrind tools/valgrind.sh
debug_python tools/debug_python.sh
matrix tools/with_libraries.sh matrix
release tools/release.sh
cythons tools/with_libraries.sh cythons
heavy tools/heavy.sh
clients tools/clients.sh
walks tools/with_libraries.sh walks
processors tools/with_libraries.sh processors
latest tools/versions.sh latest
STAGES
    local version target
    for version in 3.10 3.11 3.12 3.13 3.14 3.15 3.13t 3.14t 3.15t; do echo "versions-$version tools/versions.sh $version"; done
    for target in $(bash tools/wheels.sh --list); do echo "wheels-$target tools/wheels.sh $target"; done
    for target in $(bash tools/cross.sh --list); do echo "cross-$target tools/cross.sh $target"; done
    for target in tests/fuzz/corpus/*.txt; do
        target=$(basename "$target" .txt)
        echo "fuzz-$target tools/fuzz.sh $target"
    done
}

code() {
    local commit
    commit=$(git log -1 --format=%h -- . ':!docs')
    git diff --quiet HEAD -- . ':!docs' && [ -z "$(git ls-files --others --exclude-standard -- . ':!docs')" ] || commit+=+
    echo "$commit"
}

# run_stage NAME COMMAND...
run_stage() {
    local name=$1 log=$LOGS/$1.log began=$SECONDS code=0 commit result
    shift
    commit=$(code)
    timeout --kill-after=60 $LIMIT bash "$@" >"$log" 2>&1 </dev/null || code=$?
    result=$(sed -n 's/^result: //p' "$log" | tail -n 1)
    [ "$result" ] || result=$(grep -aE '^[0-9]+ passed, [0-9]+ failed$' "$log" | tail -n 1 || true)
    case $code in
        0) [[ $result == "not run: "* && $result != *": tests: "* ]] || result="passed: ${result:-all}" ;;
        124 | 137) result="stopped after $LIMIT s" ;;
        *) result="failed: ${result:-$(tail -n 1 "$log")}" ;;
    esac
    printf '%s\t%s\t%s\t%d\t%s\n' "$name" "$commit" "$(date +%F)" "$((SECONDS - began))" "$result" | tee -a "$RECORD"
    python3 tools/pages reliability
    return $code
}

# Whether the last run of a stage passed on this very code; of a tree with changes nothing is known.
passed() {
    local commit
    commit=$(code)
    [[ $commit != *+ ]] && awk -F'\t' -v stage="$1" -v commit="$commit" '
        $1 == stage {passed = $2 == commit && $5 ~ /^passed: /} END {exit !passed}' "$RECORD"
}

if [ "${1:-}" = --list ]; then
    stages
    exit
fi
mkdir -p "$LOGS"
for wanted in "$@"; do
    grep -qxF -- "$wanted" < <(stages | cut -d' ' -f1) || { echo "there is no stage $wanted (--list prints them)" >&2; exit 2; }
done
failed=0
while read -r name command; do
    if [ $# = 0 ] && [ "$name" != latest ] && passed "$name"; then continue; fi
    if [ $# != 0 ] && [[ " $* " != *" $name "* ]]; then continue; fi
    # shellcheck disable=SC2086
    run_stage "$name" $command || failed=1
done < <(stages)
exit $failed
