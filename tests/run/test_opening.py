"""What a process that was killed left is found by the next start, also where nothing is left to measure."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from autotest.config.testbed import GuestConfig, HostConfig, LoadGenConfig, Testbed
from autotest.run import interruption
from autotest.run.journal import Change, Journal
from autotest.run.opening import recover_if_needed
from autotest.run.recovery import journal_folder, left_journals

HELD = Path("/run/autotest/held")
_KILLED = """
import os, signal, sys
from pathlib import Path
from autotest.config.testbed import GuestConfig, HostConfig, LoadGenConfig, Testbed
from autotest.run.opening import open_as_it_is

host = HostConfig(fqdn="localhost", tmux_socket=sys.argv[1])
testbed = Testbed(Path("a.conf"), host, GuestConfig(fqdn="nobody.invalid"), LoadGenConfig(fqdn="localhost"))
with open_as_it_is(testbed) as servers:
    for path in sys.argv[2:]:
        servers.host.note("file", path=path)
        Path(path).touch()
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def testbed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Testbed:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    host = HostConfig(fqdn="localhost", tmux_socket=f"at-fast-{os.getpid()}")
    return Testbed(Path("a.conf"), host, GuestConfig(fqdn="nobody.invalid"), LoadGenConfig(fqdn="localhost"))


def _records(testbed: Testbed) -> list[Path]:
    return [path for path in HELD.glob("*.held") if testbed.host.tmux_socket in bytes.fromhex(path.stem).decode()]


def _run_and_kill(testbed: Testbed, *paths: Path) -> None:
    command = [sys.executable, "-c", _KILLED, testbed.host.tmux_socket, *map(str, paths)]
    assert subprocess.run(command, check=False, timeout=30).returncode == -signal.SIGKILL


@pytest.mark.default
def test_what_a_killed_process_changed_is_undone_and_what_it_held_is_given_back(testbed: Testbed, tmp_path: Path) -> None:
    _run_and_kill(testbed, tmp_path / "changed")
    assert (tmp_path / "changed").exists()
    recover_if_needed(testbed)
    assert not (tmp_path / "changed").exists()
    assert not journal_folder(testbed).exists()
    assert not _records(testbed)


@pytest.mark.default
def test_a_process_that_was_killed_before_its_first_change_is_known_too(testbed: Testbed) -> None:
    _run_and_kill(testbed)
    assert _records(testbed)
    recover_if_needed(testbed)
    assert not _records(testbed)
    assert not journal_folder(testbed).exists()


def test_without_anything_left_nothing_is_opened(testbed: Testbed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autotest.run.opening.open_as_it_is", lambda testbed: pytest.fail("opened"))
    recover_if_needed(testbed)


def test_a_journal_that_was_being_written_by_a_process_that_ended_is_removed(testbed: Testbed) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    folder = journal_folder(testbed)
    folder.mkdir(parents=True)
    (folder / f".2026-01-01T000000+0000-{ended.pid}.journal.new").write_text('{"ver')
    living = folder / f".2026-01-01T000000+0000-{os.getpid()}.journal.new"
    living.touch()
    assert left_journals(testbed) == []
    assert list(folder.iterdir()) == [living]


def test_in_a_hurry_what_ends_with_a_machine_is_not_undone_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    undone: list[str] = []

    def undo(change: Change) -> None:
        undone.append(change.details["name"])

    journal = Journal(undo)
    with pytest.raises(KeyboardInterrupt), journal.scope():
        journal.note("host", "guest", machine="guest", details={"name": "QEMU"})
        with journal.scope():
            journal.note("guest", "xdp", details={"name": "in the guest"})
            monkeypatch.setattr("autotest.run.journal.requested", lambda: True)
            raise KeyboardInterrupt
    assert undone == ["QEMU"]
    assert journal.standing == ()


def no_signal_is_ignored() -> None:
    """As under nohup, or in the background of a shell; what is ignored stays so by design."""
    for number in interruption.SIGNALS:
        signal.signal(number, signal.SIG_DFL)


@pytest.mark.parametrize("number", interruption.SIGNALS)
def test_the_exit_code_is_that_of_an_interruption_wherever_it_comes(number: int, tmp_path: Path) -> None:
    program = (
        "import os, sys\nfrom autotest.run import interruption\ninterruption.handle_signals()\n"
        f"try:\n    exec('os.kill(os.getpid(), {number})\\nfor each in range(99): pass')\n"
        f"except KeyboardInterrupt:\n    interruption.ignore_signals()\n    os.kill(os.getpid(), {number})\n    sys.exit(130)"
    )
    (tmp_path / "interrupted.py").write_text(program)
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}:{Path(__file__).parents[2]}"}
    ended = subprocess.run(
        [sys.executable, "-m", "interrupted"], env=environment, check=False, timeout=30, preexec_fn=no_signal_is_ignored
    )
    assert ended.returncode == 130
