"""Tests for a machine with a GPU; elsewhere each is skipped, with the reason.

``bash tests/gpu/run.sh`` runs all of them, on a machine that has nothing else. Whether there is a GPU is asked of the
driver, once; where there is none, nothing is imported.
"""

import os
import sys
from pathlib import Path

import pytest
from gpu import driver

HERE = Path(__file__).parent
REASON = driver.why_no_gpu()

if not REASON and "jax" not in sys.modules:
    # The suite's own conftest keeps JAX on the CPU, and JAX by itself takes most of the GPU's memory at once.
    os.environ["JAX_PLATFORMS"] = "cuda,cpu"
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.is_relative_to(HERE) and item.get_closest_marker("gpu"):
            # What libraries warn of on hardware that nobody has seen them on is no failure of ours.
            item.add_marker(pytest.mark.filterwarnings("default"))
            if REASON:
                item.add_marker(pytest.mark.skip(reason=f"no GPU: {REASON}"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """Skip a test that needs what a library cannot do here, with the reason."""
    from gpu.libraries import Unusable

    try:
        return (yield)
    except Unusable as reason:
        pytest.skip(str(reason))


@pytest.fixture
def library():
    """Give a library by name, or skip the test with the reason why it cannot be used here."""
    from gpu import libraries

    def find(name):
        try:
            return libraries.find(name)
        except libraries.Unusable as reason:
            pytest.skip(f"{name}: {reason}")

    return find


@pytest.fixture(autouse=True)
def _everything_done():
    """No test leaves work on the GPU for the next one to wait for."""
    yield
    if not REASON:
        from gpu import libraries

        libraries.synchronize()
        assert libraries.races() == []
