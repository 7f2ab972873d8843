"""The command line: ``dlbridge demo``, ``dlbridge selftest`` and ``dlbridge bench``."""

import argparse
import os
import sys
from collections.abc import Sequence

import dlbridge
from dlbridge import bench as benchmark
from dlbridge import matrix as pairwise


def demo(arguments: argparse.Namespace) -> int:
    """Take a photograph, a sound and a mapped file through the libraries installed here, and show what was shared."""
    from dlbridge.demo import run

    return run()


def selftest(arguments: argparse.Namespace) -> int:
    """Test dlbridge on the libraries installed here."""
    from dlbridge.testing import run

    return run(verbose=arguments.verbose)


def matrix(arguments: argparse.Namespace) -> int:
    """Convert between all pairs of the libraries installed here, and show what was shared, copied or impossible."""
    return pairwise.run(arguments)


def bench(arguments: argparse.Namespace) -> int:
    """Measure dlbridge beside each library's own converter on this machine."""
    return benchmark.run(arguments)


def parser() -> argparse.ArgumentParser:
    """One verb per function, described by its docstring."""
    top = argparse.ArgumentParser(prog="dlbridge", description=dlbridge.__doc__)
    top.add_argument("--version", action="version", version=f"dlbridge {dlbridge.__version__}")
    verbs = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    parsers = {}
    for verb in (demo, matrix, bench, selftest):
        parsers[verb] = verbs.add_parser(verb.__name__, help=verb.__doc__, description=verb.__doc__)
        parsers[verb].set_defaults(verb=verb)
    parsers[selftest].add_argument("-v", "--verbose", action="store_true", help="print every test, not only failures")
    pairwise.add_arguments(parsers[matrix])
    benchmark.add_arguments(parsers[bench])
    return top


def main(words: Sequence[str] | None = None) -> int:
    """Run a command; the exit status is 0 if all went well, 1 if something failed, 2 for a wrong command line."""
    arguments = parser().parse_args(words)
    try:
        status: int = arguments.verb(arguments)
        sys.stdout.flush()
        return status
    except dlbridge.DLBridgeError as error:
        print(f"dlbridge: {error}", file=sys.stderr)
    except BrokenPipeError:
        # The reader of a pipe has gone; Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        return 130
    return 1


if __name__ == "__main__":
    sys.exit(main())
