"""The result of the measurement: a cell for each pair of libraries, and the matrix of all cells."""

from typing import Any, NamedTuple

OUTCOMES = ("returned", "shared", "copied", "not here", "impossible", "failed")     # from the best to the worst

Pair = tuple[str, str]          # source and target, each by the name of its library


class Cell(NamedTuple):
    """The result for one pair."""

    outcome: str
    reason: str = ""
    hint: str = ""
    nanoseconds: float | None = None


class Matrix(NamedTuple):
    """A cell for each pair (source, target) of the libraries that are installed here."""

    cells: dict[Pair, Cell]
    versions: dict[str, str]            # of each library that has one
    missing: dict[str, str]             # the other libraries, each with the name that pip installs it by
    machine: dict[str, Any]             # as the benchmark describes it

    @property
    def sources(self) -> list[str]:
        """The libraries whose arrays were converted."""
        return list(dict.fromkeys(source for source, _ in self.cells))

    @property
    def targets(self) -> list[str]:
        """The libraries that the arrays were converted to."""
        return list(dict.fromkeys(target for _, target in self.cells))

    def failed(self) -> dict[Pair, Cell]:
        """Select the pairs that crashed, did not end, or gave wrong values."""
        return {pair: cell for pair, cell in self.cells.items() if cell.outcome == "failed"}
