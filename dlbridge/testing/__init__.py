"""The self-test that travels with the package, and the fake producers it is made with.

``python -m dlbridge.testing`` runs the self-test on the libraries that are installed. The producers of
:mod:`dlbridge.testing.producers` are for anyone who tests a consumer of DLPack: they say what a test wants them to say,
right or wrong, and count how often they were let go.
"""

__all__ = ["run"]


def run(verbose: bool = False) -> int:
    """Run the self-test, print its outcome, and return the exit code: 0 if nothing failed, else 1.

    Neither pytest nor the source tree is needed. Libraries that are not installed are skipped, by name.

    Parameters
    ----------
    verbose : bool
        Print one line for each case, and not only for those that failed or were skipped.
    """
    from dlbridge.testing.selftest import run_cases

    return run_cases(verbose)
