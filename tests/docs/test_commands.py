"""Every command of the documentation is run, page by page and in order, and prints what the page shows.

``console`` blocks hold commands behind ``$ `` and below them what is printed; an exit code other than 0 is shown by
``echo $?`` as the next command. ``python`` blocks are run as programs. Blocks of other languages that begin with a comment like
``# campaign.conf`` are written into that file. Commands for machines with names reach those of a lab, which the SSH
configuration calls so.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import doc_worlds as worlds
import pytest
from doc_pages import PAGES, Block, blocks, steps
from doc_terminal import Terminal, missing_line
from labtest import PROJECT, LabCommand, lab_command, own_lab
from traces import NAME, clear

pytestmark = pytest.mark.default

LAB = f"{NAME}-docs"
WORLDS: dict[str, worlds.Fill] = {
    "add-interface-kind.md": worlds.examples,
    "add-measurement-kind.md": worlds.examples,
    "campaign.md": worlds.small_lab,
    "check.md": worlds.small_lab,
    "real-testbed.md": worlds.real_machines_with_image,
    "running.md": worlds.small_lab,
    "tutorial.md": worlds.nothing,
}
"""What a page's reader has in front of them; where nothing else is said, the results of a campaign."""
ON_REAL_MACHINES = (worlds.real_machines, worlds.real_machines_with_image)
SLOWLY = "scripts/test.sh --all runs it"
"""What the mark of a block says that the slow test runs."""
LONG = ("add-measurement-kind.md", "plots.md", "real-testbed.md", "running.md", "tutorial.md")
RUNNABLE = ("console", "python")


def _pages() -> Iterator[object]:
    """Yield the pages with commands; those whose reader has a lab need the machine to themselves, and some take minutes."""
    for page in PAGES:
        if any(block.info in RUNNABLE and not block.not_run for block in blocks(page)):
            alone = [pytest.mark.alone] if page.name in WORLDS else []
            yield pytest.param(page, id=page.name, marks=[*alone, *([pytest.mark.all] if page.name in LONG else [])])


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder with what the commands call: autotest of this checkout, Python, sudo for root, ssh that looks into HOME."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, command in {
        "autotest": f'exec {sys.executable} -m autotest "$@"',
        "python": f'exec {sys.executable} "$@"',
        "sudo": '[ "$1" = -n ] && shift; exec "$@"',
        "ssh": 'exec /usr/bin/ssh -F "$HOME/.ssh/config" -o StrictHostKeyChecking=accept-new "$@"',
    }.items():
        (folder / name).write_text(f"#!/bin/sh\n{command}\n")
        (folder / name).chmod(0o755)
    return folder


class Reader:
    """Does what a page says.

    Attributes:
        ran: how many commands.
    """

    def __init__(self, terminal: Terminal, world: worlds.World, lab: LabCommand) -> None:
        self.ran = 0
        self._terminal = terminal
        self._world = world
        self._lab = lab

    def follow(self, block: Block) -> None:
        if block.info == "console":
            self._run(block)
        elif block.info == "python" and not block.file:
            (self._terminal.folder / ".block.py").write_text(block.text)
            printed = self._terminal.run("python .block.py")
            assert self._terminal.code == 0, f"{block.where}:\n{printed}"
            self.ran += 1
        elif block.file:
            (self._terminal.folder / block.file).write_text(block.text)

    def _run(self, block: Block) -> None:
        lines = steps(block)
        for step, following in zip(lines, [*lines[1:], None], strict=True):
            command = step.command
            for text, ours in self._world.replaced.items():
                command = command.replace(text, ours)
            printed = self._terminal.run(command)
            for text, ours in self._world.replaced.items():
                printed = printed.replace(ours, text)
            where = f"{block.where}: {command}"
            asked = following is not None and following.command == "echo $?"
            assert asked or self._terminal.code == 0, f"{where}\nexit code {self._terminal.code}\n{printed}"
            if step.command == "echo $?":
                assert (printed.strip(),) == step.shown, f"{where}\n{printed}"
            missing = missing_line(step.shown, printed.replace(LAB, "autotest"))
            assert missing is None, f"{where}\n{missing}"
            for file in self._terminal.folder.glob("*.conf"):
                worlds.make_own(file, self._lab)
            self.ran += 1


def _cleared(config: Path) -> Iterator[LabCommand]:
    """Yield the lab, without what a run left that was ended halfway."""
    clear()
    yield from lab_command(config)


def read(page: Path, fill: worlds.Fill, tmp_path: Path, programs: Path, slowly: bool = False) -> None:
    """Follow a page in a new folder beside a lab of its own, which is taken down in the end: nothing may be left of it."""
    source = "configs/lab-ssh.conf" if fill in ON_REAL_MACHINES else "autotest.conf"
    folder = tmp_path / "work"
    folder.mkdir()
    config = own_lab(PROJECT / source, tmp_path / f"{LAB}.conf", LAB)
    for lab in [LabCommand(config)] if fill is worlds.results else _cleared(config):
        world = fill(folder, lab)
        environment = {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "AUTOTEST_TEST_LAB": NAME,
            "PYTHONUNBUFFERED": "1",
            "COLUMNS": "130",
            "NO_COLOR": "1",
            **world.environment,
        }
        terminal = Terminal(folder, tmp_path / "state", environment, timeout=600 if slowly else 240)
        reader = Reader(terminal, world, lab)
        try:
            for block in blocks(page):
                if not block.not_run or (slowly and SLOWLY in block.not_run):
                    reader.follow(block)
            assert reader.ran
        finally:
            if fill in ON_REAL_MACHINES:  # of which the lab knows nothing
                terminal.run(f"cd -- {shlex.quote(str(folder))} && autotest recover")


@pytest.mark.parametrize("page", list(_pages()))
def test_each_command_of_a_page_does_what_the_page_says(page: Path, tmp_path: Path, programs: Path) -> None:
    read(page, WORLDS.get(page.name, worlds.results), tmp_path, programs)


@pytest.mark.all
@pytest.mark.alone
def test_a_real_testbed_is_set_up_by_its_page_alone_with_the_image_that_it_makes(tmp_path: Path, programs: Path) -> None:
    [page] = [page for page in PAGES if page.name == "real-testbed.md"]
    assert any(SLOWLY in block.not_run for block in blocks(page))
    read(page, worlds.real_machines, tmp_path, programs, slowly=True)
