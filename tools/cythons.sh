#!/usr/bin/env bash
# The example in Cython, with every Cython that can cimport dlbridge: bash tools/cythons.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

build_and_test() {
    local example=$tree/examples/cython_extension
    "$bin/pip" install -q "Cython==$1.*" || return
    rm -rf "$example"/build "$example"/*.c
    "$bin/pip" install -q --no-build-isolation --force-reinstall --no-deps "$example" || return
    "$bin/pytest" -q "$example"
}

stage "an environment with the test extra"
with_dlbridge test
stage "Cythons"
for version in 3.0 3.1 3.2 3.3; do check "Cython $version" build_and_test "$version"; done
finish
