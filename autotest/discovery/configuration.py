"""The two files for a plan: the templates filled in, and tried before they are written anywhere."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from autotest.config import values
from autotest.config.testbed import (
    GuestConfig,
    HostConfig,
    LoadGenConfig,
    LocalConfig,
    Testbed,
    load_testbed,
)
from autotest.config.tests import load_sections
from autotest.discovery.proposals import (
    NO_GUEST,
    SOFTMOON,
    Plan,
    values_of_testbed,
    values_of_tests,
)
from autotest.discovery.template import Values, fill, literal
from autotest.errors import ConfigError, UsageError
from autotest.resources import PROJECT_DIRECTORY

TESTBED_FILE: Final = "autotest.conf"
TESTS_FILE: Final = "tests.conf"
TESTBED_TEMPLATE: Final = PROJECT_DIRECTORY / "configs/real-testbed.conf"
TESTS_TEMPLATE: Final = PROJECT_DIRECTORY / TESTS_FILE

Given = dict[str, str]
"""Values that the user gave, by ``section.key``."""

_SECTIONS: dict[str, type] = {"host": HostConfig, "guest": GuestConfig, "loadgen": LoadGenConfig, "local": LocalConfig}
_WORDS = (("host.root_disk_file", NO_GUEST), ("host.moongen_dir", SOFTMOON), ("loadgen.moongen_dir", SOFTMOON))
"""What stands for the lack of something, and is no value itself."""
_INTRODUCTION = """\
# The testbed of host {host} and loadgen {loadgen}, written by `autotest init`. Keys that are commented out are optional.
# `autotest check` says what is missing. What each kind of interface needs: docs/interfaces.md.
"""


def parse_key(name: str, text: str) -> Any:
    """The value of ``section.key`` as ``autotest.conf`` has it.

    Raises:
        ValueError: there is no such key, or this is no value of it.
    """
    section, dot, key = name.partition(".")
    if not dot or section not in _SECTIONS:
        raise ValueError(f"{values.quoted(name)} is not SECTION.KEY: sections are {', '.join(_SECTIONS)}")
    parsers = {entry.name: entry.metadata["parse"] for entry in dataclasses.fields(_SECTIONS[section])}
    if key not in parsers:
        raise ValueError(f"unknown key {values.quoted(key)} of [{section}]{values.nearest(key, list(parsers))}")
    literal(text)
    return parsers[key](text)


def parse_given(texts: Sequence[str]) -> Given:
    """What ``--set SECTION.KEY=VALUE`` gave.

    Raises:
        UsageError: one of them is no such thing.
    """
    found: Given = {}
    for text in texts:
        name, equals, value = text.partition("=")
        try:
            if not equals:
                raise ValueError("expected SECTION.KEY=VALUE")
            parse_key(name.strip(), value.strip())
        except ValueError as error:
            raise UsageError(f"--set {text}: {error}") from None
        found[name.strip()] = value.strip()
    return found


def contents_of(plan: Plan, given: Mapping[str, str], folder: Path) -> dict[str, str]:
    """What the two files in that folder are to hold, by name.

    Raises:
        ConfigError: values do not fit together; it names them as if they were there already.
    """
    try:
        wanted = values_of_testbed(plan)
    except ValueError as error:  # of a path that was found
        raise UsageError(str(error)) from None
    for name, text in given.items():
        if (name, text) in _WORDS:
            continue
        section, _, key = name.partition(".")
        wanted.setdefault(section, {})[key] = literal(text)
    introduction = _INTRODUCTION.format(host=plan.host_name, loadgen=plan.loadgen_name)
    contents = {
        TESTBED_FILE: fill(TESTBED_TEMPLATE.read_text(encoding="utf-8"), wanted, introduction),
        TESTS_FILE: fill(TESTS_TEMPLATE.read_text(encoding="utf-8"), values_of_tests(plan)),
    }
    with tempfile.TemporaryDirectory(prefix="autotest-init-") as temporary:
        try:
            testbed = _load(Path(temporary), contents)
        except ConfigError as error:
            raise ConfigError([dataclasses.replace(each, file=folder / each.file.name) for each in error.problems]) from None
    _require_as_meant(testbed, wanted)
    return contents


def _require_as_meant(testbed: Testbed, wanted: Values) -> None:
    """Raises UsageError where a value that refers to no other is read back as another one."""
    for section in _SECTIONS.keys() & wanted.keys():
        for key, text in wanted[section].items():
            plain = (text or "").replace("$$", "")
            if plain and "$" not in plain:
                meant = parse_key(f"{section}.{key}", (text or "").replace("$$", "$"))
                found = getattr(getattr(testbed, section), key)
                if found != meant:
                    raise UsageError(f"[{section}] {key}: {meant!r} would be read as {found!r}")


def _load(folder: Path, contents: Mapping[str, str]) -> Testbed:
    """What autotest will read. Raises ConfigError where it would not."""
    from autotest.measurements.load_matrix import PARAMETERS, SETTINGS

    for name, text in contents.items():
        (folder / name).write_text(text, encoding="utf-8")
    testbed = load_testbed(folder / TESTBED_FILE, PROJECT_DIRECTORY)
    load_sections(folder / TESTS_FILE, PROJECT_DIRECTORY, PARAMETERS, SETTINGS)
    return testbed
