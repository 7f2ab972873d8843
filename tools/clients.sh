#!/usr/bin/env bash
# Other projects' tests, with dlbridge as their converter: bash tools/clients.sh
#
# scikit-learn's array API tests, the tests of Gymnasium's array wrappers, and CPython's own test_buffer, each without
# dlbridge and with it: what passes without must pass with, and where dlbridge raises and the client goes its own way,
# that is a failure too (see tests/clients/client.py, which names what differs by policy). GYMNASIUM is a checkout of
# Gymnasium's repository, of the version below: what it publishes has no tests of the wrappers. Needs a python3 with the
# test package. Downloads about 400 MB, and keeps 2 GB in $TOOLS.
source "$(dirname "$0")/common.sh"

gymnasium=1.3.0
requirements=(
    "scikit-learn==1.9.1" "array-api-strict==2.6.1" "gymnasium==$gymnasium" "array-api-compat==1.16.0"
    "array-api-extra==0.11.5" "torch==2.13.0" "jax==0.10.2" "numpy==2.4.6" "pytest==9.2.0"
)
tree=$work/tree
bin=$work/environment/bin
python=$bin/python
clients=$repository/tests/clients

# outcomes NAME MODULE TEST...: of a client's tests, without dlbridge and with the module that puts it in.
outcomes() {
    local name=$1 module=$2 run
    shift 2
    for run in without with; do
        stage "$name, $run dlbridge"
        local plugins=(-p client)
        if [ $run = with ]; then plugins+=(-p "$module"); fi
        rm -f "$work/$name.$run"
        # What fails without dlbridge is none of its business.
        PYTHONPATH=$clients CLIENT_OUTCOMES=$work/$name.$run "$python" -m pytest -q --tb=short -p no:cacheprovider \
            "${plugins[@]}" "$@" >"$logs/$name.$run.log" 2>&1 || tail -n 2 "$logs/$name.$run.log"
    done
    check "$name: the same passes" "$python" "$clients/client.py" "$work/$name.without" "$work/$name.with"
}

stage "dlbridge"
environment "$work/environment" python3 "${requirements[@]}" || fail "the clients could not be installed"
copy_tree "$tree"
rm -rf "$work/wheel"
check "wheel" python3 -m pip wheel -q --no-deps --wheel-dir "$work/wheel" "$tree"
"$bin/pip" install -q --no-deps --force-reinstall "$work"/wheel/*.whl
cd "$work"      # where no folder is called dlbridge

"$python" -c "import _testbuffer, test.test_buffer" || fail "python3 has no test package"
outcomes test_buffer with_test_buffer --pyargs test.test_buffer

learn=$("$python" -c "import os, sklearn; print(os.path.dirname(sklearn.__file__))")
mapfile -t tests < <(grep -rlE "_array_api_for_tests|yield_namespace|move_to" "$learn" --include='test_*.py' | sort)
export SCIPY_ARRAY_API=1
outcomes scikit-learn with_scikit_learn -c /dev/null --rootdir "$learn" \
    -k "array_api or namespace or move_to or convert" "${tests[@]}"
unset SCIPY_ARRAY_API

if [ "${GYMNASIUM:-}" ]; then
    cd "$GYMNASIUM"
    outcomes gymnasium with_gymnasium -c /dev/null --rootdir . \
        tests/wrappers/test_{array_conversion,jax_to_numpy,jax_to_torch,numpy_to_torch}.py \
        tests/wrappers/vector/test_array_conversion.py
else
    stage "Gymnasium"
    result "gymnasium: not run, GYMNASIUM is not set"
fi
finish
