"""Parts of a page that stand between two marks, and are made anew while the rest of the page is written by hand."""

import re


def put(page: str, mark: str, text: str) -> str:
    """The page with a text between its marks."""
    begin, end = f"<!-- begin: {mark} -->\n", f"<!-- end: {mark} -->\n"
    before, found, rest = page.partition(begin)
    if not found or end not in rest:
        raise ValueError(f"there is no {begin}")
    return f"{before}{begin}{text}{end}{rest.partition(end)[2]}"


def coded(words: str) -> str:
    """The words with the names of methods as code: Markdown would take ``__dlpack__`` for the word in bold."""
    return re.sub(r"(?<![`\w])(__\w+__(\(\))?)", r"`\1`", words)
