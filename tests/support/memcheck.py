"""Tell the errors of a valgrind report (XML) that are of a folder: REPORT FOLDER.

An error is of the folder if code of it is in the stack before Python runs any code: what Python code does that was
called from the folder, such as importing a library, is not the folder's.
"""

import sys
import xml.etree.ElementTree

PYTHON = "_PyEval_EvalFrameDefault"


def told(error, folder):
    """One line for an error, innermost function first; None where it is not of the folder."""
    kind = error.findtext("kind")
    frames = list(error.iter("frame"))
    names = [frame.findtext("fn") or frame.findtext("obj") or "?" for frame in frames]
    if PYTHON in names:
        frames = frames[:names.index(PYTHON)]
    if not any((frame.findtext("obj") or "").startswith(folder) for frame in frames):
        return None
    return f"{kind}: {error.findtext('what') or error.findtext('xwhat/text')}: {' < '.join(names)}"


def main(report, folder):
    errors = xml.etree.ElementTree.parse(report).getroot().findall("error")
    ours = [line for line in (told(error, folder) for error in errors) if line]
    print(*ours, sep="\n")
    print(f"{len(errors)} errors in all, {len(ours)} with dlbridge in the stack")
    return len(ours) != 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
