#!/usr/bin/env bash
# Compiled and linked for systems that it is not run on: bash tools/cross.sh [NAME...]
#
# Names are cibuildwheel's; --list prints them. zig's clang takes every module's C, with all warnings as errors, and links
# it with a stand-in for Python that has the symbols of CPython and no others. The headers are those of CPython's source,
# of NumPy's wheel for that system, and of zig.
names=(cp313-win_amd64 cp313-macosx_arm64)
if [ "${1:-}" = --list ]; then
    printf '%s\n' "${names[@]}"
    exit
fi
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
source "$(dirname "${BASH_SOURCE[0]}")/interpreters.sh"

declare -A targets=([win_amd64]=x86_64-windows-gnu [macosx_arm64]=aarch64-macos)
declare -A wheels_of_numpy=([win_amd64]=win_amd64 [macosx_arm64]=macosx_14_0_arm64)
declare -A imported_prefixes=([win_amd64]="\(__imp_\)\?" [macosx_arm64]=_)

zig() { "$bin/python" -m ziglang cc -target "${targets[$system]}" "$@"; }

# The C of every module, which setup.py makes before it does anything else.
sources() {
    copy_tree "$work/tree" && (cd "$work/tree" && "$bin/python" setup.py --name)
}

headers() {
    rm -rf "$folder"
    mkdir -p "$folder/include"
    source_of "python$version" "$work/cpython$version" || return
    "$bin/pip" download -q --no-deps --only-binary=:all: --platform "${wheels_of_numpy[$system]}" \
        --python-version "$version" -d "$folder" "numpy>=2" || return
    (cd "$folder" && "$bin/python" -m zipfile -e numpy-*.whl wheel) || return
    case $system in
        win*) cp "$work/cpython$version/PC/pyconfig.h.in" "$folder/include/pyconfig.h" ;;
        # What this machine's says holds for macOS, as far as headers ask.
        *) cp "$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')/pyconfig.h" "$folder/include/" ;;
    esac
}

# What a line of result calls the cell that it is about.
compiled_with() {
    local python numpy
    python=$(sed -n 's/^#define PY_VERSION .*"\(.*\)"/\1/p' "$work/cpython$version/Include/patchlevel.h")
    numpy=$(basename "$folder"/numpy-*.whl | cut -d- -f2)
    echo "Python $python, numpy $numpy"
}

compile_all() {
    local file
    cd "$work/tree"
    for file in $(find dlbridge -name '*.c' | sort); do
        zig -Wall -Wextra -Werror -O1 -fPIC -DNDEBUG -DNPY_NO_DEPRECATED_API=NPY_2_0_API_VERSION \
            -DNPY_TARGET_VERSION=NPY_2_0_API_VERSION -I"$folder/include" -I"$work/cpython$version/Include" \
            -I"$folder/wheel/numpy/_core/include" -I. -c "$file" -o "$folder/$(tr / . <<<"${file%.c}").o" || return
    done
}

# What the modules take of Python must be in CPython; a library that has these names and nothing else stands in for it.
stand_in() {
    local libraries
    libraries=$("$python" -c 'import sysconfig; print(sysconfig.get_config_var("LIBDIR"))')
    llvm-nm -u "$folder"/*.o | awk '{print $NF}' | sed "s/^${imported_prefixes[$system]}//" |
        grep '^_\?Py' | sort -u >"$folder/taken"
    nm -D --defined-only "$python" "$libraries/libpython$version.so" 2>/dev/null |
        awk '{print $NF}' | sort -u >"$folder/given"
    comm -23 "$folder/taken" "$folder/given" >"$folder/absent"
    [ -s "$folder/taken" ] && [ ! -s "$folder/absent" ] || { cat "$folder/absent"; return 1; }
    sed 's/.*/EXPORTED void &(void) {}/' "$folder/taken" >"$folder/python.c"
    case $system in
        win*) zig '-DEXPORTED=__declspec(dllexport)' -shared "$folder/python.c" -o "$folder/python.dll" ;;
        *) zig -DEXPORTED= -shared "$folder/python.c" -o "$folder/python.lib" ;;
    esac
}

link_all() {
    local object
    for object in "$folder"/*.o; do zig -shared "$object" "$folder/python.lib" -o "${object%.o}.linked" || return; done
}

# cross NAME
cross() {
    local name=$1 version folder=$work/$1
    system=${name#cp3??-}
    [ -n "${targets[$system]:-}" ] || fail "$name is none of ${names[*]}"
    version=3.$(grep -oE '^cp3[0-9]+' <<<"$name" | cut -c4-)
    stage "$name"
    find_python "$version" || { not_run "$name: Python $version is not to be had"; return; }
    must "$name: headers" headers
    must "$name: compiled" compile_all
    must "$name: a stand-in for Python" stand_in
    must "$name: linked" link_all
    result "$name: $(compiled_with): $(find "$folder" -name '*.linked' | wc -l) modules compiled and linked, not run"
}

need llvm-nm llvm
bin=$work/environment/bin
mapfile -t wanted < <(extra wheels)
environment "$work/environment" python3 -c "$repository/constraints.txt" "${wanted[@]}" "setuptools>=77" \
    "Cython>=3.3,<4" numpy || fail "zig or Cython could not be installed"
export ZIG_GLOBAL_CACHE_DIR=$work/zig_cache
must "the sources" sources
[ $# != 0 ] || set -- "${names[@]}"
for name in "$@"; do cross "$name"; done
finish
