"""Tables in Markdown."""

from collections.abc import Iterable, Sequence


def head(names: Sequence[str]) -> str:
    """Return the two lines of the head of a table."""
    return f"{row(names)}\n{'|---' * len(names)}|"


def row(cells: Iterable[object]) -> str:
    """Return a line of a table."""
    return f"| {' | '.join(map(str, cells))} |"


def table(
    names: Sequence[str], rows: Iterable[Iterable[object]], note: str = ""
) -> str:
    """Return a table, and a note below it."""
    text = "\n".join([head(names), *map(row, rows)])
    return f"{text}\n\n{note}" if note else text
