#!/usr/bin/env bash
# Coverage-guided fuzzing of everything that reads what others wrote: RUNS=1000000 bash tools/fuzz.sh [TARGET...]
#
# The targets are tests/fuzz/*.py, which say what must hold; RUNS is how often each is executed. The fuzzer is atheris,
# which is libFuzzer: of an ordinary extension it sees nothing, so the package is built by clang with the counters of
# libFuzzer, AddressSanitizer and UndefinedBehaviorSanitizer in it, and the same set-up has to find a seeded bug first.
# Nothing but the package is instrumented, so every edge that is counted is one of its C code.
# Corpora grow in $TOOLS/fuzz/corpus; UPDATE=1 puts what is left of them after a merge into tests/fuzz/corpus.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

RUNS=${RUNS:-30000}
UPDATE=${UPDATE:-0}
tree=$work/tree
corpus=$work/corpus
venv=$work/venv
ALL=(array_structs arrows buffers capsules copies cuda_interfaces exchange interfaces keywords producers)
targets=("${@:-${ALL[@]}}")

# Debian bookworm has clang 14 to 19. The code of 14 and of 19 was tried with the runtime that atheris 3.0.0 brings: it
# has all they call, and the seeded bug is found. The newer one knows more of undefined behaviour.
CLANG=clang-19
# Exempt are calls through pointers of other types, which Python's own headers make, and sums of an address and an
# offset that leave the address space: a description may lie about an address, and nobody reads there.
SANITIZERS="-fsanitize=address,undefined,fuzzer-no-link -fno-sanitize=function,pointer-overflow"
SANITIZERS+=" -fno-sanitize-recover=undefined"

# Once for each state of the tree, whichever target it is for.
build() (
    cd "$tree"
    state=$(xargs -d '\n' sha256sum <"$tree.files" | sha256sum)
    [ "$(cat "$work/built" 2>/dev/null)" != "$state" ] || exit 0
    rm -f "$work/built"
    CC=$CLANG LDSHARED="$CLANG -shared" LDFLAGS=$SANITIZERS \
        CFLAGS="-O1 -g -fno-wrapv -fno-omit-frame-pointer $SANITIZERS" \
        "$venv/bin/python" setup.py build_ext --inplace && echo "$state" >"$work/built"
)

# fuzz TARGET OPTION...: with atheris' runtime in place of clang's. Freed memory is kept for as long as a case lasts.
fuzz() (
    target=$1
    shift
    mkdir -p "$corpus/$target" "$work/found/$target"
    cd "$work/found/$target"
    env PATH="$venv/bin:$PATH" PYTHONPATH="$tree:$tree/tests" FUZZ_TARGET="$target" \
        LD_PRELOAD="$(echo "$venv"/lib/python3.*/site-packages/asan_with_fuzzer.so)" \
        ASAN_OPTIONS=detect_leaks=0:quarantine_size_mb=1:allocator_may_return_null=1 \
        nice -n "${NICE:-10}" "$tree/tests/fuzz/run.py" -max_len=100 -reload=0 "$@"
)

# The executions, which are worth nothing unless edges of C code were seen.
campaign() {
    local target=$1 log=$logs/$1.run
    fuzz "$target" "$corpus/$target" -runs="$RUNS" >"$log" 2>&1 || { tail -n 60 "$log"; return 1; }
    figures "$target" "$log" | tee "$work/$target.figures"
    result "$(cat "$work/$target.figures")"
    grep -qE ' [0-9]{3,} edges' "$work/$target.figures" || { echo "no edges of C code were seen"; return 1; }
}

figures() {
    awk -v target="$1" '
        /inline 8-bit counters/ { of = $5; sub(/\(/, "", of) }
        /\tDONE / { for (at = 1; at < NF; at++) value[$at] = $(at + 1) }
        /^Done / { runs = $2; seconds = $5 }
        END { printf "%s: %d executions in %d s, %d edges of %d, %d features, corpus of %s\n",
              target, runs, seconds, value["cov:"], of, value["ft:"], value["corp:"] }' "$2"
}

# Once more with all memory of Python where the sanitizer watches it, which would halve the speed.
replay() {
    PYTHONMALLOC=malloc fuzz "$1" "$corpus/$1" -runs=0
}

merge() {
    rm -rf "$work/merged/$1"
    mkdir -p "$work/merged/$1"
    fuzz "$1" -merge=1 "$work/merged/$1" "$corpus/$1"
}

corpora() (
    cd "$repository/tests"
    "$venv/bin/python" -m fuzz.corpus "$@"
)

stage "clang and atheris"
need "$CLANG" "$CLANG"
need /usr/lib/llvm-19/lib/clang/19/lib/linux/libclang_rt.asan_static-x86_64.a libclang-rt-19-dev
environment "$venv" python3 atheris==3.0.0 "setuptools>=77" "Cython>=3.3,<4" "numpy>=2" ml_dtypes
seeded_tree "$tree"
check "the instrumented build" build
corpora unpack "$corpus"

stage "the seeded bug"
check_finds "four bytes that lead to a bug" 'AddressSanitizer: heap-buffer-overflow .*dlbridge_read_beyond' \
    fuzz seeded -runs=20000000

stage "$RUNS executions for each target"
for target in "${targets[@]}"; do
    check "$target" campaign "$target"
    check "$target again, in memory that is watched" replay "$target"
    if [ "$UPDATE" = 1 ]; then check "$target merged" merge "$target"; fi
done
if [ "$UPDATE" = 1 ]; then corpora pack "$work/merged"; fi
finish
