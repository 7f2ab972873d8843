"""The self-test that comes with the package, the fake producers that it uses, and what counts releases.

``dlbridge selftest`` runs the self-test on the libraries that are installed. The producers of
:mod:`dlbridge.testing.producers` can test any consumer of DLPack: their fields have the values that a test gives them,
right or wrong, and they count how often their memory was released. ``waiting_releases`` and ``unordered_releases`` say
of device memory how many releases wait for a stream, and how many could not be ordered.
"""

from dlbridge._core.devices.releases import unordered_releases, waiting_releases

__all__ = ["run", "unordered_releases", "waiting_releases"]


def run(verbose: bool = False) -> int:
    """Run the self-test, print its outcome, and return the exit code: 0 if nothing failed, else 1.

    It needs neither pytest nor the source tree. Libraries that are not installed are skipped, and named.

    Parameters
    ----------
    verbose : bool
        Print one line for each case, and not only for those that failed or were skipped.
    """
    from dlbridge.testing.selftest import run_cases

    return run_cases(verbose)
