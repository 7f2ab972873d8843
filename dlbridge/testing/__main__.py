"""``python -m dlbridge.testing [-v]``."""

import argparse
import sys

from dlbridge.testing import run


def main() -> int:
    """Read the command line and run the self-test."""
    parser = argparse.ArgumentParser(prog="python -m dlbridge.testing", description="Test dlbridge as it is installed.")
    parser.add_argument("-v", "--verbose", action="store_true", help="print one line for each case")
    return run(parser.parse_args().verbose)


if __name__ == "__main__":
    sys.exit(main())
