"""Go every path of tests/support/paths.py a thousand times on a debug CPython: no reference and no block is left.

Run by debug_python.sh, with the folder tests in PYTHONPATH: ``total``, ``each`` or ``seeded``.

``total`` is sys.gettotalrefcount(). It counts what modules do that were compiled for the debug interpreter, and the
modules of a wheel were not: a reference that they make and others drop lowers it. Where they take part, ``each`` adds
up the real counts of all objects that were there before instead, and sees a reference to a new object by its block.
"""

import gc
import itertools
import sys

WARM_UP = 20
LOOPS = 1000
ROUNDS = 4
# Not ours: a reference to this type is lost with each call of a method that nanobind bound (seen in jaxlib 0.10.2).
LOSES = ("nb_bound_method",)


def reachable():
    """All objects that the garbage collector knows, and what they refer to."""
    tracked = gc.get_objects()
    found = {id(obj): obj for obj in [*tracked, *gc.get_referents(*tracked)]}
    return [obj for obj in found.values() if not (type(obj) is type and obj.__name__ in LOSES)]


def counts(references):
    gc.collect()
    sys._clear_type_cache()         # it holds names, of types too that are gone
    return references(), sys.getallocatedblocks()


def left_behind(path, references):
    """The fewest references and blocks that a round left, for a library's threads may let go of some at any time."""
    for _ in range(WARM_UP):
        path()
    fewest = (sys.maxsize, sys.maxsize)
    for _ in range(ROUNDS):
        before = counts(references)
        before = counts(references)         # once more, now that the first result is there and counted
        for _ in itertools.repeat(None, LOOPS):     # a number would be a block
            path()
        after = counts(references)
        fewest = tuple(min(least, now - then, key=abs) for least, now, then in zip(fewest, after, before, strict=True))
        if not any(fewest):
            break
    return fewest


def main(kind):
    if kind == "seeded":
        from dlbridge import seeded

        paths = {"a reference lost": lambda: seeded.lose_reference(None)}
    else:
        from support.paths import PATHS as paths
    for path in paths.values():
        path()                      # all that is made once is there
    references = sys.gettotalrefcount
    if kind == "each":
        everything = reachable()

        def references():
            return sum(map(sys.getrefcount, everything))
    gc.collect()
    gc.freeze()
    failures = 0
    for name, path in paths.items():
        references_left, blocks_left = left_behind(path, references)
        if references_left or blocks_left:
            failures += 1
            print(f"{name}: {references_left:+} references and {blocks_left:+} blocks in {LOOPS} loops", flush=True)
    gc.unfreeze()                   # or a debug build finds these at its end
    print(f"{len(paths) - failures} passed, {failures} failed")
    return failures != 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
