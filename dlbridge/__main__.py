"""The command line: ``dlbridge info``, ``demo``, ``matrix``, ``explain`` and ``selftest``."""

import argparse
import os
import sys
from collections.abc import Sequence

import dlbridge
from dlbridge.matrix import arrays, measure
from dlbridge.matrix.terminal import Mistake, show, styled


def info(arguments: argparse.Namespace) -> int:
    """Say which libraries, versions and devices are found here."""
    from dlbridge.matrix import info

    return info.run(arguments)


def demo(arguments: argparse.Namespace) -> int:
    """Take a photograph, a sound and a mapped file through the libraries installed here, and show what was shared."""
    from dlbridge.demo import run

    return run()


def matrix(arguments: argparse.Namespace) -> int:
    """Convert between all pairs of the libraries installed here, and show what was shared, copied or impossible."""
    return measure.run(arguments)


def explain(arguments: argparse.Namespace) -> int:
    """Say what convert() would do with an array like the one described, and why."""
    plan = dlbridge.explain(arrays.make(arguments), arguments.target, device=arguments.device)
    first, *rest = str(plan).splitlines()
    show([[(first.removesuffix(plan.action), ""), styled(plan.action)], *([(line, "")] for line in rest)], sys.stdout)
    return 1 if plan.action == "refuse" else 0


def selftest(arguments: argparse.Namespace) -> int:
    """Test dlbridge on the libraries installed here."""
    from dlbridge.testing import run

    return run(verbose=arguments.verbose)


# The text that ends the help of each verb.
VERBS = {
    info: "The exit status is 0.",
    demo: "The exit status is 0 if every value arrived as it left, else 1.",
    matrix: "Each pair has a process of its own, which imports both libraries: all of them take minutes. The exit "
            "status is 0 if every pair did what its libraries can, 1 if one crashed, did not end or gave wrong values.",
    explain: "The exit status is 0 if convert() would give an array, shared or copied, and 1 if it would refuse. "
             "Examples: dlbridge explain numpy torch --dtype bfloat16 --step -1; dlbridge explain weights.npy jax",
    selftest: "The exit status is 0 if nothing failed, else 1.",
}


def parser() -> argparse.ArgumentParser:
    """Make the parser; each verb is a function, whose docstring is its help."""
    top = argparse.ArgumentParser(prog="dlbridge", description=dlbridge.__doc__,
                                  epilog="The exit status is 2 for a wrong command line, and 130 after Ctrl-C.")
    top.add_argument("--version", action="version", version=f"dlbridge {dlbridge.__version__}")
    verbs = top.add_subparsers(title="commands", metavar="COMMAND")
    parsers = {}
    for verb, ending in VERBS.items():
        parsers[verb] = verbs.add_parser(verb.__name__, help=verb.__doc__, description=verb.__doc__, epilog=ending)
        parsers[verb].set_defaults(verb=verb)
    parsers[info].add_argument("--speaks", action="store_true", help="say which protocols the arrays of each library "
                               "speak; imports it, in a process of its own")
    parsers[info].add_argument("--json", action="store_true", help="print all that a report of an error needs, as JSON")
    parsers[selftest].add_argument("-v", "--verbose", action="store_true", help="print every test, not only failures")
    measure.add_arguments(parsers[matrix])
    arrays.add_arguments(parsers[explain])
    return top


def main(words: Sequence[str] | None = None) -> int:
    """Run a command; return 0 if all went well, 1 if something failed, and 2 for a wrong command line."""
    if sys.stdout is None:
        print("dlbridge: standard output is closed", file=sys.stderr)
        return 1
    try:
        try:
            return run(words)
        finally:
            sys.stdout.flush()      # at exit, Python could no longer say in one line that this failed
    except BrokenPipeError:
        pass                        # the reader of the pipe has closed it, and knows that
    except OSError as error:
        print(f"dlbridge: {error}", file=sys.stderr)
    # Python flushes once more at exit, which would fail again.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1


def run(words: Sequence[str] | None) -> int:
    """Run a command; what is wrong with its words or its array is one line on standard error."""
    top = parser()
    arguments = top.parse_args(words)
    if not hasattr(arguments, "verb"):
        top.print_help()
        return 0
    try:
        status: int = arguments.verb(arguments)
        return status
    except Mistake as mistake:
        print(f"dlbridge {arguments.verb.__name__}: {mistake}", file=sys.stderr)
        return 2
    except dlbridge.DLBridgeError as error:
        print(f"dlbridge: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
