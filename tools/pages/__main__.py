"""Write what of the documentation is made of data: ``python tools/pages NAME [ARGUMENT...]``.

Each name is a file beside this one, which says where its data come from: dtypes, forms, house, libraries, matrix,
performance, pictures, reliability.
"""

import importlib
import sys

NAMES = ("dtypes", "forms", "house", "libraries", "matrix", "performance", "pictures", "reliability")


def main(words: list[str]) -> int:
    if not words or words[0] not in NAMES:
        sys.exit(f"usage: python tools/pages {{{','.join(NAMES)}}} [ARGUMENT...]")
    return importlib.import_module(f"{words[0]}_page").main(words[1:]) or 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
