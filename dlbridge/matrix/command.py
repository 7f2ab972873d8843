"""The command ``dlbridge matrix``."""

import argparse
import sys

from dlbridge.matrix import page, report
from dlbridge.matrix.measure import measure
from dlbridge.matrix.mistakes import Mistake


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the options of ``dlbridge matrix``."""
    parser.add_argument("libraries", nargs="*", metavar="LIBRARY", help="only these (all that are installed)")
    parser.add_argument("--html", metavar="FILE", help="write a page to look at")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def run(arguments: argparse.Namespace) -> int:
    """Measure and show; return 0 if every pair did what its libraries can, and 1 if one did not."""
    if arguments.html:
        page.check_writable(arguments.html)
    matrix = measure(arguments.libraries)
    if not matrix.cells:
        raise Mistake(f"there is nothing to convert to ({report.missing_line(matrix) or 'name a target as well'})")
    if arguments.html:
        page.write(arguments.html, matrix)
    if arguments.json:
        print(report.as_json(matrix))
    else:
        report.show(matrix, sys.stdout)
    return 1 if matrix.failed() else 0
