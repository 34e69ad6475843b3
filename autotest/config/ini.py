"""Reading an INI file with ``${section:key}`` interpolation, collecting every problem on the way."""

from __future__ import annotations

import configparser
import getpass
import re
from collections.abc import Mapping
from pathlib import Path

from autotest.errors import ConfigError, Problem

_SECTION_HEADER = re.compile(r"^\[[^\]\n]*\]", re.MULTILINE)


class IniFile:
    """The sections of one file as plain text values, and the problems found so far.

    ``defaults`` are the keys that every section inherits: they may be mere variables, so they are never unknown.
    """

    def __init__(
        self,
        path: Path,
        sections: Mapping[str, Mapping[str, str]],
        defaults: frozenset[str],
        problems: list[Problem],
    ) -> None:
        self.path = path
        self.sections = sections
        self.defaults = defaults
        self.problems = problems

    def problem(self, section: str | None, key: str | None, message: str) -> None:
        self.problems.append(Problem(self.path, section, key, message))

    def has_problem(self, section: str, key: str) -> bool:
        """Whether something is wrong with that key already."""
        return any(problem.key == key and problem.section in (section, None) for problem in self.problems)

    def raise_problems(self) -> None:
        """Raises ConfigError when there is any problem."""
        if self.problems:
            raise ConfigError(self.problems)


def injected_variables(project_directory: Path) -> dict[str, str]:
    """The variables that every configuration file can use, like ``${username}``.

    A dollar sign in their values is doubled, so that it stands for itself.
    """
    try:
        username = getpass.getuser()
    except (KeyError, OSError):
        username = "unknown"
    variables = {
        "username": username,
        "projectDirectory": str(project_directory),
        "projectDirectoryName": project_directory.name,
        "projectDirectoryParent": str(project_directory.parent),
    }
    return {key: value.replace("$", "$$") for key, value in variables.items()}


def read_ini(path: Path, project_directory: Path) -> IniFile:
    """Read and interpolate the file.

    Keys before the first section header count as defaults of every section, as older files have them.

    Raises:
        ConfigError: the file cannot be read, is not UTF-8, or is not INI.
    """
    parser = configparser.ConfigParser(
        interpolation=configparser.ExtendedInterpolation(), inline_comment_prefixes=("#",), strict=True
    )
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # keys keep their case
    try:
        content = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise ConfigError([Problem(path, None, None, "no such file")]) from None
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise ConfigError([Problem(path, None, None, f"cannot be read: {error}")]) from None
    first_header = _SECTION_HEADER.search(content)
    head = content[: first_header.start()] if first_header else content
    added_lines = 0
    if any(line.strip() and not line.lstrip().startswith(("#", ";")) for line in head.splitlines()):
        content = f"[{parser.default_section}]\n" + content
        added_lines = 1
    try:
        parser.read_dict({parser.default_section: injected_variables(project_directory)})
        parser.read_string(content, source=str(path))
    except configparser.Error as error:
        raise ConfigError(_syntax_problems(path, error, added_lines)) from None
    return _interpolated(path, parser)


def _syntax_problems(path: Path, error: configparser.Error, added_lines: int) -> list[Problem]:
    """What is no INI, by section and key, or by line in the file as the user has it."""
    if isinstance(error, (configparser.DuplicateOptionError, configparser.DuplicateSectionError)):
        line = f" (line {error.lineno - added_lines})" if error.lineno else ""
        key = getattr(error, "option", None)
        return [Problem(path, error.section, key, f"already exists further up{line}: only one of them can be there")]
    lines = getattr(error, "errors", None)
    if lines:
        message = "line {}: neither a [section] nor key = value: {}"
        return [Problem(path, None, None, message.format(number - added_lines, text)) for number, text in lines]
    return [Problem(path, None, None, " ".join(str(error).split()))]


def _interpolated(path: Path, parser: configparser.ConfigParser) -> IniFile:
    problems: dict[tuple[str | None, str], Problem] = {}
    sections: dict[str, dict[str, str]] = {}
    for name in parser.sections():
        sections[name] = {}
        for key in parser.options(name):
            try:
                sections[name][key] = parser.get(name, key).strip()
            except (configparser.Error, RecursionError) as error:
                where = None if key in parser.defaults() else name
                problem = Problem(path, where, key, " ".join(str(error).split()))
                problems.setdefault((where, key), problem)  # a default of all sections is wrong once
    return IniFile(path, sections, frozenset(parser.defaults()), list(problems.values()))
