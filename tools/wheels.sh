#!/usr/bin/env bash
# The files that are published, without containers: bash tools/wheels.sh [--once] [NAME...]
#
# A name is one of cibuildwheel's, such as cp311-manylinux_x86_64; --list prints all of them, and without a name all are
# made. First comes the sdist, which every wheel is built from. zig's clang compiles for the oldest C library that a
# platform has, also for another architecture. Two builds, in folders of their own, must give the same wheel to the bit;
# --once leaves the second out. auditwheel must find nothing in a wheel that a system of its platform lacks, and in a
# fresh environment with NumPy alone it must pass its self-test and `pytest -m quick`: aarch64 under qemu-user, musl with
# its own loader. The wheels are in $TOOLS/wheels/dist.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
source "$(dirname "${BASH_SOURCE[0]}")/interpreters.sh"

declare -A targets=(
    [manylinux_x86_64]=x86_64-linux-gnu.2.28
    [manylinux_aarch64]=aarch64-linux-gnu.2.28
    [musllinux_x86_64]=x86_64-linux-musl
)
# For platforms that are not this machine's: the interpreter's name, what it is for distutils, and what pip takes for it.
declare -A interpreter=([manylinux_aarch64]=-aarch64 [musllinux_x86_64]=-musl)
declare -A host_platform=([manylinux_aarch64]=linux-aarch64 [musllinux_x86_64]=linux-x86_64)
declare -A pip_platforms=(
    [manylinux_aarch64]="manylinux_2_28_aarch64 manylinux_2_27_aarch64 manylinux_2_17_aarch64 manylinux2014_aarch64"
    [musllinux_x86_64]="musllinux_1_2_x86_64 musllinux_1_1_x86_64"
)
# musl's loader is libc.so itself, and finds it without a file of that name.
declare -A audit_options=([musllinux_x86_64]="--exclude libc.so")
# It starts threads without the memory for their stacks: qemu-user ends then, and musl's stacks are small.
without_threads="--deselect=tests/test_copies.py::test_the_threads_that_are_not_there_are_done_without"
declare -A deselected=([manylinux_aarch64]=$without_threads [musllinux_x86_64]=$without_threads)

names() {
    local version
    for version in 310 311 312 313 314 314t 315 315t; do echo "cp$version-manylinux_x86_64"; done
    echo cp313-manylinux_aarch64
    echo cp313-musllinux_x86_64
}

sdist() {
    copy_tree "$work/tree" || return
    rm -rf "$work/tree/dlbridge/seeded.pyx" "$work/tree/dist"
    python -m build --sdist "$work/tree" && twine check --strict "$work"/tree/dist/*.tar.gz
}

# compiler: a script that compiles for $target. One for the tests has the name that the interpreter knows.
compiler() {
    mkdir -p "$(dirname "$1")"
    printf '#!/bin/sh\nexec "%s" -m ziglang cc -target %s "$@"\n' "$bin/python" "$target" >"$1"
    chmod +x "$1"
}

# ask NAME: a path or a variable of the interpreter that the wheel is for.
ask() { "$python" -c "import sysconfig; print(sysconfig.$1)"; }

# settings_of_the_build: what setuptools reads. For another platform it is told what that platform's Python was built with.
settings_of_the_build() {
    local data flags="-DNDEBUG -fwrapv"
    settings=(CC="$folder/bin/cc" LDSHARED="$folder/bin/cc -shared")
    if [ "$foreign" ]; then
        data=$(ask '_get_sysconfigdata_name()')
        mkdir -p "$folder/sysconfig"
        cp "$(ask 'get_path("stdlib")')/$data.py" "$folder/sysconfig/"
        settings+=(_PYTHON_HOST_PLATFORM="${host_platform[$platform]}" _PYTHON_SYSCONFIGDATA_NAME="$data"
            PYTHONPATH="$folder/sysconfig")
        flags+=" -I$(ask 'get_path("include")')"
    fi
    settings+=(CFLAGS="$flags")
}

# build_in FOLDER
build_in() {
    rm -rf "$1"
    mkdir -p "$1"
    tar -xf "$(echo "$work"/tree/dist/*.tar.gz)" -C "$1" --strip-components=1 || return
    (cd "$1" && env "${settings[@]}" "$folder/builder/bin/pip" wheel -v --no-build-isolation --no-deps -w dist .)
}

same() {
    sha256sum "$1"/dist/*.whl "$2"/dist/*.whl && cmp "$1"/dist/*.whl "$2"/dist/*.whl
}

audit() {
    rm -rf "$folder/repaired"
    auditwheel repair --plat auto ${audit_options[$platform]:-} --wheel-dir "$folder/repaired" "$folder"/one/dist/*.whl || return
    wheel=$(echo "$folder"/repaired/*-"${platform%%_*}"*.whl)
    # No library of another package was copied into it.
    ! unzip -l "$wheel" | grep '\.libs/' && twine check --strict "$wheel"
}

# install REQUIREMENT...: into a fresh environment; pip does not run on another platform, but it installs for it.
install() {
    if [ "$foreign" ]; then
        local site options
        site=$(ask 'get_path("purelib")')
        mapfile -t options < <(printf -- '--platform\n%s\n' ${pip_platforms[$platform]})
        rm -rf "$site"
        python3 -m pip install -q --target "$site" --only-binary=:all: --python-version "$version" "${options[@]}" "$@"
        compiler "$folder/bin/$(ask 'get_config_var("CC")')"
    else
        rm -rf "$folder/user"
        "$python" -m venv "$folder/user" && "$folder/user/bin/pip" install -q "$@" && python=$folder/user/bin/python
    fi
}

self_test() { "$python" -m dlbridge selftest; }
# Only the files with the mark are imported: under qemu-user a process is forked the faster, the smaller it is.
quick_tests() {
    PATH=$folder/bin:$PATH DLBRIDGE_TEST_LIBRARIES= "$python" -m pytest -q -rs -m quick -p no:cacheprovider \
        --rootdir "$work/tree" \
        ${deselected[$platform]:-} $(grep -l "mark.quick" "$work"/tree/tests/test_*.py)
}

wheel() {
    name=$1 version=$(sed -E 's/cp3([0-9]+t?)-.*/3.\1/' <<<"$1") platform=${1#*-}
    folder=$work/$name target=${targets[$platform]} foreign=${interpreter[$platform]:-}
    [ "$platform" != "manylinux_$(uname -m)" ] || foreign=
    stage "$name"
    find_python "$version" || { not_run "Python $version is not to be had"; return; }
    environment "$folder/builder" "$python" --only-binary=:all: "setuptools>=77" "Cython>=3.3,<4" "numpy>=2" ||
        { not_run "NumPy is not to be had for Python $version"; return; }
    [ ! "$foreign" ] || find_python "$version$foreign" || { not_run "Python $version$foreign is not to be had"; return; }
    compiler "$folder/bin/cc"
    settings_of_the_build
    must "$name: a build" build_in "$folder/one"
    if [ ! "$once" ]; then
        check "$name: another build, in another folder" build_in "$folder/another_folder"
        check "$name: both are the same to the bit" same "$folder/one" "$folder/another_folder"
    fi
    must "$name: auditwheel" audit
    cp "$wheel" "$work/dist/"
    must "$name: an installation" install "$wheel" pytest hypothesis
    check "$name: self-test" self_test
    check "$name: $(versions "$python" numpy): tests" quick_tests
}

if [ "${1:-}" = --list ]; then
    names
    exit
fi
once=
if [ "${1:-}" = --once ]; then once=yes; shift; fi
environment_with wheels
PATH=$bin:$PATH
export ZIG_GLOBAL_CACHE_DIR=$work/zig_cache
# The moment of the last commit stands for all times in the archives.
SOURCE_DATE_EPOCH=$(git -C "$repository" log -1 --format=%ct)
export SOURCE_DATE_EPOCH
mkdir -p "$work/dist"
must "the sdist" sdist
cd "$work"      # where no folder is called dlbridge
for each in ${*:-$(names)}; do wheel "$each"; done
finish
