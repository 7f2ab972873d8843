# Where the Pythons come from; sourced after common.sh. find_python sets $python, or fails and says why.
#
# What the machine does not have is taken from Debian's newer suites, from the archive that apt's own configuration
# names, and never installed: packages are unpacked into a folder, free-threaded builds are made from the source.
interpreters=$TOOLS/interpreters
suites="trixie forky"

# newer COMMAND ARGUMENT...: apt as if the newer suites were all there is, and nothing were installed.
newer() {
    local command=$1 apt=$interpreters/apt
    shift
    "$command" -q -o Dir::Etc::SourceList="$apt/sources.list" -o Dir::Etc::SourceParts=/dev/null \
        -o Dir::State="$apt/state" -o Dir::State::status="$apt/status" -o Dir::Cache="$apt/cache" \
        -o APT::Sandbox::User=root -o APT::Install-Recommends=false "$@"
}

newer_suites() {
    local archive suite type apt=$interpreters/apt
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

# unpack_python VERSION: Debian's packages of it, with the C library that they were built for, side by side with ours.
unpack_python() {
    local root=$interpreters/$1/root libraries package version=$1
    need patchelf patchelf
    newer_suites || return
    rm -rf "$interpreters/$version"
    mkdir -p "$root"
    newer apt-get clean
    newer apt-get install -y --download-only "python$version-dev" "python$version-venv" || return
    for package in "$interpreters"/apt/cache/archives/*.deb; do dpkg -x "$package" "$root"; done
    libraries=$(dirname "$(ls "$root"/usr/lib/*/libpython"$version".so)")
    patchelf --force-rpath --set-rpath "$libraries" --set-interpreter "$(ls "$libraries"/ld-linux*)" \
        "$root/usr/bin/python$version"
    # What it takes from fixed places: pip's wheel, and the header that says how it was configured.
    sed -i "s|: '/usr/share/python-wheels|: '$root/usr/share/python-wheels|" "$root/usr/lib/python$version"/_sysconfigdata*
    cp "$root/usr/include/$(basename "$libraries")/python$version/pyconfig.h" "$root/usr/include/python$version/"
    mkdir "$interpreters/$version/bin"
    ln -s "$root/usr/bin/python$version" "$interpreters/$version/bin/python$version"
}

# source_of VERSION FOLDER: as it was published, without Debian's changes.
source_of() {
    newer_suites || return
    mkdir -p "$interpreters/source"
    (cd "$interpreters/source" && newer apt-get source --download-only --tar-only "python$1") || return
    rm -rf "$2"
    mkdir -p "$2"
    tar -xf "$(ls -v "$interpreters/source/python$1"_*.orig.tar.* | tail -n 1)" -C "$2" --strip-components=1
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
    source_of "$1" "$folder" || return
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
    source_of "$1" "$folder" || return
    (cd "$folder" && CC=clang-19 CXX=clang++-19 ./configure --disable-gil --with-thread-sanitizer --with-pydebug \
        --disable-test-modules && make -j2)
}

# find_python NAME: 3.12, 3.13t, 3.13t-tsan and so on, in PATH, where pyenv keeps them, or made now.
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
