"""Plain-text tables with aligned columns."""

from __future__ import annotations

from collections.abc import Sequence


def render_table(header: Sequence[str], rows: Sequence[Sequence[str]], *, align: str) -> list[str]:
    """Lines of a table, columns two spaces apart.

    Args:
        header: one title per column; ``\\n`` in it makes several header lines, for instance for the unit.
        rows: cells as text, as many per row as titles.
        align: one letter per column, ``l`` or ``r``.

    >>> print("\\n".join(render_table(["rate\\n[kpps]", "verdict"], [["10", "valid"]], align="rl")))
      rate  verdict
    [kpps]
        10  valid
    """
    titles = [title.split("\n") for title in header]
    height = max(len(lines) for lines in titles)
    head = [[lines[level] if level < len(lines) else "" for lines in titles] for level in range(height)]
    everything = [*head, *rows]
    widths = [max(len(row[column]) for row in everything) for column in range(len(header))]
    return ["  ".join(map(_pad, row, widths, align)).rstrip() for row in everything]


def _pad(cell: str, width: int, align: str) -> str:
    return cell.rjust(width) if align == "r" else cell.ljust(width)
