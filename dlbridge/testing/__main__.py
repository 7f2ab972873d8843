"""``python -m dlbridge.testing [-v]``."""

import argparse
import sys

from dlbridge.testing import run

parser = argparse.ArgumentParser(prog="python -m dlbridge.testing", description="Test dlbridge as it is installed.")
parser.add_argument("-v", "--verbose", action="store_true", help="print one line for each case")
sys.exit(run(parser.parse_args().verbose))
