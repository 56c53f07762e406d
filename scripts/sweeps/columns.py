"""Tables for narrow terminals: whole columns are left out, and no cell is cut."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

# What a column takes beside its text, and what the two edges take.
PADDING, EDGES = 3, 1


def width(names: Sequence[str], rows: Iterable[Sequence[str]]) -> int:
    """Return the width of a table."""
    from rich.cells import cell_len

    columns = zip(names, *rows, strict=True)
    return EDGES + sum(max(map(cell_len, column)) + PADDING for column in columns)


def that_fit(
    names: Sequence[str],
    rows: Sequence[Sequence[str]],
    order: Iterable[str],
    limit: int,
) -> list[str]:
    """Return the names of the columns that fit into a terminal.

    Args:
      names: the names of all columns.
      rows: their cells.
      order: the names, the most important one first, which always fits.
      limit: the width of the terminal.
    """
    kept = set()
    for name in order:
        wanted = [n for n in names if n in kept | {name}]
        if not kept or width(wanted, _cells(names, rows, wanted)) <= limit:
            kept.add(name)
    return [name for name in names if name in kept]


def table(
    names: Sequence[str], rows: Sequence[Sequence[str]], kept: Sequence[str]
) -> "Table":
    """Return the table of some of the columns.

    Args:
      names: the names of all columns.
      rows: their cells: str, or Text with a style.
      kept: the names of the columns of the table.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    made = Table(box=box.SIMPLE)
    for name in kept:
        made.add_column(name, no_wrap=True)
    for cells in _cells(names, rows, kept):
        # Brackets in a plain string would be rich's markup.
        made.add_row(*map(Text, cells))
    return made


def _cells(names, rows, kept):
    """Return the cells of some columns."""
    places = [names.index(name) for name in kept]
    return [[row[i] for i in places] for row in rows]
