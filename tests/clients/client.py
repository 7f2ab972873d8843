"""How a client's tests are run without dlbridge and with it, and compared.

As a plug-in of pytest it writes the outcome of each test to the file that ``CLIENT_OUTCOMES`` names, and, where
dlbridge converts for the client, what it did. As a script it compares two such files:
``python client.py WITHOUT WITH``.
"""

import collections
import json
import os
import random
import re
import sys

import pytest

# Differences by policy: the client, what the error says, and why dlbridge raises it. The client then goes its own way,
# which counts as a difference and not as a fall-back.
DIFFERENCES = (
    ("test_buffer", r"^buffer: suboffsets ", "no array library holds memory that lies behind pointers"),
    ("test_buffer", r"^buffer: format .* has no DLPack type", "bytes, pointers to text and structs are no numbers"),
    ("test_buffer", r"does not provide format, shape or strides$", "the exporter itself refuses to say its strides"),
)

said = {"conversions": 0, "differences": collections.Counter(), "fall-backs": collections.Counter()}
outcomes = {}


def converted(client, convert, own, *source):
    """``convert()``, or ``own()`` where dlbridge raised, which is counted."""
    said["conversions"] += 1
    try:
        return convert()
    except Exception as error:
        text = f"{error}".partition("\n")[0]
        for name, expression, reason in DIFFERENCES:
            if name == client and re.search(expression, text):
                said["differences"][reason] += 1
                break
        else:
            types = ", ".join(f"{type(each).__module__}.{type(each).__qualname__}" for each in source)
            said["fall-backs"][f"{types}: {type(error).__name__}: {text}"] += 1
        return own()


def replace_everywhere(package, original, replacement):
    """In all modules of the package that have imported it by its name."""
    for name, module in list(sys.modules.items()):
        if name == package or name.startswith(f"{package}."):
            for key, value in list(vars(module).items()):
                if value is original:
                    setattr(module, key, replacement)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    random.seed(item.nodeid)        # the same tests without and with


def pytest_runtest_logreport(report):
    if report.when == "call" or report.outcome != "passed":
        outcomes[report.nodeid] = report.outcome


def pytest_sessionfinish():
    with open(os.environ["CLIENT_OUTCOMES"], "w") as file:
        json.dump({"outcomes": outcomes, **said}, file)


def compare(without, with_dlbridge):
    """What went wrong, a line each, after what was counted."""
    counted = collections.Counter(with_dlbridge["outcomes"].values())
    counts = ", ".join(f"{counted[outcome]} {outcome}" for outcome in ("passed", "failed", "skipped"))
    print(f"{counts}; {with_dlbridge['conversions']} conversions, "
          f"{sum(with_dlbridge['differences'].values())} differences by policy, "
          f"{sum(with_dlbridge['fall-backs'].values())} fall-backs")
    for reason, count in with_dlbridge["differences"].items():
        print(f"by policy: {reason} ({count})")
    for test, outcome in without["outcomes"].items():
        other = with_dlbridge["outcomes"].get(test, "not run")
        if outcome == "passed" != other:
            yield f"passed without dlbridge, {other} with it: {test}"
    for text, count in with_dlbridge["fall-backs"].items():
        yield f"{count} fall-backs: {text}"
    if "passed" not in without["outcomes"].values():
        yield "no test passed without dlbridge"
    if not with_dlbridge["conversions"]:
        yield "dlbridge converted nothing"


def main(*paths):
    runs = []
    for path in paths:
        with open(path) as file:
            runs.append(json.load(file))
    wrong = list(compare(*runs))
    for line in wrong:
        print(line)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
