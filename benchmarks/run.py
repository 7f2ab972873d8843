"""Measures dlbridge beside each library's own converter, in a checkout: ``python benchmarks/run.py --help``."""

import sys

from bench.command import main

if __name__ == "__main__":
    sys.exit(main())
