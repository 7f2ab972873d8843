#!/usr/bin/env bash
# The sdist, and wheels as they are published, without containers: bash tools/wheels.sh [--once] [NAME...]
#
# A name is one of cibuildwheel's, such as cp311-manylinux_x86_64; --list prints all of them, and without a name all are
# made. First comes the sdist, which every wheel is built from. zig's clang compiles for the oldest C library that is
# taken, also for another architecture. Two builds, in folders of their own, must give the same wheel to the bit; --once
# leaves the second out. auditwheel must find nothing in a wheel that a system of its platform lacks, and in a fresh
# environment with NumPy alone it must pass its self-test and `pytest -m quick`: aarch64 under qemu-user, musl with its
# own loader. The wheels are in $TOOLS/wheels/dist. What the machine or the indexes do not have is said to be not run.
if [ "${1:-}" = --list ]; then
    printf 'cp%s-manylinux_x86_64\n' 310 311 312 313 314 314t 315 315t
    printf 'cp313-%s\n' manylinux_aarch64 musllinux_x86_64
    exit
fi
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
source "$(dirname "${BASH_SOURCE[0]}")/interpreters.sh"

declare -A targets=(
    [manylinux_x86_64]=x86_64-linux-gnu.2.28
    [manylinux_aarch64]=aarch64-linux-gnu.2.28
    [musllinux_x86_64]=x86_64-linux-musl
)
# For a platform that is not this machine's: the end of the interpreter's name, and the platform as setuptools knows it.
declare -A interpreter=([manylinux_aarch64]=-aarch64 [musllinux_x86_64]=-musl)
declare -A host_platform=([manylinux_aarch64]=linux-aarch64 [musllinux_x86_64]=linux-x86_64)
# musl's loader is libc.so itself, and finds it without a file of that name.
declare -A audit_options=([musllinux_x86_64]="--exclude libc.so")
# The test has threads begin without the memory for their stacks, which ends qemu-user.
declare -A deselected=(
    [manylinux_aarch64]="--deselect=tests/copies/test_copies.py::test_the_threads_that_are_not_there_are_done_without")

sdist() {
    copy_tree "$work/tree" || return
    rm -rf "$work/tree/dist"
    python -m build --sdist "$work/tree" && twine check --strict "$work"/tree/dist/*.tar.gz
}

# compiler FILE: a script that compiles for $target.
compiler() {
    mkdir -p "$(dirname "$1")"
    printf '#!/bin/sh\nexec "%s" -m ziglang cc -target %s "$@"\n' "$bin/python" "$target" >"$1"
    chmod +x "$1"
}

# ask CALL: what sysconfig says of the interpreter that the wheel is for.
ask() { "$python" -c "import sysconfig; print(sysconfig.$1)"; }

# pip_for_the_platform COMMAND ARGUMENT...: pip, for the platform and the Python of the wheel.
pip_for_the_platform() {
    local command=$1 options=(--only-binary=:all: --implementation cp)
    shift
    options+=(--python-version "${version%t}" --abi "${name%%-*}")
    case $platform in
        manylinux_*) options+=(--platform "manylinux_2_28_${platform#*_}" --platform "manylinux_2_27_${platform#*_}"
            --platform "manylinux_2_17_${platform#*_}" --platform "manylinux2014_${platform#*_}") ;;
        musllinux_*) options+=(--platform "musllinux_1_2_${platform#*_}") ;;
    esac
    "$bin/pip" "$command" -q "${options[@]}" "$@"
}

# settings_of_the_build: what setuptools reads; for another platform, what that platform's Python was built with.
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
    # shellcheck disable=SC2086
    auditwheel repair --plat auto ${audit_options[$platform]:-} --wheel-dir "$folder/repaired" \
        "$folder"/one/dist/*.whl || return
    wheel=$(echo "$folder"/repaired/*-"${platform%%_*}"*.whl)
    python -m zipfile -l "$wheel" >"$folder/files" && twine check --strict "$wheel" || return
    # No library of another package was copied into it.
    ! grep '\.libs/' "$folder/files"
}

# install REQUIREMENT...: into a fresh environment; pip does not run on another platform, but it installs for it.
install() {
    local site
    if [ ! "$foreign" ]; then
        rm -rf "$folder/user"
        "$python" -m venv "$folder/user" && python=$folder/user/bin/python && "$python" -m pip install -q "$@"
        return
    fi
    site=$(ask 'get_path("purelib")')
    rm -rf "$site"
    # The tests compile by the name that the interpreter knows.
    compiler "$folder/bin/$(ask 'get_config_var("CC")')"
    pip_for_the_platform install --target "$site" "$@"
}

self_test() { "$python" -m dlbridge selftest; }

# Only the files with the mark are imported: under qemu-user a process is forked the faster, the smaller it is.
quick_tests() {
    # shellcheck disable=SC2046,SC2086
    PATH=$folder/bin:$PATH DLBRIDGE_TEST_LIBRARIES= "$python" -m pytest -q -rs -m quick -p no:cacheprovider \
        --rootdir "$work/tree" ${deselected[$platform]:-} $(grep -l "mark.quick" "$work"/tree/tests/*/test_*.py)
}

wheel() {
    name=$1 version=$(sed -E 's/cp3([0-9]+t?)-.*/3.\1/' <<<"$1") platform=${1#*-}
    [ "${targets[$platform]:-}" ] || fail "there is no wheel $name (--list prints them)"
    folder=$work/$name target=${targets[$platform]} foreign=${interpreter[$platform]:-}
    [ "$platform" != "manylinux_$(uname -m)" ] || foreign=
    stage "$name"
    [ "${platform#*_}" = "$(uname -m)" ] || [ "$foreign" = -aarch64 ] ||
        { not_run "$name is not made on $(uname -m)"; return; }
    find_python "$version" || { not_run "Python $version is not to be had"; return; }
    pip_for_the_platform download --no-deps -d "$folder/numpy" "numpy>=2" >"$logs/pip.log" 2>&1 ||
        { not_run "NumPy is not to be had for $name"; return; }
    must "$name: an environment to build in" environment "$folder/builder" "$python" \
        --only-binary=:all: "setuptools>=77" "Cython>=3.3,<4" "numpy>=2"
    [ ! "$foreign" ] || find_python "$version$foreign" ||
        { not_run "Python $version$foreign is not to be had"; return; }
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
for each in ${*:-$(bash "$repository/tools/wheels.sh" --list)}; do wheel "$each"; done
finish
