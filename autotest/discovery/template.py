"""A commented configuration file as a template: keys get values, every comment stays.

The files that explain every key, ``configs/real-testbed.conf`` and ``tests.conf``, are themselves the templates.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_HEADER = re.compile(r"\[([^\]]+)\]")
_ENTRY = re.compile(r"(?:# )?([a-z][a-z0-9_]*) =(?: |$)(.*)")
_BEGINS_COMMENT = re.compile(r"(?:^|\s)#|^;")

Values = Mapping[str, Mapping[str, str | None]]
"""By section and key the text that stands behind ``=``; None where the key is to be a comment."""


def literal(value: str) -> str:
    """The text that stands for that value in an INI file.

    Raises:
        ValueError: no text does: a part of it would be taken for a comment.

    >>> literal("/srv/${x}")
    '/srv/$${x}'
    """
    if _BEGINS_COMMENT.search(value):
        raise ValueError(f"{value!r} cannot stand in a configuration file: a # behind a space, or a ; in front, begins a comment")
    return value.replace("$", "$$")


def fill(template: str, values: Values, introduction: str | None = None) -> str:
    """The template with these values.

    A key that it has, commented out or not, gets its value where it stands; one that it lacks is added to the end of its section.
    Keys of which nothing is said stay as they are. The introduction replaces all lines in front of the first empty one.

    Raises:
        KeyError: the template has no such section.
    """
    lines = template.splitlines()
    if introduction is not None:
        lines[: lines.index("")] = introduction.splitlines()
    blocks = _sections(lines)
    if unknown := values.keys() - blocks.keys():
        raise KeyError(*unknown)
    filled = [line for name, block in blocks.items() for line in _filled(block, dict(values.get(name, {})))]
    return "\n".join(filled) + "\n"


def _sections(lines: list[str]) -> dict[str, list[str]]:
    """The lines of each section, its header the first; those in front of all sections have an empty name."""
    found: dict[str, list[str]] = {"": []}
    name = ""
    for line in lines:
        if header := _HEADER.fullmatch(line):
            name = header[1]
            found[name] = []
        found[name].append(line)
    return found


def _filled(block: list[str], values: dict[str, str | None]) -> list[str]:
    keys = [match[1] if (match := _ENTRY.fullmatch(line)) else None for line in block]
    # A key can be there as a comment and for real, or as an example twice: the one for real counts, else the first.
    places = {key: number for number, key in reversed([*enumerate(keys)]) if key}
    places |= {key: number for number, key in enumerate(keys) if key and not block[number].startswith("#")}
    found = []
    goes_on = False  # whether lines that are indented belong to a value that is gone
    for number, (line, key) in enumerate(zip(block, keys, strict=True)):
        if goes_on and line[:1].isspace():
            continue
        goes_on = key in values and places[key] == number and not line.startswith("#")
        found.append(_entry(line, key, values.pop(key)) if key in values and places[key] == number else line)
    end = len(found)
    while end > 1 and not found[end - 1]:
        end -= 1
    return [*found[:end], *(f"{key} = {text}".rstrip() for key, text in values.items() if text is not None), *found[end:]]


def _entry(line: str, key: str, text: str | None) -> str:
    if text is None:
        return line if line.startswith("#") else f"# {line}"
    return f"{key} = {text}".rstrip()
