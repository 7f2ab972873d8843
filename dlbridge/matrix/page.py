"""The matrix as one page of HTML, which loads nothing else."""

import os
from datetime import datetime, timezone
from html import escape
from importlib import resources
from pathlib import Path
from string import Template

import dlbridge
from dlbridge.matrix.pair import Cell, Matrix, Pair
from dlbridge.matrix.report import (
    ARRAY,
    MEANINGS,
    SIGNS,
    Reason,
    among,
    counts,
    duration,
    machine_line,
    missing_line,
    numbers,
    reasons,
    why,
)
from dlbridge.matrix.terminal import Mistake


def check_writable(path: str) -> None:
    """Check, before anything is measured, that the page can be written."""
    if Path(path).is_dir() or not os.access(Path(path).absolute().parent, os.W_OK):
        raise Mistake(f"--html: {path}: no file can be written there (name another)")


def html(matrix: Matrix) -> str:
    """Make the text of the whole page."""
    found = reasons(matrix)
    missing = missing_line(matrix)
    return template("page.html").substitute(
        version=escape(dlbridge.__version__),
        pairs=len(matrix.cells),
        array=escape(ARRAY),
        table=table(matrix),
        reasons=section(matrix, found) if found else "",
        versions="\n".join(f"<tr><th scope=\"row\">{escape(name)}</th><td>{escape(version)}</td></tr>"
                           for name, version in matrix.versions.items()),
        missing=f"<p>{escape(missing.capitalize())}.</p>" if missing else "",
        machine=escape(machine_line(matrix.machine)),
        date=datetime.now(timezone.utc).strftime("%Y-%m-%d"),
    )


def table(matrix: Matrix) -> str:
    """Make the table with its legend and its style, which stands in any page."""
    number = numbers(reasons(matrix))
    return template("table.html").substitute(
        legend="\n".join(legend(outcome, count) for outcome, count in counts(matrix).items()),
        heads="".join(f'<th scope="col"><span>{escape(target)}</span></th>' for target in matrix.targets),
        rows="\n".join(row(matrix, source, number) for source in matrix.sources),
    )


def template(name: str) -> Template:
    return Template(resources.files(__package__).joinpath(name).read_text(encoding="utf-8"))


def style_of(outcome: str) -> str:
    """Name the class of an outcome, which has no spaces."""
    return outcome.replace(" ", "-")


def legend(outcome: str, count: int) -> str:
    """Make the entry of a sign: what it means, and how many cells have it."""
    return (f'<li class="{style_of(outcome)}"><b>{SIGNS[outcome]}</b><span><strong>{count} {outcome}</strong> '
            f"{escape(MEANINGS[outcome])}</span></li>")


def row(matrix: Matrix, source: str, number: dict[Pair, int]) -> str:
    """Make the row of a source."""
    cells = "".join(box((source, target), matrix.cells[source, target], number) for target in matrix.targets)
    return f'<tr><th scope="row">{escape(source)}</th>{cells}</tr>'


def box(pair: Pair, cell: Cell, number: dict[Pair, int]) -> str:
    """Make a cell: sign, time, the number of the reason as a link to it, and a tooltip for hover and focus."""
    words = f"{pair[0]} → {pair[1]}: {cell.outcome}"
    text = f"<b>{escape(words)}</b>" + (f"<br>{escape(why(cell))}" if cell.reason else "")
    note = f"<sup>{number[pair]}</sup>" if pair in number else ""
    where = f'href="#reason-{number[pair]}"' if pair in number else 'tabindex="0"'
    took = duration(cell.nanoseconds)
    time = f"<small>{took}</small>" if took else ""
    link = f'<a {where} aria-label="{escape(words)} {took}">{SIGNS[cell.outcome]}{note}{time}</a>'
    return f'<td class="{style_of(cell.outcome)}">{link}<div role="tooltip">{text}</div></td>'


def section(matrix: Matrix, found: list[Reason]) -> str:
    """List all reasons, in the order of their numbers."""
    items = "\n".join(reason_item(matrix, number, reason) for number, reason in enumerate(found, 1))
    return f'<h2>Reasons</h2>\n<ol class="reasons">\n{items}\n</ol>'


def reason_item(matrix: Matrix, number: int, reason: Reason) -> str:
    """Make the entry of a reason, with its pairs."""
    pairs = escape(among(matrix, reason.pairs)).replace("-&gt;", "→")
    return (f'<li id="reason-{number}"><span class="sign {style_of(reason.outcome)}">{SIGNS[reason.outcome]}</span>'
            f"<div>{escape(reason.text)}<br><small>{pairs}</small></div></li>")
