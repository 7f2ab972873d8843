#!/usr/bin/env bash
# Libraries that want environments of their own: bash tools/heavy.sh
#
# dpnp, whose memory is a SYCL device's even on a machine without a GPU; MindSpore, which takes and gives capsules by
# functions alone; ONNX Runtime as it was before it had bools of its own; torch, CuPy and Numba for CUDA, on the fake
# driver of the tests. Downloads about 4 GB, and keeps 10 GB in $TOOLS.
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

# What they are linked with beside CUDA's runtime is not downloaded, but made of the names that they look for. "===":
# pip may find a torch without CUDA, too.
for_cuda() {
    local bin=$work/cuda/bin
    environment "$work/cuda" python3 numpy==2.4.6 ml_dtypes pytest numba==0.68.1 numba-cuda==0.30.4 cuda-core==1.2.2 \
        cuda-bindings==13.5.0 filelock fsspec jinja2 networkx sympy typing-extensions Cython==3.2.4 "setuptools>=77" ||
        return
    "$bin/pip" install -q --no-deps --force-reinstall "$work"/wheel/*.whl || return
    if [ -e "$work/cuda/fake" ]; then return; fi
    "$bin/pip" install -q --no-deps torch===2.13.0 cupy-cuda13x==14.2.0 \
        nvidia-cuda-runtime==13.0.96 nvidia-cuda-crt==13.0.88 nvidia-cuda-profiler-api==13.0.85 || return
    CUPY_INSTALL_USE_STUB=1 "$bin/pip" download -q --no-deps --no-binary :all: --no-build-isolation -d "$work/cuda" \
        cupy==14.2.0 || return
    tar -C "$work/cuda" -xf "$work/cuda/cupy-14.2.0.tar.gz"
    "$bin/python" "$tree/tests/heavy/cuda/build.py" "$work/cuda/fake" "$work/cuda/cupy-14.2.0"
}
test_cuda() (
    cd "$tree/tests"
    export LD_LIBRARY_PATH=$work/cuda/fake FAKE_DRIVER=libcuda.so.1 PYTHONPATH=$tree/tests
    "$work/cuda/bin/python" -P -m pytest -q -c /dev/null --rootdir "$tree/tests" --noconftest --import-mode=importlib \
        heavy/test_cuda.py
)
stage "torch, CuPy and Numba for CUDA"
check "environment of CUDA's libraries" for_cuda
check "CUDA's libraries" test_cuda
finish
