"""The journal of several machines that are set up at the same time, each by a thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from autotest.errors import ConnectError, TestbedError
from autotest.run import journal as journal_module
from autotest.run.journal import Change, Journal, UndoFailed, read_journal

MACHINES = tuple(f"guest{number}" for number in range(2, 8))
EACH = 60
_LONG = 20.0  # seconds, which no test that passes waits


def at_once(work: Callable[[str], None]) -> None:
    """Do the work for each machine in a thread of its own, all beginning together."""
    ready, errors = threading.Barrier(len(MACHINES)), list[Exception]()

    def run(machine: str) -> None:
        try:
            ready.wait(_LONG)
            work(machine)
        except Exception as error:  # noqa: BLE001  # looked at below
            errors.append(error)

    threads = [threading.Thread(target=run, args=(machine,)) for machine in MACHINES]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(_LONG)
    assert not errors and not any(thread.is_alive() for thread in threads)


def names(journal: Journal) -> list[tuple[str, str]]:
    return [(change.server, change.details["name"]) for change in journal.standing]


@pytest.mark.parametrize("compact_at", [7, 1000])
def test_what_several_threads_note_at_once_is_all_there_and_numbered_in_its_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compact_at: int
) -> None:
    monkeypatch.setattr(journal_module, "_COMPACT_AT", compact_at)
    journal = Journal(lambda change: None, tmp_path / "journal")

    def work(machine: str) -> None:
        for number in range(EACH):
            journal.note(machine, "link", details={"name": str(number)})

    at_once(work)
    changes = journal.standing
    assert [change.number for change in changes] == list(range(1, len(MACHINES) * EACH + 1))
    for machine in MACHINES:
        noted = [change.details["name"] for change in changes if change.server == machine]
        assert noted == [str(number) for number in range(EACH)]
    assert tuple(read_journal(tmp_path / "journal").changes) == changes


def test_what_threads_settle_while_others_note_is_gone_and_the_rest_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "_COMPACT_AT", 7)
    journal = Journal(lambda change: None, tmp_path / "journal")

    def work(machine: str) -> None:
        for number in range(EACH):
            journal.note(machine, "file", details={"name": str(number)})
            if number % 2:
                journal.settle(machine, "file", {"name": str(number)})

    at_once(work)
    expected = {(machine, str(number)) for machine in MACHINES for number in range(0, EACH, 2)}
    assert set(names(journal)) == expected
    assert tuple(read_journal(tmp_path / "journal").changes) == journal.standing


def test_scopes_of_several_machines_at_once_undo_each_their_own(tmp_path: Path) -> None:
    undone: list[tuple[str, str]] = []
    lock = threading.Lock()

    def undo(change: Change) -> None:
        with lock:
            undone.append((change.server, change.details["name"]))

    journal = Journal(undo, tmp_path / "journal")
    with journal.scope():
        journal.note("host", "link", details={"name": "tap"})

        def work(machine: str) -> None:
            for number in range(10):
                with journal.scope(machine):
                    journal.note(machine, "file", details={"name": str(number)})
            journal.note(machine, "link", details={"name": "stays"})

        at_once(work)
        assert sorted(undone) == sorted((machine, str(number)) for machine in MACHINES for number in range(10))
        assert sorted(names(journal)) == sorted([("host", "tap"), *((machine, "stays") for machine in MACHINES)])
    assert journal.standing == () and undone[-1] == ("host", "tap")


@pytest.mark.parametrize("error", [None, TestbedError("no memory")])
def test_a_scope_of_one_server_leaves_what_others_changed_meanwhile(error: Exception | None) -> None:
    undone: list[str] = []
    journal = Journal(lambda change: undone.append(f"{change.server} {change.details['name']}"))
    with journal.scope():
        journal.note("guest2", "file", details={"name": "before"})
        try:
            with journal.scope("guest2"):
                journal.note("guest2", "file", details={"name": "a"})
                journal.note("guest3", "file", details={"name": "b"})
                journal.note("host", "link", details={"name": "c"})
                journal.note("guest2", "file", details={"name": "d"})
                if error:
                    raise error
        except TestbedError as raised:
            assert raised is error
        assert undone == ["guest2 d", "guest2 a"]
        assert names(journal) == [("guest2", "before"), ("guest3", "b"), ("host", "c")]
    assert undone[2:] == ["host c", "guest3 b", "guest2 before"]


def test_a_machine_that_ends_takes_only_its_own_changes_with_it() -> None:
    undone: list[str] = []
    journal = Journal(lambda change: undone.append(f"{change.server} {change.kind}"))
    for name in ("guest2", "guest3"):
        journal.note("host", "guest", machine=name, details={"name": name})
    for name in ("guest3", "guest2", "guest3"):
        journal.note(name, "xdp", details={"name": "eth1"})
    journal.undo_machine("guest2")
    assert undone == ["host guest"]
    assert [change.server for change in journal.standing] == ["host", "guest3", "guest3"]
    journal.undo()
    assert undone == ["host guest", "host guest"] and journal.standing == ()


def test_one_machine_that_cannot_be_reached_does_not_keep_the_others_from_being_undone() -> None:
    undone: list[str] = []

    def undo(change: Change) -> None:
        if change.server == "guest2":
            raise ConnectError("guest2 cannot be reached")
        undone.append(change.server)

    journal = Journal(undo)
    for name in ("guest2", "guest3", "guest2", "host"):
        journal.note(name, "link", details={"name": "x"})
    with pytest.raises(UndoFailed):
        journal.undo()
    assert undone == ["host", "guest3"] and journal.is_unreachable("guest2") and not journal.is_unreachable("guest3")
