# What the scripts of this folder share; each sources it, nobody runs it.
#
# A script works on a copy of the tree of its own, so that builds of different kinds never meet. What takes long to make
# (interpreters, environments) stays in $TOOLS for the next run: remove that folder to start afresh. A script ends with
# the line "N passed, M failed", a count of its checks, and fails if one failed; "result: …" before it is what the line of
# tools/nightly.sh says. Needs python3 (3.11), git, a C compiler and, where Debian packages are missing, root.
set -euo pipefail
exec </dev/null
# LC_ALL: compilers quote in ASCII. JAX_PLATFORMS: no accelerator is looked for.
export LC_ALL=C PIP_DISABLE_PIP_VERSION_CHECK=1 JAX_PLATFORMS=cpu

repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
script=$(basename "$0" .sh)
TOOLS=${TOOLS:-$repository/build/tools}
work=$TOOLS/$script
logs=$work/logs
mkdir -p "$logs"
passed=0
failed=0
results=()

stage() { printf '\n==== %s (after %d s)\n' "$1" "$SECONDS"; }
fail() { printf 'FAILED: %s\n' "$1" >&2; exit 1; }

# need COMMAND PACKAGE...: installs Debian packages where the command, or the file, is missing.
need() {
    local wanted=$1
    shift
    if command -v "$wanted" >/dev/null || [ -e "$wanted" ]; then return; fi
    [ "$(id -u)" = 0 ] || fail "$wanted is missing, and installing it needs root (apt-get install $*)"
    { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@"; } \
        >"$logs/apt.log" 2>&1 || { tail -n 20 "$logs/apt.log"; fail "$* could not be installed"; }
}

# copy_tree FOLDER: the files of the tree as they are now. What was built there before stays, where its source did not
# change.
copy_tree() {
    local gone
    git -C "$repository" ls-files --cached --others --exclude-standard | LC_ALL=C sort >"$1.new"
    [ -e "$1.files" ] || rm -rf "$1"
    mkdir -p "$1"
    # Of a source that was deleted, what was made of it goes too.
    while read -r gone; do rm -rf "$1/$gone" "$1/${gone%.pyx}".{c,*.so}; done < <(
        if [ -e "$1.files" ]; then LC_ALL=C comm -23 "$1.files" "$1.new"; fi)
    rm -rf "$1"/build/lib* "$1"/build/bdist* "$1"/dlbridge/seeded.*
    mv "$1.new" "$1.files"
    tar -C "$repository" --ignore-failed-read -cf - -T "$1.files" | tar -C "$1" -xf -
}

# seeded_tree FOLDER: and the seeded bugs as one more module of the package, so that they are built as everything else is.
seeded_tree() {
    mkdir -p "$1.seeded"
    mv "$1"/dlbridge/seeded.* "$1.seeded" 2>/dev/null || true       # what was built of them stays
    copy_tree "$1"
    mv "$1.seeded"/* "$1/dlbridge" 2>/dev/null || true
    cp -p "$repository/tests/support/seeded.pyx" "$1/dlbridge/seeded.pyx"
}

# environment FOLDER PYTHON REQUIREMENT...: a virtual environment, kept while its requirements stay the same.
environment() {
    local folder=$1 python=$2 wanted
    shift 2
    wanted=$(printf '%s\n' "$python" "$@"; [[ $* != *constraints.txt* ]] || cat "$repository/constraints.txt")
    if [ "$(cat "$folder/wanted" 2>/dev/null)" = "$wanted" ]; then return; fi
    rm -rf "$folder"
    "$python" -m venv "$folder"
    "$folder/bin/pip" install -q "$@" >"$logs/pip.log" 2>&1 || { tail -n 20 "$logs/pip.log"; return 1; }
    printf '%s\n' "$wanted" >"$folder/wanted"
}

# extra NAME: the requirements of an extra of pyproject.toml, one in a line.
extra() {
    python3 -c '
import sys, tomllib
with open(sys.argv[1], "rb") as file:
    project = tomllib.load(file)["project"]
print(*project["optional-dependencies"][sys.argv[2]], sep="\n")' "$repository/pyproject.toml" "$1"
}

# environment_with EXTRA...: $bin is that of an environment with these extras, in the versions that CI tests with.
environment_with() {
    local wanted
    bin=$work/environment/bin
    mapfile -t wanted < <(for wanted in "$@"; do extra "$wanted"; done | grep -v '^dlbridge\[')
    [ "${#wanted[@]}" != 0 ] || fail "there are no extras $*"
    environment "$work/environment" python3 -c "$repository/constraints.txt" "${wanted[@]}" "setuptools>=77" ||
        fail "the extras $* could not be installed"
}

# with_dlbridge EXTRA...: and dlbridge, as it is published, from the files in $tree.
with_dlbridge() {
    environment_with "$@"
    tree=$work/tree
    copy_tree "$tree"
    must "the package" "$bin/pip" install --no-deps --force-reinstall "$tree"
    cd "$work"      # where no folder is called dlbridge
}

# result TEXT: a figure, or what else is worth more than the count of checks.
result() { results+=("$1"); }

# not_run WHY: what the machine or the package indexes do not have fails nothing.
not_run() {
    result "not run: $1"
    echo "not run: $1"
}

# versions PYTHON NAME...: what a line of result calls the cell that it is about.
versions() {
    "$1" - "${@:2}" <<'PYTHON'
import platform
import sys
from importlib.metadata import version

print(f"Python {platform.python_version()}{getattr(sys, 'abiflags', '')}", *(f"{name} {version(name)}" for name in sys.argv[1:]), sep=", ")
PYTHON
}

count() {
    printf '%s %s (%d s)\n' "$1" "$2" "$((SECONDS - began))"
    if [ "$1" = passed ]; then passed=$((passed + 1)); else failed=$((failed + 1)) && result "FAILED $2"; fi
}

# check NAME COMMAND...: the command must succeed. Its output goes to a log, the end of which is shown if it does not.
check() {
    local name=$1 log=$logs/${1// /_}.log began=$SECONDS tests
    shift
    if "$@" >"$log" 2>&1; then
        tests=$(sed -nE 's/^(=+ )?([0-9]+ passed.*) in [0-9.]+s.*/\2/p' "$log" | tail -n 1)
        [ -z "$tests" ] || result "$name: $tests"
        count passed "$name"
    else
        tail -n 60 "$log"
        count FAILED "$name"
    fi
}

# must NAME COMMAND...: check, and end here if it fails, since nothing that follows would mean anything.
must() {
    check "$@"
    [ "$failed" = 0 ] || finish
}

# check_finds NAME TEXT COMMAND...: the command, which has a seeded bug in it, must say TEXT (an extended regular
# expression): a tool that does not find that bug proves nothing by its silence.
check_finds() {
    local name=$1 text=$2 log=$logs/${1// /_}.log began=$SECONDS
    shift 2
    "$@" >"$log" 2>&1 || true
    if grep -aqE "$text" "$log"; then
        count passed "$name"
    else
        tail -n 60 "$log"
        count FAILED "$name: \"$text\" was not said"
    fi
}

finish() {
    local all
    all=$(printf '; %s' "${results[@]}")
    [ "${#results[@]}" = 0 ] || printf '\nresult: %s\n' "${all:2}"
    printf '\n%d passed, %d failed\n' "$passed" "$failed"
    # Without a check there is nothing to go by, unless it was said what is not to be had.
    [ "$failed" = 0 ] && { [ "$passed" != 0 ] || [[ ${results[*]} == "not run: "* ]]; } || exit 1
}
