"""No command of the documentation escapes the tests: it stands in a ``console`` block, and is run or says why not."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import io
import re
from collections import Counter
from pathlib import Path

import pytest
from doc_pages import COMMAND, PAGES, PROJECT, Block, blocks, inline_code, steps

from autotest.cli.arguments import build_parser
from autotest.config.ini import IniFile, injected_variables
from autotest.config.lines import IniText
from autotest.config.testbed import (
    GuestConfig,
    HostConfig,
    LabConfig,
    LoadGenConfig,
    LocalConfig,
)
from autotest.config.tests import load_sections
from autotest.measurements.load_matrix import PARAMETERS, SETTINGS

LANGUAGES = {"console", "ini", "json", "py", "python", "sh", "text", "yaml"}
NOT_RUN = {"README.md": 2, "CONTRIBUTING.md": 3, "real-testbed.md": 2, "tutorial.md": 3}
"""How many blocks of each page are marked as not run: each needs more than a machine of the tests has."""
ALL_BLOCKS = [block for page in PAGES for block in blocks(page)]


def by_place(found: list[Block]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("block", found, ids=[block.where for block in found])


@by_place(ALL_BLOCKS)
def test_each_block_says_what_it_is(block: Block) -> None:
    assert block.info in LANGUAGES, f"{block.where}: {block.info!r} is none of {sorted(LANGUAGES)}"


@by_place([block for block in ALL_BLOCKS if block.info != "console" and not block.not_run])
def test_commands_are_in_console_blocks_only(block: Block) -> None:
    commands = [line for line in block.text.splitlines() if COMMAND.match(line)]
    assert block.info == "sh" or not commands, f"{block.where}: write ```console and `$ ` before {commands}"
    assert block.info != "sh" or block.file, f"{block.where}: a script begins with its name, like `# notify.sh`"


@by_place([block for block in ALL_BLOCKS if block.info == "console"])
def test_console_blocks_have_commands_and_no_comments_in_what_is_shown(block: Block) -> None:
    assert steps(block)


def test_what_cannot_be_run_is_counted_and_says_why() -> None:
    marked = [block for block in ALL_BLOCKS if block.not_run]
    assert Counter(block.page.name for block in marked) == NOT_RUN
    for block in marked:
        assert len(block.not_run.split()) >= 3, f"{block.where}: {block.not_run!r} is no reason"


INLINE = [(f"{page.name}:{line}", code) for page in PAGES for line, code in inline_code(page)]
AUTOTEST = [(where, code) for where, code in INLINE if re.match(r"(?:sudo )?(?:\S*/)?autotest\s+\S", code)]


@pytest.mark.parametrize(("where", "code"), AUTOTEST, ids=[f"{where} {code}" for where, code in AUTOTEST])
def test_commands_within_text_are_commands_of_the_parser(where: str, code: str) -> None:
    words = re.sub(r"\.\.\.|[\[\]]", "", code.split("autotest", 1)[1].replace("${", "").replace("}", "")).split()
    printed = io.StringIO()
    with contextlib.redirect_stderr(printed), contextlib.redirect_stdout(printed):
        try:
            build_parser().parse_args(words)
        except SystemExit as error:
            # `autotest compare` alone names the command; an option that is unknown is something else
            names_it_alone = "the following arguments are required" in printed.getvalue()
            assert not error.code or names_it_alone, f"{where}: {printed.getvalue()}"


TESTBED = {"host": HostConfig, "guest": GuestConfig, "loadgen": LoadGenConfig, "local": LocalConfig, "lab": LabConfig}


@by_place([block for block in ALL_BLOCKS if block.info == "ini"])
def test_configurations_are_ones_that_autotest_takes(block: Block, tmp_path: Path) -> None:
    """Those of tests as they are; of a testbed, where a page shows a few keys, each value of a key that there is."""
    text = IniText(block.text)
    ini = IniFile(block.page, text, injected_variables(PROJECT))
    if not set(text.sections) & set(TESTBED):
        (tmp_path / "tests.conf").write_text(block.text)
        assert load_sections(tmp_path / "tests.conf", PROJECT, PARAMETERS, SETTINGS), block.where
        return
    ini.raise_problems()
    for section, keys in text.sections.items():
        parsers = {field.name: field.metadata["parse"] for field in dataclasses.fields(TESTBED[section])}
        for key in keys:
            parsers[key](ini.value(section, key))


@by_place([block for block in ALL_BLOCKS if block.info == "python"])
def test_python_is_python(block: Block) -> None:
    ast.parse(block.text)
