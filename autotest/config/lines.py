"""The text of an INI file to sections of plain values, as configparser reads it; but every mistake is noted.

configparser ends at the first key or section that is there twice, so a user would see one mistake at a time.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from autotest.config.values import quoted

DEFAULTS = "DEFAULT"  # the section whose keys all others inherit
LONGEST_NAME = 100  # characters of a section's or key's name

_COMMENT = re.compile(r"^\s*[#;]|(?<=\s)#")
_HEADER = re.compile(r"\[([^\]]+)\]\s*(?:;.*)?")
_DELIMITER = re.compile(r"[=:]")


class Mistake(NamedTuple):
    """What is wrong, and in which section and key; None where it is in none of them."""

    section: str | None
    key: str | None
    message: str


class IniText:
    """What the text of an INI file says.

    Attributes:
        defaults: the keys before the first section header, or under ``[DEFAULT]``.
        sections: name to the keys of its own, with their values as they are written.
        mistakes: all that is no INI. Where a name is there twice, its first value counts.
    """

    def __init__(self, text: str) -> None:
        self.mistakes: list[Mistake] = []
        self._lines: dict[str | None, dict[str, list[str]]] = {None: {}}
        self._numbers: dict[tuple[str | None, str | None], int] = {}
        self._section: str | None = None
        self._keys = self._lines[None]
        self._keys_may_repeat = False  # below a header that is a mistake itself
        self._value: list[str] | None = None  # takes the lines that go on with a value
        self._indent = 0
        for number, line in enumerate(text.split("\n"), 1):
            self._read(number, line)
        values = {name: {key: "\n".join(lines).strip() for key, lines in keys.items()} for name, keys in self._lines.items()}
        self.defaults = values.pop(None)
        self.sections: dict[str, dict[str, str]] = values  # type: ignore[assignment]  # None was the only other key

    def _mistake(self, section: str | None, key: str | None, message: str) -> None:
        self.mistakes.append(Mistake(section, key, message))

    def _read(self, number: int, line: str) -> None:
        comment = _COMMENT.search(line)
        content = line[: comment.start()].strip() if comment else line.strip()
        if not content:
            if self._value is not None and not comment:
                self._value.append("")
            return
        indent = len(line) - len(line.lstrip())
        if self._value is not None and indent > self._indent:
            self._value.append(content)
            return
        self._indent, self._value = indent, None
        if content.startswith("["):
            self._read_header(number, content)
        else:
            self._read_entry(number, content)

    def _read_header(self, number: int, content: str) -> None:
        header = _HEADER.fullmatch(content)
        if not header:
            self._mistake(None, None, f"line {number}: {quoted(content)} is not a [section] alone on its line")
        if not header or not self._is_name(number, header[1]):
            self._section, self._keys, self._keys_may_repeat = None, {}, True
            return
        self._section = None if header[1] == DEFAULTS else header[1]
        self._keys_may_repeat = self._section in self._lines and self._section is not None
        if self._keys_may_repeat:
            self._is_there_twice(number, None)
        self._numbers.setdefault((self._section, None), number)
        self._keys = self._lines.setdefault(self._section, {})

    def _read_entry(self, number: int, content: str) -> None:
        delimiter = _DELIMITER.search(content)
        key = content[: delimiter.start()].rstrip() if delimiter else ""
        if not delimiter or not key:
            self._mistake(None, None, f"line {number}: neither a [section] nor key = value: {quoted(content)}")
            return
        if not self._is_name(number, key):
            return
        self._value = [content[delimiter.end() :].strip()]
        if key not in self._keys:
            self._keys[key] = self._value
            self._numbers.setdefault((self._section, key), number)
        elif not self._keys_may_repeat:
            self._is_there_twice(number, key)

    def _is_there_twice(self, number: int, key: str | None) -> None:
        first = self._numbers[self._section, key]
        message = f"line {number}: already exists in line {first}: only one of them can be there"
        self._mistake(self._section, key, message)

    def _is_name(self, number: int, name: str) -> bool:
        """Names are shown to the user: nothing that a terminal takes for more than text."""
        if name.isprintable() and len(name) <= LONGEST_NAME:
            return True
        expected = f"expected at most {LONGEST_NAME} printable characters"
        self._mistake(None, None, f"line {number}: {quoted(name)} is not the name of a section or key: {expected}")
        return False
