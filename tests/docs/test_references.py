"""The reference pages name every key, command and message that there is, with its true default."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest
from doc_pages import PROJECT

from autotest.cli.arguments import build_parser
from autotest.config.testbed import (
    GuestConfig,
    HostConfig,
    LabConfig,
    LocalConfig,
    ServerConfig,
)
from autotest.config.tests import EXCLUDE
from autotest.measurements.load_matrix import PARAMETERS, SETTINGS

DOCS = PROJECT / "docs"


def table(page: str, heading: str) -> dict[str, list[str]]:
    """The rows of the table below a heading, by each name that stands in their first cell."""
    section = re.split(r"^#+ ", (DOCS / page).read_text(), flags=re.MULTILINE)
    [text] = [part for part in section if part.partition("\n")[0] == heading]
    rows = re.findall(r"^\| (.+) \|$", text.replace("\\|", "\0"), re.MULTILINE)
    cells = [[cell.strip() for cell in row.split("|")] for row in rows]
    return {name: row[1:] for row in cells for name in re.findall(r"`([^`]+)`", row[0])}


SECTIONS = {
    "All three servers": (ServerConfig, ()),
    "`[host]`": (HostConfig, dataclasses.fields(ServerConfig)),
    "`[guest]`": (GuestConfig, dataclasses.fields(ServerConfig)),
    "`[local]`": (LocalConfig, ()),
    "`[lab]`": (LabConfig, ()),
}


@pytest.mark.parametrize("heading", SECTIONS)
def test_every_key_of_a_testbed_stands_in_its_table_with_its_default(heading: str) -> None:
    config, inherited = SECTIONS[heading]
    ours = {field.name: field for field in dataclasses.fields(config)}
    for field in inherited:
        del ours[field.name]
    rows = table("configuration.md", heading)
    assert list(rows) and set(rows) == set(ours)
    for name, (_, default, text) in rows.items():
        assert text, name
        shown = re.findall(r"`([^`]+)`", default)
        parse, value = ours[name].metadata["parse"], ours[name].default
        assert value in [parse(one) for one in shown] if shown else value in (None, "", ()), f"{name}: the default is {value!r}"


def test_every_command_is_in_the_table_of_commands() -> None:
    names = re.findall(r"^    ([a-z][a-z-]+)", build_parser().format_help(), re.MULTILINE)
    assert len(names) > 15
    page = (DOCS / "commands.md").read_text()
    for name in names:
        assert re.search(rf"^\|[^|]*`{name}\b", page, re.MULTILINE), name


def test_every_key_of_a_campaign_stands_in_its_table_with_its_default() -> None:
    lists, single = table("campaign.md", "Lists"), table("campaign.md", "Single values")
    assert set(lists) == {key for parameter in PARAMETERS for key in (parameter.key, *parameter.older_keys)}
    assert set(single) == {setting.name for setting in SETTINGS} | {EXCLUDE}
    for parameter in PARAMETERS:
        default = lists[parameter.key][1]
        expected = "" if parameter.default is None else ", ".join(parameter.show(value) for value in parameter.default)
        assert default.replace("`", "") == expected, parameter.key
    for setting in SETTINGS:
        default = single[setting.name][1].replace("`", "")
        assert (setting.parse(default) if default else None) == setting.default, setting.name


_TITLES = re.findall(r"^\*\*`.+`\*\*.*$", (DOCS / "troubleshooting.md").read_text(), re.MULTILINE)
MESSAGES = [message for title in _TITLES for message in re.findall(r"\*\*`([^`]+)`\*\*", title)]
_SOURCES = sorted((PROJECT / "autotest").rglob("*.py"))
SOURCE = re.sub(r'"\s*\n\s*f?"', "", "\n".join(path.read_text() for path in _SOURCES))  # texts of several lines in one
OF_LINUX = ("No space left on device",)


def in_source(message: str) -> bool:
    """Whether a text of the source has its words in their order: ``...`` and words in capitals are what differs."""
    parts = [part.strip() for part in re.split(r"\.\.\.|\b[A-Z]{4}\b", message)]
    return bool(re.search(".{0,120}?".join(re.escape(part) for part in parts if part), SOURCE))


@pytest.mark.parametrize("message", MESSAGES)
def test_a_message_that_is_explained_is_still_printed(message: str) -> None:
    assert message in OF_LINUX or in_source(message)


def test_messages_are_there_and_others_are_found() -> None:
    assert len(MESSAGES) > 60
    assert not in_source("no such message of autotest")


def test_the_packages_of_the_tutorial_are_those_that_the_scripts_install() -> None:
    [listed] = re.findall(r"^lab_packages=\(\n(.+?)^\)", (PROJECT / "scripts/lib.sh").read_text(), re.MULTILINE | re.DOTALL)
    [named] = re.findall(r"apt-get install (.+?)\n```", (DOCS / "tutorial.md").read_text(), re.DOTALL)
    assert named.replace("\\\n", " ").split() == listed.split()


def test_the_readme_is_one_page() -> None:
    assert len(Path(PROJECT / "README.md").read_text().splitlines()) < 100
