"""``tests.conf`` to sections, by what the measurement kind says of its parameters and settings."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from autotest.config import values
from autotest.config.ini import IniFile, read_ini
from autotest.errors import ConfigError, Problem
from autotest.plan.parameters import Parameter, Section, Setting

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


def _load_section(
    ini: IniFile, name: str, parameters: Sequence[Parameter], settings: Sequence[Setting]
) -> Section:
    known = {setting.name for setting in settings}
    lists: dict[str, tuple[Any, ...]] = {}
    for parameter in parameters:
        known.update((parameter.key, *parameter.older_keys))
        lists[parameter.name] = _load_list(ini, name, parameter)
    single = {setting.name: _load_setting(ini, name, setting) for setting in settings}
    for key in ini.keys(name):
        if key not in known and not ini.is_inherited(key):
            ini.problem(name, key, f"unknown key{values.nearest(key, sorted(known))}")
    return Section(name, MappingProxyType(lists), MappingProxyType(single), ini.path)


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
            value = parameter.parse(entry, ini.path.parent) if parameter.names_files else parameter.parse(entry)
        except ValueError as error:
            ini.problem(section, key, str(error))
            continue
        shown = parameter.show(value)
        if shown in found:
            ini.problem(section, key, f"{shown} is there twice")
        found[shown] = value
    if not found and not ini.has_problem(section, key):
        ini.problem(section, key, "is an empty list: expected at least one value")
    return tuple(found.values())


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
