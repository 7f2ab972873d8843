"""What every test needs: all the libraries, with JAX on the CPU, and how many examples hypothesis tries."""

import gc
import importlib
import os

os.environ["JAX_PLATFORMS"] = "cpu"     # before anything imports jax
os.environ["PYTHONSAFEPATH"] = "1"      # children take the package that is installed, not the folder they stand in

import pytest
from hypothesis import settings
from support import optional
from support.optional import LIBRARIES, Needs

settings.register_profile("ci", max_examples=20, deadline=None)
settings.register_profile("thorough", max_examples=1000, deadline=None)      # --hypothesis-profile=thorough
settings.load_profile("ci")


def pytest_addoption(parser):
    parser.addoption("--full", action="store_true", help="run the whole products that support.optional.product() makes")


def pytest_configure(config):
    """A library that is not there would turn its tests into nothing, so the run fails instead."""
    optional.FULL = config.getoption("full")
    named = os.environ.get("DLBRIDGE_TEST_LIBRARIES")
    config.pluginmanager.register(Needs(optional.present_libraries()))
    missing = []
    for name in ("numpy", "hypothesis", *(LIBRARIES if named is None else filter(None, named.split(",")))):
        try:
            importlib.import_module(name)
        except ImportError as error:
            missing.append(f"{name} ({error})")
    if missing:
        raise pytest.UsageError(f"the test extra is incomplete: {', '.join(missing)} (pip install 'dlbridge[test]')")


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config):
    """With ``pytest -n`` a worker that is done takes over tests of another: some take a hundred times as long."""
    if getattr(config.option, "dist", None) == "no" and config.option.numprocesses:
        config.option.dist = "worksteal"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config):
    """Of ``pytest -n auto``: each worker imports all the libraries, which takes half a gigabyte."""
    return min(len(os.sched_getaffinity(0)), 4)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """What compiles much with JAX comes last: it takes a gigabyte, with which each fork takes 100 ms instead of 20."""
    items.sort(key=lambda item: item.path.name.startswith("test_gradients"))


@pytest.fixture(autouse=True, scope="module")
def what_lasts_set_aside():
    """Many tests collect garbage. What the libraries have made by now, a million objects, is set aside from that."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def own_registrations():
    """What a test registers is gone after it, or another test would meet it by chance."""
    from dlbridge._core.sources.registry import registered as sources
    from dlbridge._core.targets.registry import registered as targets

    from dlbridge._core.cache import clear_cache
    from dlbridge.libraries.library import libraries

    sources_before, targets_before = list(sources), dict(targets)
    yield
    # A library's own target is there from its first use on.
    added = targets.keys() - targets_before.keys() - libraries().keys()
    replaced = {name for name, target in targets_before.items() if targets.get(name) is not target}
    if added or replaced or sources != sources_before:
        sources[:] = sources_before
        for name in added:
            del targets[name]
        targets.update(targets_before)
        clear_cache()
