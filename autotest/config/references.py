"""``${section:key}`` in a value stands for that value, ``${key}`` for one of the same section, ``$$`` for a dollar sign."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from autotest.config.lines import DEFAULTS, Mistake
from autotest.config.values import quoted

DEEPEST = 50  # references behind one another
MOST_CHARACTERS = 1_000_000  # of all values with references: a few lines that name each other ten times would be endless

_PIECE = re.compile(r"[^$]+|\$\$|\$\{([^}]*)\}|\$")


def referred_to(values: Iterable[str]) -> set[str]:
    """The keys that these values refer to, in whatever section.

    >>> sorted(referred_to(["${a}/${b:c}", "$${d}"]))
    ['a', 'c']
    """
    references = (match[1] for value in values if "$" in value for match in _PIECE.finditer(value))
    return {reference.partition(":")[2] or reference for reference in references if reference}


class References:
    """The values of all sections with their references replaced, each worked out once, when it is asked for."""

    def __init__(self, defaults: Mapping[str, str], sections: Mapping[str, Mapping[str, str]]) -> None:
        self._defaults = defaults
        self._sections = {**sections, DEFAULTS: {}}
        self._found: dict[tuple[str, str], str | Mistake] = {}
        self._open: list[tuple[str, str]] = []
        self._characters_left = MOST_CHARACTERS

    def value(self, section: str, key: str) -> str | Mistake | None:
        """The value of a key that the section has or inherits, or why there is none; None where there is no such key."""
        if section not in self._sections:
            return None
        written = self._sections[section].get(key, self._defaults.get(key))
        if written is None or "$" not in written:
            return written
        name = (section, key)
        if name in self._open:
            way = " -> ".join(":".join(step) for step in (*self._open[self._open.index(name) :], name))
            return self._mistake(section, key, f"refers to itself: {way}")
        if name not in self._found:
            self._open.append(name)
            self._found[name] = self._replaced(section, key, written)
            self._open.pop()
        return self._found[name]

    def _mistake(self, section: str, key: str, message: str) -> Mistake:
        return Mistake(section if key in self._sections[section] else None, key, message)

    def _replaced(self, section: str, key: str, written: str) -> str | Mistake:
        if len(self._open) > DEEPEST:
            return self._mistake(section, key, f"is at the end of more than {DEEPEST} references")
        pieces = []
        for match in _PIECE.finditer(written):
            piece = self._piece(section, key, match)
            if isinstance(piece, Mistake):
                return piece
            self._characters_left -= len(piece)
            if self._characters_left < 0:
                message = f"the values that refer to others become more than {MOST_CHARACTERS} characters"
                return Mistake(None, None, message)
            pieces.append(piece)
        return "".join(pieces)

    def _piece(self, section: str, key: str, match: re.Match[str]) -> str | Mistake:
        reference = match[1]
        if reference is None:
            if match[0] == "$":
                return self._mistake(section, key, "a $ must begin ${key} or ${section:key}; $$ stands for the $ itself")
            return "$" if match[0] == "$$" else match[0]
        other, colon, wanted = reference.partition(":")
        if not colon:
            other, wanted = section, reference
        found = self.value(other, wanted)
        if found is None:
            return self._mistake(section, key, f"{quoted(match[0])} does not exist")
        return found
