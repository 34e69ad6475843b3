"""Reading an INI file with ``${section:key}`` references, collecting every problem on the way."""

from __future__ import annotations

import getpass
from collections.abc import Collection, Iterable
from pathlib import Path

from autotest.config.lines import IniText, Mistake
from autotest.config.references import References, referred_to
from autotest.config.values import nearest
from autotest.errors import ConfigError, Problem

MOST_BYTES = 1 << 20  # of a file: whatever is larger is no configuration
_SIMILAR, _NEARLY = 0.6, 0.8  # as difflib has it: difflib's own choice, and no more than a slip of the pen
_BY_INIT = ("autotest.conf", "tests.conf")
_WRITTEN_BY_INIT = f": autotest init writes {' and '.join(_BY_INIT)}"
LONGEST_MESSAGE = 500  # characters: a message may quote a value, and values have any length


class IniFile:
    """The sections of one file as plain text values, and the problems found so far."""

    def __init__(self, path: Path, text: IniText, variables: dict[str, str]) -> None:
        self.path = path
        self._sections = text.sections
        self._defaults_of_file = text.defaults
        self._defaults = variables | text.defaults
        self._references = References(self._defaults, text.sections)
        self._problems: dict[Problem, None] = {}
        self._flawed: set[tuple[str | None, str | None]] = set()
        for mistake in text.mistakes:
            self.problem(*mistake)
        self._check_references()

    def _check_references(self) -> None:
        """Those of keys that nobody asks for too; inherited ones in the first section, which stands for all."""
        for number, (section, keys) in enumerate(self._sections.items()):
            for key in {**self._defaults, **keys} if number == 0 else keys:
                self.value(section, key)

    @property
    def sections(self) -> Iterable[str]:
        """Their names, in the order of the file."""
        return self._sections.keys()

    def keys(self, section: str) -> Iterable[str]:
        """The keys that the section has itself."""
        return self._sections[section].keys()

    def value(self, section: str, key: str) -> str | None:
        """The value of a key; None where there is none, or something is wrong with its references."""
        found = self._references.value(section, key)
        if isinstance(found, Mistake):
            self.problem(*found)
            self._flawed.add((section, key))
            return None
        return None if found is None else found.strip()

    def is_inherited(self, key: str) -> bool:
        """Whether every section has the key, its own or not: :meth:`check_defaults` looks whether it is known."""
        return key in self._defaults

    def check_defaults(self, known: Collection[str], free: bool = False) -> None:
        """Note the inherited keys that are neither known nor variables that a ``${}`` refers to: mistyped, they would be lost.

        Where ``free``, variables that nothing refers to are fine, as older files have them, but for names that are nearly known.
        """
        written = [*self._defaults_of_file.values(), *(value for keys in self._sections.values() for value in keys.values())]
        fine = referred_to(written) | set(known)
        for key in self._defaults_of_file:
            if key in fine or (None, key) in self._flawed:
                continue
            like = nearest(key, sorted(known), _NEARLY if free else _SIMILAR)
            if like or not free:
                self.problem(None, key, f"unknown key{like}: no section has it, and no ${{{key}}} refers to it")

    def problem(self, section: str | None, key: str | None, message: str) -> None:
        """Note what is wrong; what is wrong with an inherited value is one problem, not one of each section."""
        if key in self._defaults and key not in self._sections.get(section or "", ()):
            section = None
        if len(message) > LONGEST_MESSAGE:
            message = message[:LONGEST_MESSAGE] + "..."
        self.add(Problem(self.path, section, key, message))

    def add(self, problem: Problem) -> None:
        """Note a problem as it is."""
        self._problems[problem] = None
        self._flawed.add((problem.section, problem.key))

    def has_problem(self, section: str, key: str) -> bool:
        """Whether something is wrong with that key already."""
        return (section, key) in self._flawed or (None, key) in self._flawed

    def has_problem_in(self, section: str) -> bool:
        """Whether something is wrong in that section already."""
        return any(problem.section == section for problem in self._problems)

    def has_problems(self) -> bool:
        return bool(self._problems)

    def raise_problems(self) -> None:
        """Raises ConfigError when there is any problem."""
        if self._problems:
            raise ConfigError(tuple(self._problems))


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
    """Read the file and replace its references.

    Keys before the first section header count as defaults of every section, as older files have them.

    Raises:
        ConfigError: the file cannot be read, or is not text in UTF-8.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        raise ConfigError([Problem(path, None, None, f"no such file{_WRITTEN_BY_INIT * (path.name in _BY_INIT)}")]) from None
    except IsADirectoryError:
        raise ConfigError([Problem(path, None, None, "is a directory, not a configuration file")]) from None
    except (OSError, ValueError) as error:  # ValueError: a zero byte in its name
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError([Problem(path, None, None, f"cannot be read: {reason}")]) from None
    if len(content) > MOST_BYTES:
        raise ConfigError([Problem(path, None, None, f"has more than {MOST_BYTES} bytes: not a configuration")])
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError([Problem(path, None, None, f"cannot be read: line {line} is not text in UTF-8")]) from None
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return IniFile(path, IniText(text), injected_variables(project_directory))
