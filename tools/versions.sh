#!/usr/bin/env bash
# Every version that dlbridge says it runs with: bash tools/versions.sh [PYTHON...]
#
# On each Python the core is tested twice, with the oldest NumPy that has a wheel there and nothing else, and with the
# newest and JAX; what needs a library that is not there is deselected (see tests/support/optional.py). On 3.11 all the
# tests run, with a torch that has DLPack's C exchange API and with the last one that does not; on 3.12 with the newest
# torch and JAX. Of a torch the build without CUDA is taken where pip finds one. What was not to be had is said at the
# end. Takes about an hour on 2 cores, downloads about 8 GB, most of it torch with CUDA, and keeps 16 GB in $TOOLS.
#
# "latest" in place of a Python: all the tests on the newest Python for which the newest torch and JAX have wheels,
# pre-releases too, with internals of these used whatever their version is. What fails there is to be looked at before
# others meet it, and what passes lets the bounds in dlbridge/libraries and here move.
source "$(dirname "$0")/common.sh"
source "$(dirname "$0")/interpreters.sh"

pythons=${*:-3.10 3.11 3.12 3.13 3.14 3.15 3.13t 3.14t 3.15t}
full="3.11:2.13.0:0.10.2 3.11:2.9.1:0.10.2 3.12:2.15.0:0.12.0.1"      # Python, torch and JAX, with all the tests
usual=2.13.0        # the torch of the test extra: nothing may be deselected with it
all=torch,jax,ml_dtypes,pyarrow,PIL,cuda,numba,array_api_strict,optree,rich,matplotlib,dlpack,tvm_ffi,wrapt,cloudpickle,safetensors,Cython
newest_pythons="3.15 3.14 3.13"
# Older ones of the first two are not wanted, though pip may find one. numba-cuda and cuda-core are left out, since Numba
# holds NumPy back.
newest=("torch>=2.15" "jax>=0.12" ml_dtypes pyarrow pillow array-api-strict optree rich matplotlib pydlpack
        apache-tvm-ffi wrapt cloudpickle safetensors)
numpys="2.0.0 2.1.0 2.2.0 2.3.2 2.4.0 2.5.2"    # among which the oldest is looked for; 2.5.2 was the first for 3.15
tree=$work/tree
wheels_only=--only-binary=:all:
abi3=               # the example in C as the first Python built it
absent=()

not_had() {
    absent+=("$1")
    not_run "$1 is not to be had"
}

# run_tests ENVIRONMENT NAME...: on the wheel; the names are what the cell is called after.
run_tests() {
    local bin=$1/bin cell
    "$bin/pip" install -q --no-deps --force-reinstall "$wheel"
    cell=$(versions "$bin/python" "${@:2}")
    check "$cell: tests" "$bin/pytest" -q "$tree/tests"
    check "$cell: selftest" "$bin/dlbridge" selftest
}

# one_file PYTHON ENVIRONMENT: an extension under the limited API is built once, against the wheel of the first Python,
# and serves every later one. Free-threaded Pythons have no limited API.
one_file() {
    local bin=$2/bin
    [[ $1 != *t ]] || return 0
    if [ ! "$abi3" ]; then
        rm -rf "$work/abi3"
        "$bin/pip" wheel -q --no-deps --find-links "$(dirname "$wheel")" -w "$work/abi3" "$tree/examples/c_extension" || return
        abi3=$(echo "$work"/abi3/*.whl)
    fi
    "$bin/pip" install -q --no-deps --force-reinstall "$abi3" && "$bin/python" - <<'PYTHON'
import numpy
import running

assert ".abi3" in running.__file__      # .abi3.so, or of 3.15 .abi3-x86_64-linux-gnu.so, which no older one looks for
assert running.running_sum(numpy.arange(4.0)).tolist() == [0, 1, 3, 6]
assert running.running_sum(bytes(range(4))).tolist() == [0, 1, 3, 6]
PYTHON
}

core() {
    local numpy where=$work/$1
    export DLBRIDGE_TEST_LIBRARIES=
    for numpy in $numpys; do
        if environment "$where/oldest" "$python" $wheels_only "numpy==$numpy" pytest hypothesis >/dev/null; then break; fi
    done
    run_tests "$where/oldest" numpy
    if environment "$where/newest" "$python" $wheels_only "jax>=0.6" numpy pytest hypothesis >/dev/null; then
        DLBRIDGE_TEST_LIBRARIES=jax,ml_dtypes
        run_tests "$where/newest" numpy jax
    else
        not_had "JAX on Python $1"
        environment "$where/newest" "$python" $wheels_only numpy pytest hypothesis
        run_tests "$where/newest" numpy
    fi
    check "Python $1: an extension of another Python" one_file "$1" "$where/newest"
    unset DLBRIDGE_TEST_LIBRARIES
}

everything() {
    local cell full_python torch jax
    for cell in $full; do
        IFS=: read -r full_python torch jax <<<"$cell"
        [ "$full_python" = "$1" ] || continue
        # NumPy 2.5: numba-cuda 0.30.4 warns of what it deprecates, and warnings are errors here.
        extra test | sed "s/^torch==.*/torch==$torch/; s/^jax\$/jax==$jax\nnumpy<2.5/" >"$work/$torch.txt"
        if environment "$work/$1/torch-$torch" "$python" -r "$work/$torch.txt"; then
            [ "$torch" = $usual ] || export DLBRIDGE_TEST_LIBRARIES=$all
            run_tests "$work/$1/torch-$torch" numpy torch jax
            unset DLBRIDGE_TEST_LIBRARIES
        else
            not_had "torch $torch with JAX $jax on Python $1"
        fi
    done
}

# newest_of FOLDER: an environment of $python with the newest that pip finds, also where it was made before.
newest_of() {
    [ -e "$1/bin/pip" ] || "$python" -m venv "$1" || return
    "$1/bin/pip" install -q --pre --upgrade --upgrade-strategy eager --only-binary=:all: numpy "${newest[@]}" \
        hypothesis pytest pytest-xdist "setuptools>=77" "Cython>=3.3"
}

# With these bounds internals are used in every version but 99.0, as which tests pass a version off.
lift_bounds() {
    perl -0pi -e 's/(private=Fact\([^)]*, below=")[^"]*/${1}98/ or die' "$tree"/dlbridge/libraries/{torch,jax,pandas}.py
}

latest() {
    local bin= cell version
    for version in $newest_pythons; do
        find_python "$version" || { echo "Python $version is not to be had"; continue; }
        if newest_of "$work/latest-$version" >"$logs/pip-$version.log" 2>&1; then
            bin=$work/latest-$version/bin
            break
        fi
        echo "Python $version: $(grep -m 1 '^ERROR' "$logs/pip-$version.log")"
    done
    [ "$bin" ] || { not_run "no Python has wheels of everything"; return; }
    tree=$work/latest
    copy_tree "$tree"
    must "the bounds are lifted" lift_bounds
    must "the package" "$bin/pip" install --no-build-isolation --no-deps --force-reinstall "$tree"
    cell=$(versions "$bin/python" numpy torch jax)
    export DLBRIDGE_TEST_LIBRARIES=${all/cuda,numba,}
    check "$cell: tests" "$bin/pytest" -q -n auto "$tree/tests" \
        --deselect "tests/targets/test_internals.py::test_the_bound_is_the_first_version_that_was_not_tested"
    check "selftest" "$bin/dlbridge" selftest
}

cd "$work"      # where no folder is called dlbridge
if [ "${1:-}" = latest ]; then
    latest
    finish
fi
copy_tree "$tree"
for version in $pythons; do
    stage "Python $version"
    find_python "$version" || { not_had "Python $version"; continue; }
    check "Python $version: wheel" wheel_of "$tree" "$work/$version"
    [ "$(ls "$work/$version/wheel" 2>/dev/null)" ] || continue
    core "$version"
    everything "$version"
done

stage "what was not to be had: ${#absent[@]}"
[ "${#absent[@]}" = 0 ] || printf '%s\n' "${absent[@]}"
finish
