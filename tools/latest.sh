#!/usr/bin/env bash
# The newest of everything, pre-releases too: bash tools/latest.sh
#
# All the tests run on the newest Python for which the newest torch and JAX have wheels, with private parts of these used
# whatever their version is. The line of result names the versions, and what became of them: what fails here is to be
# looked at before others meet it, and what passes lets the bounds in dlbridge/libraries and tools/versions.sh move.
# Older ones of these two than here are not wanted, though pip may find one. numba-cuda and cuda-core are left out, since
# Numba holds NumPy back.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
source "$(dirname "${BASH_SOURCE[0]}")/interpreters.sh"

pythons="3.15 3.14 3.13"
libraries=("torch>=2.15" "jax>=0.12" ml_dtypes pyarrow pillow array-api-strict optree rich matplotlib pydlpack
           apache-tvm-ffi wrapt cloudpickle safetensors)
names=torch,jax,ml_dtypes,pyarrow,PIL,array_api_strict,optree,rich,matplotlib,dlpack,tvm_ffi,wrapt,cloudpickle,safetensors,Cython
tree=$work/tree

# newest_of FOLDER: an environment of $python with the newest that pip finds, also where it was made before.
newest_of() {
    [ -e "$1/bin/pip" ] || "$python" -m venv "$1" || return
    "$1/bin/pip" install -q --pre --upgrade --upgrade-strategy eager --only-binary=:all: numpy "${libraries[@]}" \
        hypothesis pytest pytest-xdist "setuptools>=77" "Cython>=3.3"
}

# With these bounds private parts are used in every version but 99.0, as which tests pass a version off.
lift_bounds() {
    perl -0pi -e 's/(private=Fact\([^)]*, below=")[^"]*/${1}98/ or die' "$tree"/dlbridge/libraries/{torch,jax,pandas}.py
}

bin=
for version in $pythons; do
    find_python "$version" || { echo "Python $version is not to be had"; continue; }
    if newest_of "$work/$version" >"$logs/pip-$version.log" 2>&1; then
        bin=$work/$version/bin
        break
    fi
    echo "Python $version: $(grep -m 1 '^ERROR' "$logs/pip-$version.log")"
done
[ "$bin" ] || { not_run "no Python has wheels of everything"; finish; }
copy_tree "$tree"
must "the bounds are lifted" lift_bounds
must "the package" "$bin/pip" install --no-build-isolation --no-deps --force-reinstall "$tree"
cd "$work"      # where no folder is called dlbridge
cell=$(versions "$bin/python" numpy torch jax)
export DLBRIDGE_TEST_LIBRARIES=$names
check "$cell: tests" "$bin/pytest" -q -n auto "$tree/tests" \
    --deselect "tests/targets/test_private_parts.py::test_the_bound_is_the_first_version_that_was_not_tested"
check "selftest" "$bin/dlbridge" selftest
finish
