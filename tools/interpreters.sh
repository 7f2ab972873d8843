# Where the Pythons come from; sourced after common.sh. find_python sets $python, or fails and says why.
#
# What the machine does not have is taken from Debian's newer suites, from the archive that apt's own configuration
# names, and never installed: packages are unpacked into a folder, free-threaded builds are made from the source.
interpreters=$TOOLS/interpreters
suites="trixie forky"

architecture=$(dpkg --print-architecture 2>/dev/null || true)      # where there is no Debian, nothing is made

# newer COMMAND ARGUMENT...: apt as if the newer suites, for $architecture, were all there is, and nothing were installed.
newer() {
    local command=$1 apt=$interpreters/apt-$architecture
    shift
    "$command" -q -o APT::Architecture="$architecture" -o APT::Architectures="$architecture" \
        -o Dir::Etc::SourceList="$apt/sources.list" -o Dir::Etc::SourceParts=/dev/null \
        -o Dir::State="$apt/state" -o Dir::State::status="$apt/status" -o Dir::Cache="$apt/cache" \
        -o APT::Sandbox::User=root -o APT::Install-Recommends=false "$@"
}

newer_suites() {
    local archive suite type apt=$interpreters/apt-$architecture
    if [ -e "$apt/sources.list" ]; then return; fi
    archive=$(apt-get indextargets --format '$(REPO_URI) $(ORIGIN) $(LABEL)' 'Created-By: Packages' |
        awk '/ Debian Debian$/ {print $1; exit}')
    [ "$archive" ] || { echo "apt's configuration names no archive of Debian"; return 1; }
    rm -rf "$apt"
    mkdir -p "$apt"/{state/lists/partial,cache/archives/partial}
    touch "$apt/status"
    for suite in $suites; do
        for type in deb deb-src; do
            echo "$type [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $archive $suite main"
        done
    done >"$apt/sources.part"
    newer apt-get -o Dir::Etc::SourceList="$apt/sources.part" update || return
    mv "$apt/sources.part" "$apt/sources.list"
}

# unpack FOLDER PACKAGE...: Debian's packages and all that they need, down to the C library.
unpack() {
    local folder=$1 package
    shift
    newer_suites || return
    rm -rf "$folder"
    mkdir -p "$folder"
    newer apt-get clean
    newer apt-get install -y --download-only "$@" || return
    for package in "$interpreters/apt-$architecture"/cache/archives/*.deb; do dpkg -x "$package" "$folder"; done
}

# unpack_python VERSION: side by side with what the machine has.
unpack_python() {
    local root=$interpreters/$1/root libraries version=$1
    need patchelf patchelf
    unpack "$root" "python$version-dev" "python$version-venv" || return
    libraries=$(dirname "$(ls "$root"/usr/lib/*/libpython"$version".so)")
    patchelf --force-rpath --set-rpath "$libraries" --set-interpreter "$(ls "$libraries"/ld-linux*)" \
        "$root/usr/bin/python$version"
    # What it takes from fixed places: pip's wheel, and the header that says how it was configured.
    sed -i "s|: '/usr/share/python-wheels|: '$root/usr/share/python-wheels|" "$root/usr/lib/python$version"/_sysconfigdata*
    cp "$root/usr/include/$(basename "$libraries")/python$version/pyconfig.h" "$root/usr/include/python$version/"
    mkdir -p "$interpreters/$version/bin"
    ln -sf "$root/usr/bin/python$version" "$interpreters/$version/bin/python$version"
}

# unpack_aarch64 VERSION: of another architecture, with a script that runs it, and its children, under qemu-user.
unpack_aarch64() {
    local architecture=arm64 folder=$interpreters/$1-aarch64 version=$1 root
    root=$folder/root
    need qemu-aarch64-static qemu-user-static
    unpack "$root" "python$version-dev" libstdc++6 || return
    [ -e "$root/lib" ] || ln -s usr/lib "$root/lib"     # where the loader is looked for
    cp "$root/usr/include/aarch64-linux-gnu/python$version/pyconfig.h" "$root/usr/include/python$version/"
    # Beside the library that it belongs to, or Python would not find it.
    printf '#!/bin/sh\nexec qemu-aarch64-static -L "%s" -0 "$0" "%s" "$@"\n' "$root" "$root/usr/bin/python$version" \
        >"$root/usr/bin/python$version-aarch64"
    chmod +x "$root/usr/bin/python$version-aarch64"
    mkdir -p "$folder/bin"
    ln -sf "$root/usr/bin/python$version-aarch64" "$folder/bin/"
}

# source_of PACKAGE FOLDER: as it was published, without Debian's changes.
source_of() {
    newer_suites || return
    mkdir -p "$interpreters/source"
    (cd "$interpreters/source" && newer apt-get source --download-only --tar-only "$1") || return
    rm -rf "$2"
    mkdir -p "$2"
    tar -xf "$(ls -v "$interpreters/source/$1"_*.orig.tar.* | tail -n 1)" -C "$2" --strip-components=1
}

build_headers() {
    need make make
    need cc gcc libc6-dev
    need /usr/include/openssl/ssl.h libssl-dev
    need /usr/include/zlib.h zlib1g-dev
    need "$(echo /usr/include/*/ffi.h)" libffi-dev
}

# build_free_threaded VERSION
build_free_threaded() {
    local folder=$interpreters/build/$1t
    build_headers
    source_of "python$1" "$folder" || return
    (cd "$folder" && ./configure --prefix="$interpreters/$1t" --disable-gil --disable-test-modules &&
        make -j2 && make install) || return
    rm -rf "$folder"
}

# build_thread_sanitized VERSION: it stays where it is built, for installing it would have it compile its library.
build_thread_sanitized() {
    local folder=$interpreters/$1t-tsan
    build_headers
    need clang-19 clang-19
    need /usr/lib/llvm-19/lib/clang/19/lib/linux/libclang_rt.tsan-x86_64.a libclang-rt-19-dev
    source_of "python$1" "$folder" || return
    (cd "$folder" && CC=clang-19 CXX=clang++-19 ./configure --disable-gil --with-thread-sanitizer --with-pydebug \
        --disable-test-modules && make -j2)
}

# build_musl VERSION: for musl, as on Alpine; of what a Python may have in C, it has ctypes and zlib beside its own.
build_musl() {
    local prefix=$interpreters/$1-musl build=$interpreters/build/musl library module
    need make make
    need musl-gcc musl-tools
    need libtoolize libtool autoconf automake
    export CC=musl-gcc
    for library in libffi zlib "python$1"; do source_of "$library" "$build/$library" || return; done
    (cd "$build/libffi" && ./autogen.sh && ./configure --prefix="$prefix" --disable-shared --with-pic --disable-docs \
        --disable-exec-static-tramp && make -j2 install) || return
    (cd "$build/zlib" && CFLAGS="-O2 -fPIC" ./configure --static --prefix="$prefix" && make -j2 install) || return
    # musl-gcc calls itself by the name of the compiler that it wraps.
    sed -i 's/\$CC --print-multiarch/false/' "$build/python$1/configure"
    (
        cd "$build/python$1"
        # What is there for another C library.
        for module in _lzma _bz2 _curses _curses_panel _gdbm _dbm readline _sqlite3 _ssl _hashlib _tkinter _uuid; do
            export "py_cv_module_$module=n/a"
        done
        LIBFFI_CFLAGS="-I$prefix/include" LIBFFI_LIBS="-L$prefix/lib -lffi" \
            ZLIB_CFLAGS="-I$prefix/include" ZLIB_LIBS="-L$prefix/lib -lz" \
            ./configure --prefix="$prefix" --disable-test-modules --without-ensurepip && make -j2 && make install
    ) || return
    # NumPy's wheels have relocations that a loader before 1.2.4, which musl-gcc's may be, passes over.
    need patchelf patchelf
    unpack "$prefix/root" musl || return
    patchelf --set-interpreter "$(realpath "$prefix"/root/usr/lib/*/libc.so)" "$prefix/bin/python$1"
    ln -s "python$1" "$prefix/bin/python$1-musl"
    rm -rf "$build"
}

# find_python NAME: 3.12, 3.13t, 3.13t-tsan, 3.13-aarch64, 3.13-musl and so on, in PATH or where pyenv keeps them; what is
# in neither is made.
find_python() {
    local candidate log=$logs/python$1.log
    for candidate in "python$1" "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"${1%t}".*"${1##*[0-9]}"/bin/"python$1" \
            "$interpreters/$1/bin/python$1" "$interpreters/$1/python"; do
        # Of a link what it leads to: a virtual environment of 3.14 looks for the library beside it.
        if python=$(readlink -f "$(command -v "$candidate")") && "$python" -c "" 2>/dev/null; then return; fi
    done
    echo "python$1 is not here: making it (see $log)"
    case $1 in
        *t-tsan) build_thread_sanitized "${1%t-tsan}" ;;
        *t) build_free_threaded "${1%t}" ;;
        *-aarch64) unpack_aarch64 "${1%-aarch64}" ;;
        *-musl) (build_musl "${1%-musl}") ;;
        *) unpack_python "$1" ;;
    esac >"$log" 2>&1 || { grep -aE '^E: |[Ee]rror' "$log" | tail -n 2; return 1; }
    python=$(readlink -f "$(ls "$interpreters/$1/bin/python$1" "$interpreters/$1/python" 2>/dev/null)")
    "$python" -c ""
}

# wheel_of TREE FOLDER: dlbridge for $python, built in the tree with what has wheels for it; sets $wheel.
wheel_of() {
    environment "$2/builder" "$python" --only-binary=:all: "setuptools>=77" "Cython>=3.3,<4" "numpy>=2" || return
    rm -rf "$2/wheel"
    find "$1/dlbridge" -name '*.c' -delete      # made with the declarations of another version of NumPy
    (cd "$1" && "$2/builder/bin/pip" wheel -v --no-build-isolation --no-deps -w "$2/wheel" .) || return
    wheel=$(echo "$2"/wheel/*.whl)
}
