"""GitHub Flavored Markdown (https://github.github.com/gfm/), as GitHub and GitLab show it: tables, folded parts, escaped text.

Whatever stands in a name or a reason is shown as it is: none of it becomes markup, a link, an image or HTML.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from autotest.errors import printable

MOST_ROWS: Final = 20
"""Tables with more rows than these are folded."""

#: What can be, or begin, markup; the last two only at the beginning of a line, as the marks of lists.
_MARKUP: Final = re.compile(r"[\\`*_{}\[\]<>#|~&@$!]|:(?=//)|(?<=\bwww)\.|^[-+=](?=\s|$)|^\d+[.)](?=\s|$)", re.IGNORECASE)


def escape(text: str) -> str:
    """As text of one line: line breaks become spaces, control characters are shown.

    >>> escape("a|b `c`")
    'a&#124;b &#96;c&#96;'
    """
    return _MARKUP.sub(_reference, " ".join(printable(text).split()))


def _reference(found: re.Match[str]) -> str:
    """A character reference stands for its character and never for markup (GFM, 6.2), also within a table."""
    return f"{found[0][:-1]}&#{ord(found[0][-1])};"


def table(header: Sequence[str], rows: Iterable[Sequence[str]], *, align: str) -> list[str]:
    """Lines of a table; the cells are escaped, and those of numbers, which are right-aligned, are not broken.

    Args:
        header: one title per column.
        rows: cells as text, as many per row as titles.
        align: one letter per column, ``l`` or ``r``.
    """
    rule = [{"l": ":--", "r": "--:"}[side] for side in align]
    return [_row(map(escape, header)), _row(rule), *(_row(map(_cell, row, align)) for row in rows)]


def _cell(text: str, side: str) -> str:
    return escape(text).replace(" ", "&nbsp;") if side == "r" else escape(text)


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def folded(title: str, lines: Iterable[str]) -> list[str]:
    """Lines that are there once somebody opens them; the blank lines around let Markdown in (GFM, 4.6)."""
    return ["<details>", f"<summary>{escape(title)}</summary>", "", *lines, "", "</details>"]


def table_folded_where_long(title: str, header: Sequence[str], rows: Sequence[Sequence[str]], *, align: str) -> list[str]:
    """A table below its title; one with more than ``MOST_ROWS`` rows is folded. Nothing without rows."""
    if not rows:
        return []
    lines = table(header, rows, align=align)
    if len(rows) > MOST_ROWS:
        return ["", *folded(title, lines)]
    return ["", f"**{escape(title)}**", "", *lines]
