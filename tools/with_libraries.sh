#!/usr/bin/env bash
# What takes the libraries and long: bash tools/with_libraries.sh NAME [ARGUMENT...]
#
#   full                    the whole products of the tests, of which CI runs a part
#   threads [SECONDS]       eight threads with the GIL, over all the libraries of the test extra
#   walks [FIRST [COUNT]]   random walks through the libraries (tests/support/walks.py), by other seeds than the tests' own
#   faults [NAME...]        whether the tests find faults that are seeded into the package (faults.py has them)
#   cythons                 the example in Cython, with every Cython that can cimport dlbridge
#   processors              what compares numbers of two libraries, as on other processors
#   matrix                  every pair of libraries, in a process of its own: none may have got worse than docs/matrix.md
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

name=${1:-}
shift || true
work=$work/$name            # of its own: these may run side by side, with other environments
logs=$work/logs
mkdir -p "$logs"

# As on other processors: the kernels that torch, MKL, XLA and NumPy choose there. What this one does not have is left out.
processors() {
    local line flags features
    features=$("$bin/python" -c "from numpy._core._multiarray_umath import __cpu_dispatch__ as all; print(*all)")
    flags=$(grep -m 1 -w flags /proc/cpuinfo || true)
    while read -r line; do
        case $line in
            *=avx512) [[ $flags == *avx512dq* ]] || continue ;;
            *AVX2* | *=avx2) [[ $flags == *avx2* ]] || continue ;;
        esac
        check "$line" env "$line" "$bin/pytest" -q --full -n auto "$tree"/tests/trees/test_gradients_in_{jax,torch}.py
    done <<ROWS
ATEN_CPU_CAPABILITY=default
ATEN_CPU_CAPABILITY=avx2
ATEN_CPU_CAPABILITY=avx512
MKL_CBWR=COMPATIBLE
MKL_CBWR=AVX2
XLA_FLAGS=--xla_cpu_max_isa=AVX2
XLA_FLAGS=--xla_cpu_max_isa=SSE4_2
NPY_DISABLE_CPU_FEATURES=$features
ROWS
}

# build_and_test CYTHON: the example, by a version of Cython.
build_and_test() {
    local example=$tree/examples/cython_extension
    "$bin/pip" install -q "Cython==$1.*" || return
    rm -rf "$example"/build "$example"/*.c
    "$bin/pip" install -q --no-build-isolation --force-reinstall --no-deps "$example" || return
    "$bin/pytest" -q "$example"
}

stage "an environment with the libraries"
case $name in
    full | threads | walks | cythons | processors) with_dlbridge test ;;
    faults)
        environment_with test
        tree=$work/tree
        rm -rf "$tree"          # a run that was stopped has left a fault there
        copy_tree "$tree"
        must "the package" env -C "$tree" CFLAGS=-O0 "$bin/python" setup.py -q build_ext --inplace ;;
    matrix) with_dlbridge test all ;;
    *) fail "there is no $name (full, threads, walks, faults, cythons, processors or matrix)" ;;
esac
stage "$name"
case $name in
    full) check "pytest --full" "$bin/pytest" -q --full -n auto "$tree/tests" ;;
    threads)
        check threads env PYTHONPATH="$tree/tests" "$bin/python" -m support.stress --seconds "${1:-60}" --threads 8 ;;
    walks)
        check walks env PYTHONFAULTHANDLER=1 PYTHONPATH="$tree/tests" "$bin/python" "$tree/tests/support/walks.py" \
            "${1:-1000}" "${2:-3000}" ;;
    faults)
        check faults "$bin/python" "$tree/tools/faults.py" "$tree" "$@"
        result "$(grep -c ': found by' "$logs/faults.log" || true) found" ;;
    cythons) for version in 3.0 3.1 3.2 3.3; do check "Cython $version" build_and_test "$version"; done ;;
    processors) processors ;;
    matrix)
        command -v clang >/dev/null || export DEV=PYTHON    # tinygrad's one device on the host that compiles nothing
        check matrix "$bin/python" "$tree/tools/pages" matrix --check ;;
esac
[[ $name == full || $name == faults || $name == cythons || $name == processors ]] || result "$(tail -n 1 "$logs/$name.log" | xargs)"
finish
