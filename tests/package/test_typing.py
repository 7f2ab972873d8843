"""The stubs: whether they are installed and name what is there. What type checkers say of them is in typing/."""

import ast
import importlib
from pathlib import Path

import pytest

import dlbridge

PACKAGE = Path(dlbridge.__file__).parent


def test_package_is_marked_as_typed() -> None:
    assert (PACKAGE / "py.typed").is_file()


def literals(stub: str, parameter: str) -> set[str]:
    """The strings that a stub spells as Literal for a parameter, over all overloads."""
    found = set()
    for argument in ast.walk(ast.parse((PACKAGE / stub).read_text())):
        if isinstance(argument, ast.arg) and argument.arg == parameter and argument.annotation is not None:
            found |= {
                node.value
                for node in ast.walk(argument.annotation)
                if isinstance(node, ast.Constant) and isinstance(node.value, str)
            }
    return found


def test_literals_name_what_is_there() -> None:
    supports = importlib.import_module("dlbridge._core.target").Supports
    assert literals("convert.pyi", "to") <= set(dlbridge.targets())
    assert len(literals("convert.pyi", "to")) == 6
    assert literals("__init__.pyi", "supports") <= set(supports.__members__)
    assert len(literals("__init__.pyi", "supports")) == 4


@pytest.mark.parametrize("stub", sorted(PACKAGE.rglob("*.pyi")), ids=lambda stub: str(stub.relative_to(PACKAGE)))
def test_stubs_name_what_is_there(stub: Path) -> None:
    """Names that a stub imports to hand on, too: stubtest takes those for granted."""
    name = ".".join(stub.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
    module = importlib.import_module(name)
    names = set()
    for node in ast.parse(stub.read_text()).body:
        if isinstance(node, ast.ImportFrom):
            names |= {each.asname for each in node.names if each.asname}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
    public = {each for each in names if not each.startswith("_")}
    assert [each for each in sorted(public) if not hasattr(module, each)] == []
