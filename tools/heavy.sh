#!/usr/bin/env bash
# Libraries that want environments of their own: bash tools/heavy.sh
#
# dpnp, whose memory is a SYCL device's even on a machine without a GPU; MindSpore, which takes and gives capsules by
# functions alone; ONNX Runtime as it was before it had bools of its own. Downloads about 3 GB, and keeps 7 GB in $TOOLS.
source "$(dirname "$0")/common.sh"

tree=$work/tree
export DLBRIDGE_TEST_LIBRARIES=ml_dtypes

# heavy LIBRARY NAME...: an environment with the library, what its tests need, and dlbridge.
heavy() {
    environment "$work/$1" python3 "$@" numpy ml_dtypes pytest || return
    "$work/$1/bin/pip" install -q --no-deps --force-reinstall "$work"/wheel/*.whl
}

run_tests() (
    cd "$tree/tests"
    PYTHONPATH=$tree/tests "$work/$1/bin/python" -P -m pytest -q -c /dev/null \
        --rootdir "$tree/tests" --noconftest --import-mode=importlib -p support.optional "${@:2}"
)

stage "dlbridge"
copy_tree "$tree"
rm -rf "$work/wheel"
check "wheel" python3 -m pip wheel -q --no-deps --wheel-dir "$work/wheel" "$tree"

stage "dpnp"
check "environment of dpnp" heavy dpnp
OCL_ICD_FILENAMES=$work/dpnp/lib/libintelocl.so check "dpnp" run_tests dpnp heavy/test_dpnp.py

stage "MindSpore"
check "environment of MindSpore" heavy mindspore setuptools
# MindSpore imports PIL.
DLBRIDGE_TEST_LIBRARIES+=,PIL DLBRIDGE_TEST_ROWS=heavy.mindspore_rows check "MindSpore" \
    run_tests mindspore libraries/test_libraries.py

stage "ONNX Runtime 1.31"
check "environment of ONNX Runtime" heavy onnxruntime==1.31.1
DLBRIDGE_TEST_ROWS=heavy.onnxruntime_rows check "ONNX Runtime" run_tests onnxruntime==1.31.1 libraries/test_libraries.py
finish
