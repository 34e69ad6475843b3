"""``tests.conf`` to sections, by what the measurement kind says of its parameters and settings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from autotest.config import values
from autotest.config.ini import IniFile, read_ini
from autotest.errors import ConfigError, Problem
from autotest.plan.narrowing import Vocabulary
from autotest.plan.parameters import Parameter, Section, Setting

EXCLUDE = "exclude"
_SEPARATOR = re.compile(r"[,\n]")


def load_sections(
    path: Path, project_directory: Path, parameters: Sequence[Parameter], settings: Sequence[Setting]
) -> list[Section]:
    """Read one ``tests.conf``.

    A setting that is a Path counts from the folder that the file is in, where it is relative; so do the files that values of
    parameters name, which are read here.

    Raises:
        ConfigError: with every problem found.
    """
    ini = read_ini(path, project_directory)
    if {"host", "guest", "loadgen"} <= set(ini.sections):
        raise ConfigError([Problem(path, None, None, "describes a testbed, not tests: give it with -c")])
    if not ini.sections and not ini.has_problems():
        ini.problem(None, None, "has no section: expected at least one like [load-latency]")
    sections = [_load_section(ini, name, parameters, settings) for name in ini.sections]
    ini.check_defaults(_known(parameters, settings))
    if not ini.has_problems():  # of lists that are wrong nobody knows what they hold
        sections = [_without_excluded(ini, section, sections, parameters) for section in sections]
    ini.raise_problems()
    return sections


def load_all(
    paths: Sequence[Path], project_directory: Path, parameters: Sequence[Parameter], settings: Sequence[Setting]
) -> list[Section]:
    """Read several files; the problems of all of them are raised together."""
    sections: list[Section] = []
    problems: list[Problem] = []
    for path in paths:
        try:
            sections += load_sections(path, project_directory, parameters, settings)
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)
    return sections


def _load_section(ini: IniFile, name: str, parameters: Sequence[Parameter], settings: Sequence[Setting]) -> Section:
    known = _known(parameters, settings)
    lists = {parameter.name: _load_list(ini, name, parameter) for parameter in parameters}
    single = {setting.name: _load_setting(ini, name, setting) for setting in settings}
    for key in ini.keys(name):
        if key not in known and not ini.is_inherited(key):
            ini.problem(name, key, f"unknown key{values.nearest(key, sorted(known))}")
    return Section(name, MappingProxyType(lists), MappingProxyType(single), ini.path)


def _known(parameters: Sequence[Parameter], settings: Sequence[Setting]) -> set[str]:
    lists = {key for parameter in parameters for key in (parameter.key, *parameter.older_keys)}
    return lists | {setting.name for setting in settings} | {EXCLUDE}


def _without_excluded(ini: IniFile, section: Section, sections: Sequence[Section], parameters: Sequence[Parameter]) -> Section:
    """With each line of its ``exclude``; what every section inherits can name the values of any."""
    vocabulary = Vocabulary(parameters, [section] if EXCLUDE in ini.keys(section.name) else sections)
    found = []
    for line in filter(None, map(str.strip, (ini.value(section.name, EXCLUDE) or "").splitlines())):
        try:
            found.append(vocabulary.exclude(line, f"exclude rule {line!r}"))
        except ValueError as error:
            ini.problem(section.name, EXCLUDE, str(error))
    return replace(section, excludes=tuple(found))


def _load_list(ini: IniFile, section: str, parameter: Parameter) -> tuple[Any, ...]:
    keys = (parameter.key, *parameter.older_keys)
    given = [(key, text) for key in keys if (text := ini.value(section, key)) is not None]
    if len(given) > 1:
        ini.problem(section, given[1][0], f"says the same as {given[0][0]}: only one of them can be there")
    if not given:
        if parameter.default is None and not any(ini.has_problem(section, key) for key in keys):
            ini.problem(section, parameter.key, "is missing: expected a list, separated by commas")
        return parameter.default or ()
    key, text = given[0]
    found: dict[str, Any] = {}  # by what is shown: what shows alike has the same result names
    for entry in filter(None, (part.strip() for part in _SEPARATOR.split(text))):
        try:
            for value in _values(parameter, entry, ini.path.parent):
                shown = parameter.show(value)
                if shown in found:
                    raise ValueError(f"{shown} is there twice")
                found[shown] = value
        except ValueError as error:
            ini.problem(section, key, str(error))
    if not found and not ini.has_problem(section, key):
        ini.problem(section, key, "is an empty list: expected at least one value")
    return tuple(found.values())


def _values(parameter: Parameter, entry: str, folder: Path) -> Iterator[Any]:
    """Those of one entry of a list: several, where it is a range. Raises ValueError with what would be right."""
    numbers = parameter.quantity.range(entry) if parameter.quantity else None
    for text in [entry] if numbers is None else map(str, numbers):
        try:
            yield parameter.parse(text, folder) if parameter.names_files else parameter.parse(text)
        except ValueError as error:
            raise ValueError(f"{values.quoted(entry)}: {error}" if text is not entry else str(error)) from None


def _load_setting(ini: IniFile, section: str, setting: Setting) -> Any:
    text = ini.value(section, setting.name)
    if not text:
        if setting.default is None and not ini.has_problem(section, setting.name):
            ini.problem(section, setting.name, "is missing")
        return setting.default
    try:
        value = setting.parse(text)
    except ValueError as error:
        ini.problem(section, setting.name, str(error))
        return setting.default
    except RuntimeError:  # of Path.expanduser: ~name, and nobody has that name
        ini.problem(section, setting.name, f"{values.quoted(text)} begins with the home folder of nobody")
        return setting.default
    return ini.path.parent / value if isinstance(value, Path) else value
