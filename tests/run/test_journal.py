"""The journal on models of machines: whatever ends a run, and wherever, undoing leads back to what was there before."""

from __future__ import annotations

import copy
import errno
import itertools
import json
import logging
import os
import stat
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import FrozenInstanceError
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from examples import examples
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from autotest.errors import AutotestError, ConnectError, TestbedError
from autotest.run import interruption
from autotest.run import journal as journal_module
from autotest.run.journal import Change, Journal, Left, UndoFailed, read_journal

HEADER = {"who": "the test"}
_SYNCING = ("fsync", "fdatasync")
_EFFECTS = ("open", "close", "replace", "unlink", "mkdir", "rmdir", "ftruncate", *_SYNCING)
_REAL = {name: getattr(os, name) for name in ("write", *_EFFECTS)}

Operation = tuple[Any, ...]


class Killed(BaseException):
    """The process is gone: what it was about to do has no effect any more."""


class Points:
    """The points between two effects of a process, at one of which it is ended: ``at`` counts from 0, None is never.

    A process that was killed reaches no other point; one that was interrupted goes on with what its code does then.
    """

    def __init__(self, at: int | None = None, ends_with: type[BaseException] = Killed) -> None:
        self.passed = 0
        self.at = at
        self.ends_with = ends_with
        self.ended = False

    def reached(self) -> None:
        if self.ended and self.ends_with is Killed:
            raise Killed
        if self.passed == self.at:
            self.ended = True
            self.passed += 1
            raise self.ends_with
        self.passed += 1

    @property
    def killed_at_the_next(self) -> bool:
        return self.passed == self.at and self.ends_with is Killed


class Disk:
    """Takes the place of the functions that change files: before and after each is a point."""

    def __init__(self, points: Points) -> None:
        self._points = points
        self._open: set[int] = set()
        self.durable: dict[int, int] = {}  # inode -> bytes that outlive a loss of power
        self.done: list[tuple[str, object]] = []

    @contextmanager
    def in_use(self) -> Iterator[None]:
        try:
            os.write = self._write  # type: ignore[assignment]
            for name in _EFFECTS:
                setattr(os, name, self._wrapped(name))
            yield
        finally:
            for name, function in _REAL.items():
                setattr(os, name, function)
            for descriptor in self._open:
                os.close(descriptor)
            self._open.clear()

    def _write(self, descriptor: int, content: bytes) -> int:
        self._points.reached()
        if self._points.killed_at_the_next:
            _REAL["write"](descriptor, content[: len(content) // 2])
        self._points.reached()
        written: int = _REAL["write"](descriptor, content)
        self._points.reached()
        return written

    def _wrapped(self, name: str) -> Callable[..., Any]:
        def function(*arguments: Any, **more: Any) -> Any:
            self._points.reached()
            result = None
            if name in _SYNCING:
                found = os.fstat(arguments[0])
                self.durable[found.st_ino] = found.st_size
                self.done.append(("synced", found.st_ino))
            else:
                result = _REAL[name](*arguments, **more)
                self.done.append((name, arguments[0]))
            if isinstance(result, int):
                self._open.add(result)
            elif name == "close":
                self._open.discard(arguments[0])
            self._points.reached()
            return result

        return function


class Machines:
    """Host, loadgen and guest with the things on them, of which some are the user's; a guest that is off is None.

    Undoing a thing removes whatever has that name, so the journal must not ask for it too often.
    """

    def __init__(self) -> None:
        self.points = Points()
        self.state: dict[str, dict[str, str] | None] = {
            "host": {"nic": "down", "the user's": "there"},
            "loadgen": {"nic": "up", "the user's": "there"},
            "guest": None,
        }
        self.made: list[tuple[str, str]] = []  # what is to be undone, in the order in which it was made
        self.unreachable: set[str] = set()
        self.stuck: set[tuple[str, str]] = set()
        self.is_out_of_turn = False
        self.baselines = [copy.deepcopy(self.state)]

    @property
    def is_as_before(self) -> bool:
        return self.state in self.baselines

    def things(self, server: str) -> dict[str, str]:
        found = self.state[server]
        if found is None or server in self.unreachable:
            raise ConnectError(f"{server} cannot be reached")
        return found

    # -- what a run does -----------------------------------------------------------------------------------

    def make(self, journal: Journal, server: str, name: str) -> None:
        things = self.things(server)
        if things.get(name, "down") != "down":
            return
        journal.note(server, "up" if name == "nic" else "thing", details={"name": name})
        self._effect(partial(things.update, {name: "up"}), partial(self.made.append, (server, name)))

    def boot(self, journal: Journal) -> None:
        self.things("host")
        if self.state["guest"] is not None or any(change.server == "guest" for change in journal.standing):
            return
        journal.note("host", "guest", machine="guest", details={"name": "guest"})
        booted = {"nic": "down", "the user's": "there"}
        self._effect(partial(self.state.update, guest=booted), partial(self.made.append, ("host", "guest")))

    def crash(self) -> None:
        self._switch_guest_off()
        for baseline in self.baselines:
            baseline["guest"] = None

    def _switch_guest_off(self) -> None:
        self.state["guest"] = None
        self.made = [(server, name) for server, name in self.made if server != "guest" and name != "guest"]

    def end_guest(self, journal: Journal) -> None:
        self.is_out_of_turn = True
        try:
            journal.undo_machine("guest")
        finally:
            self.is_out_of_turn = False

    def forget(self, journal: Journal) -> None:
        if self.state["guest"] is not None:  # only the lab is forgotten, and it is there before any guest
            return
        self.baselines.append(copy.deepcopy(self.state))
        journal.forget()
        self.baselines = self.baselines[-1:]
        self.made.clear()

    # -- and what undoes it --------------------------------------------------------------------------------

    def undo(self, change: Change) -> str | None:
        self.points.reached()
        things, name = self.things(change.server), change.details["name"]
        if (change.server, name) in self.stuck:
            raise OSError(errno.EBUSY, "busy")
        undoing: dict[str, tuple[bool, Callable[[], object]]] = {
            "guest": (self.state["guest"] is not None, self._switch_guest_off),
            "up": (things.get("nic") == "up", partial(things.update, nic="down")),
            "thing": (name in things, partial(things.pop, name)),
        }
        is_there, remove = undoing[change.kind]
        if not is_there:
            return None
        if not self.is_out_of_turn:
            self._require_turn(change.server, name)
        self._effect(partial(self.made.remove, (change.server, name)), remove)
        return f"{change.server} {name}"

    def _effect(self, *together: Callable[[], object]) -> None:
        self.points.reached()
        for each in together:
            each()
        self.points.reached()

    def _require_turn(self, server: str, name: str) -> None:
        assert (server, name) in self.made, f"{name} on {server} is not this tool's"
        for later in self.made[self.made.index((server, name)) + 1 :]:
            ends_with_the_guest = later[0] == "guest" and ("host", "guest") in self.made
            assert ends_with_the_guest or self.is_lasting(*later), f"{name} on {server} was undone before {later}"

    def is_lasting(self, server: str, name: str) -> bool:
        with_the_guest = server == "guest" and self.is_lasting("host", "guest")
        return with_the_guest or server in self.unreachable or (server, name) in self.stuck

    def mend(self) -> None:
        self.unreachable.clear()
        self.stuck.clear()


class Trial:
    """A program of operations that runs on machines with a journal, ends somewhere, and is recovered from."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "journals" / "a.journal"
        self.machines = Machines()

    def run(self, program: Program, points: Points) -> BaseException | None:
        """Returns what ended it before its time."""
        way, operations = program
        self.machines.points, disk = points, Disk(points)
        journal_module.requested = lambda: points.ended and points.ends_with is KeyboardInterrupt
        journal = Journal(self.machines.undo, self.path, HEADER)
        try:
            with disk.in_use():
                try:
                    journal.begin()
                    with journal.scope() if way == "scope" else journal.kept(way):
                        self._do(journal, operations)
                finally:
                    journal.close()
        except (AutotestError, Killed, KeyboardInterrupt) as error:
            return error
        finally:
            self.durable = disk.durable
            journal_module.requested = interruption.requested
        return None

    def _do(self, journal: Journal, operations: list[Operation]) -> None:
        machines = self.machines
        for name, *what in operations:
            if name == "make":
                with suppress(ConnectError):
                    machines.make(journal, *what)
            elif name == "boot":
                with suppress(ConnectError):
                    machines.boot(journal)
            elif name == "end the guest":
                with suppress(ConnectError, OSError):
                    machines.end_guest(journal)
            elif name == "the guest crashes":
                machines.crash()
            elif name == "cut":
                machines.unreachable.add(what[0])
            elif name == "stick":
                machines.stuck.add((what[0], what[1]))
            elif name == "mend":
                machines.mend()
            elif name == "fail":
                raise TestbedError("something fails")
            elif name == "forget":
                machines.forget(journal)
            elif name == "scope":
                with journal.scope():
                    self._do(journal, what[0])
            else:
                assert name == "try", name
                with suppress(TestbedError):
                    self._do(journal, what[0])

    def recover(self, points: Points | None = None) -> list[str]:
        """As any later process does; returns what was done."""
        done: list[str] = []
        if not self.path.exists():
            return done
        self.machines.points = points or Points()
        with Disk(self.machines.points).in_use():
            journal = read_journal(self.path).journal(self.machines.undo)
            try:
                journal.undo(say=done.append)
            finally:
                journal.close()
        return done

    def recover_interrupted_at_every_point(self) -> None:
        """Each time one point later, and in the end not at all."""
        for at in itertools.count():
            with suppress(Killed):
                self.recover(Points(at))
                return

    def require_end(self) -> None:
        """Nothing is left to undo, and nothing of the user's was touched."""
        assert self.machines.is_as_before, (self.machines.state, self.machines.baselines)
        assert not self.path.exists()
        assert self.recover() == []


def operations(depth: int = 3) -> st.SearchStrategy[list[Operation]]:
    servers, names = st.sampled_from(["host", "loadgen", "guest"]), st.sampled_from(["a", "b", "nic", "the user's"])
    make = st.tuples(st.just("make"), servers, names)
    plain: list[st.SearchStrategy[Any]] = [make, make, make, st.just(("boot",)), st.just(("boot",))]
    plain += [st.just(("fail",)), st.just(("forget",))]
    plain += [
        st.just(("the guest crashes",)),
        st.just(("end the guest",)),
        st.tuples(st.just("cut"), servers),
        st.just(("mend",)),
    ]
    plain += [st.tuples(st.just("stick"), servers, st.sampled_from(["a", "b", "guest", "nic"]))]
    if depth:
        inner = operations(depth - 1)
        plain += [st.tuples(st.sampled_from(["scope", "try", "scope"]), inner)] * 4
    return st.lists(st.one_of(plain), max_size=5)


Program = tuple[str, list[Operation]]
programs = st.tuples(st.sampled_from(["scope", "setup-network"]), operations())
#: All that a campaign does, in one program.
CAMPAIGN: list[Operation] = [
    ("make", "host", "a"),
    ("make", "host", "nic"),
    ("scope", [
        ("boot",),
        ("scope", [("make", "guest", "a"), ("make", "guest", "nic")]),
        ("make", "guest", "b"),
        ("scope", [("make", "loadgen", "a"), ("make", "loadgen", "nic")]),
        ("try", [("scope", [("make", "loadgen", "b"), ("fail",)])]),
        ("scope", [("make", "loadgen", "a")]),
    ]),
    ("make", "loadgen", "b"),
    ("make", "host", "the user's"),
]  # fmt: skip


@pytest.fixture
def compact_often(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    return lambda lines: monkeypatch.setattr(journal_module, "_COMPACT_AT", lines)


@pytest.fixture
def make_trial() -> Iterator[Callable[[], Trial]]:
    """Makes trials in folders of their own: in memory, because thousands of files are renamed."""
    numbers = itertools.count()
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as place:

        def make() -> Trial:
            folder = Path(place, str(next(numbers)))
            folder.mkdir()
            return Trial(folder)

        yield make


_shared = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@given(programs, st.sampled_from([0, 1, 3, 1000]), st.data())
@settings(_shared, max_examples=examples(250))
def test_a_run_that_is_killed_anywhere_is_undone_by_a_recovery_that_is_interrupted_everywhere(
    make_trial: Callable[[], Trial], compact_often: Callable[[int], None], program: Program, lines: int, data: st.DataObject
) -> None:
    compact_often(lines)
    points = Points()
    make_trial().run(program, points)
    trial = make_trial()
    error = trial.run(program, Points(data.draw(st.integers(0, points.passed), label="killed at")))
    event(f"ended by {type(error).__name__}")
    if trial.path.exists():
        with suppress(UndoFailed):  # some servers may still be cut off
            trial.recover()
    trial.machines.mend()
    plant_things_of_the_users(trial)
    trial.recover_interrupted_at_every_point()
    trial.require_end()


def plant_things_of_the_users(trial: Trial) -> None:
    """Things under the names that the run used, but only where its journal says that none stands."""
    standing = (
        {(each.server, each.details["name"]) for each in read_journal(trial.path).changes} if trial.path.exists() else set()
    )
    for server in ("host", "loadgen"):
        things = trial.machines.state[server]
        assert things is not None
        for name in {"a", "b"} - things.keys():
            if (server, name) not in standing:
                things[name] = "the user's by now"
                for baseline in trial.machines.baselines:
                    (baseline[server] or {})[name] = things[name]


@pytest.mark.parametrize(("way", "lines"), [("scope", 1000), ("setup-network", 1)])
def test_a_campaign_is_undone_wherever_it_was_killed_and_wherever_its_recovery_was(
    make_trial: Callable[[], Trial], compact_often: Callable[[int], None], way: str, lines: int
) -> None:
    compact_often(lines)
    for at in itertools.count():
        trial = make_trial()
        if trial.run((way, CAMPAIGN), Points(at)) is None:
            break
        trial.recover_interrupted_at_every_point()
        trial.require_end()
    assert at > 100
    assert trial.path.exists() == (way != "scope")
    trial.recover()
    trial.require_end()


@given(programs, st.sampled_from([0, 1, 1000]), st.data())
@settings(_shared, max_examples=examples(150))
def test_a_loss_of_power_leaves_a_journal_that_knows_at_least_what_was_changed(
    make_trial: Callable[[], Trial], compact_often: Callable[[int], None], program: Program, lines: int, data: st.DataObject
) -> None:
    compact_often(lines)
    points = Points()
    make_trial().run(program, points)
    trial = make_trial()
    trial.run(program, Points(data.draw(st.integers(0, points.passed), label="killed at")))
    if trial.path.exists():
        found = trial.path.stat()
        os.truncate(trial.path, data.draw(st.integers(trial.durable[found.st_ino], found.st_size), label="left"))
    trial.machines.mend()
    trial.recover_interrupted_at_every_point()
    trial.require_end()


@given(programs, st.sampled_from([0, 1, 1000]), st.data())
@settings(_shared, max_examples=examples(150))
def test_after_an_interruption_anywhere_the_run_itself_undoes_all_that_can_be_undone(
    make_trial: Callable[[], Trial], compact_often: Callable[[int], None], program: Program, lines: int, data: st.DataObject
) -> None:
    compact_often(lines)
    points = Points()
    make_trial().run(program, points)
    trial = make_trial()
    interruption = Points(data.draw(st.integers(0, points.passed), label="interrupted at"), KeyboardInterrupt)
    error = trial.run(program, interruption)
    event(f"ended by {type(error).__name__}")
    left = read_journal(trial.path) if trial.path.exists() else None
    if interruption.ended and not (left and left.kept):
        assert isinstance(error, KeyboardInterrupt)
        not_undone = [thing for thing in trial.machines.made if not trial.machines.is_lasting(*thing)]
        assert not not_undone or trial.machines.is_as_before
    trial.machines.mend()
    trial.recover()
    trial.require_end()


@pytest.mark.parametrize("lines", [1, 1000])
def test_a_campaign_that_is_interrupted_anywhere_undoes_all_itself(
    make_trial: Callable[[], Trial], compact_often: Callable[[int], None], lines: int
) -> None:
    compact_often(lines)
    for at in itertools.count():
        trial = make_trial()
        if trial.run(("scope", CAMPAIGN), Points(at, KeyboardInterrupt)) is None:
            break
        assert trial.machines.is_as_before, f"interrupted at {at}"
        assert trial.recover() == []
    assert at > 100


# -- the file ----------------------------------------------------------------------------------------------


@pytest.fixture
def undone() -> list[str]:
    return []


@pytest.fixture
def journal(tmp_path: Path, undone: list[str]) -> Journal:
    """A journal whose changes leave no trace but their names in ``undone``."""
    return Journal(lambda change: undone.append(change.details["name"]), tmp_path / "journals" / "a.journal", HEADER)


def note(journal: Journal, name: str, server: str = "host") -> None:
    journal.note(server, "thing", details={"name": name})


def names(path: Path) -> list[str]:
    return [change.details["name"] for change in read_journal(path).changes]


def abandoned(journal: Journal) -> Path:
    """The file of a journal whose process is gone."""
    assert journal._path and journal._file is not None
    os.close(journal._file)
    return journal._path


def test_a_change_and_its_undoing_are_read_back_as_they_were_noted(journal: Journal) -> None:
    journal.note("host", "session", boot="b-1", machine="guest", details={"name": "ü\n'", "grace": "5"})
    left = read_journal(abandoned(journal))
    assert left.changes == list(journal.standing) == [
        Change(1, "host", "session", {"name": "ü\n'", "grace": "5"}, "b-1", "guest")
    ]  # fmt: skip
    assert left.header == {"version": 1, "who": "the test"} and left.kept == ""


def test_the_change_is_on_the_disk_before_it_is_made(journal: Journal, tmp_path: Path) -> None:
    disk = Disk(Points())
    with disk.in_use():
        for name in "abc":
            note(journal, name)
            found = (tmp_path / "journals/a.journal").stat()
            assert disk.durable[found.st_ino] == found.st_size
    effects = [effect for effect, _ in disk.done]
    assert ("synced", (tmp_path / "journals").stat().st_ino) in disk.done[effects.index("replace") :]
    assert "synced" in effects[: effects.index("replace")]
    assert names(tmp_path / "journals/a.journal") == ["a", "b", "c"]


@pytest.mark.parametrize("last", ["change", "undone", "kept"])
def test_a_last_line_that_was_cut_off_counts_as_never_written(journal: Journal, last: str) -> None:
    with journal.kept("setup-network") if last == "kept" else nullcontext():
        note(journal, "a")
        note(journal, "b")
    if last == "change":
        note(journal, "c")
    elif last == "undone":
        journal.undo(after=1)
    path = abandoned(journal)
    content = path.read_bytes()
    whole = content.rindex(b"\n", 0, -1) + 1
    for length in range(whole, len(content)):
        path.write_bytes(content[:length])
        left = read_journal(path)
        assert [change.details["name"] for change in left.changes] == ["a", "b"] and left.kept == ""
        went_on = left.journal(lambda change: None)
        note(went_on, "d")
        assert names(abandoned(went_on)) == ["a", "b", "d"]
    path.write_bytes(content)
    assert names(path) == {"change": ["a", "b", "c"], "undone": ["a"], "kept": ["a", "b"]}[last]
    assert read_journal(path).kept == ("setup-network" if last == "kept" else "")


def test_file_and_folder_are_for_their_user_alone(journal: Journal, tmp_path: Path) -> None:
    mask = os.umask(0)
    try:
        note(journal, "a")
    finally:
        os.umask(mask)
    assert stat.S_IMODE((tmp_path / "journals").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "journals/a.journal").stat().st_mode) == 0o600


def test_nothing_is_written_where_nothing_is_changed_and_nothing_stays_where_all_is_undone(
    journal: Journal, tmp_path: Path
) -> None:
    with journal.scope():
        pass
    with journal.kept("shell"):
        pass
    assert list(tmp_path.iterdir()) == []
    with journal.scope():
        note(journal, "a")
    journal.close()
    assert list(tmp_path.iterdir()) == []
    note(journal, "b")
    assert names(tmp_path / "journals/a.journal") == ["b"]


def test_a_campaign_of_many_trials_has_a_small_journal(journal: Journal, tmp_path: Path) -> None:
    note(journal, "stays")
    disk = Disk(Points())
    with disk.in_use():
        for _ in range(3000):
            with journal.scope():
                note(journal, "a")
    assert (tmp_path / "journals/a.journal").stat().st_size < 200_000
    assert names(tmp_path / "journals/a.journal") == ["stays"]


def test_a_change_of_another_process_in_the_folder_stays(journal: Journal, tmp_path: Path) -> None:
    other = Journal(lambda change: None, tmp_path / "journals/b.journal", HEADER)
    note(other, "b")
    note(journal, "a")
    journal.undo()
    journal.close()
    assert os.listdir(tmp_path / "journals") == ["b.journal"] and names(abandoned(other)) == ["b"]


# -- disks that are full, and files that are damaged -------------------------------------------------------


@pytest.mark.parametrize("written", [None, 0, 1, 20])
@pytest.mark.parametrize("noted", [0, 1, 3])
def test_on_a_full_disk_nothing_is_changed(
    journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: int | None, noted: int
) -> None:
    def write(descriptor: int, content: bytes) -> int:
        if written is None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return _REAL["write"](descriptor, content[:written])  # type: ignore[no-any-return]

    before = ["a", "b", "c"][:noted]
    for name in before:
        note(journal, name)
    with monkeypatch.context() as patch, pytest.raises(TestbedError, match="a.journal cannot be written: No space left"):
        patch.setattr(os, "write", write)
        note(journal, "x")
    assert [change.details["name"] for change in journal.standing] == before
    path = tmp_path / "journals/a.journal"
    assert (names(path) if noted else []) == before
    note(journal, "y")
    assert names(path) == [*before, "y"]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.default
def test_what_was_changed_is_undone_on_a_disk_that_is_really_full(small_disk: Path, undone: list[str]) -> None:
    path = small_disk / "journals/a.journal"
    number = 0
    journal = Journal(lambda change: undone.append(change.details["name"]), path, HEADER)
    with pytest.raises(TestbedError, match="No space left on device; nothing is changed"):
        for number in range(1000):
            note(journal, str(number))
    assert 50 < number < 500 and names(path) == [str(each) for each in range(number)]
    journal.undo()
    journal.close()
    assert undone == [str(each) for each in reversed(range(number))]
    assert list(small_disk.iterdir()) == []


def test_a_place_where_no_journal_can_be_is_named_and_nothing_is_changed(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    journal = Journal(lambda change: None, tmp_path / "file" / "a.journal")
    with pytest.raises(TestbedError, match="file/a.journal cannot be written"):
        note(journal, "a")
    assert not journal.standing


def test_set_up_that_cannot_be_marked_as_meant_to_stay_is_undone(
    journal: Journal, undone: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(descriptor: int, content: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(TestbedError, match="a.journal cannot be written: No space left"), journal.kept("setup-network"):
        note(journal, "a")
        monkeypatch.setattr(os, "write", write)
    assert undone == ["a"] and not journal.standing


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"", "no journal of this version"),
        (b"no JSON\n", "no journal of this version"),
        (b"[1]\n", "no journal of this version"),
        (b'{"version": 2}\n', "no journal of this version"),
        (b'{"version": 1}\nx\n', "damaged"),
        (b'{"version": 1}\n\0\0\0\n{"undone": 1}\n', "damaged"),
        (b'{"version": 1}\n{"changed": 1}\n', "damaged"),
        (b'{"version": 1}\n{"undone": [1]}\n', "damaged"),
        (b'{"version": 1}\n{"kept": 1}\n', "damaged"),
        (b'{"version": 1}\n{"change": 1, "server": "host"}\n', "damaged"),
        (b'{"version": 1}\n{"change": "1", "server": "", "kind": "", "details": {}, "boot": "", "machine": ""}\n', "damaged"),
        (b'{"version": 1}\n{"change": 1, "server": "", "kind": "", "details": 1, "boot": "", "machine": ""}\n', "damaged"),
        (b'{"version": 1}\n{"change": 1, "server": [], "kind": "", "details": {}, "boot": "", "machine": ""}\n', "damaged"),
        (b'{"version": 1}\n' + b"[" * 100_000 + b"\n", "damaged"),
    ],
)
def test_a_file_that_is_no_whole_journal_is_an_error_that_names_it(tmp_path: Path, line: bytes, message: str) -> None:
    path = tmp_path / "a.journal"
    path.write_bytes(line)
    with pytest.raises(TestbedError, match=f"a.journal.*{message}"):
        read_journal(path)


def test_a_file_that_cannot_be_read_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(TestbedError, match="a.journal cannot be read: No such file"):
        read_journal(tmp_path / "a.journal")
    with pytest.raises(TestbedError, match="cannot be read: Is a directory"):
        read_journal(tmp_path)


_texts = st.text(max_size=5)
_collections = st.lists(_texts, max_size=2), st.dictionaries(_texts, _texts, max_size=2)
_values = st.one_of(st.none(), st.booleans(), st.integers(), _texts, *_collections)
_keys = ("change", "server", "kind", "details", "boot", "machine")
_WHOLE = {"change": 1, "server": "host", "kind": "thing", "details": {"name": "a"}, "boot": "", "machine": ""}
_lines = st.one_of(
    st.builds(lambda number: json.dumps(_WHOLE | {"change": number}).encode(), st.integers(-1, 4)),
    st.builds(lambda number: json.dumps({"undone": number}).encode(), st.integers(-1, 4)),
    st.builds(lambda key, value: json.dumps(_WHOLE | {key: value}).encode(), st.sampled_from(_keys), _values),
    st.builds(lambda key, value: json.dumps({key: value}).encode(), st.sampled_from(["undone", "kept", "change", ""]), _values),
    st.binary(max_size=20),
)


@given(st.lists(_lines, max_size=4))
@settings(_shared, max_examples=examples(200))
def test_whatever_a_journal_holds_it_can_be_undone_or_is_a_clear_error(tmp_path: Path, lines: list[bytes]) -> None:
    path = tmp_path / "a.journal"
    path.write_bytes(b"\n".join([b'{"version": 1}', *lines, b""]))
    try:
        left = read_journal(path)
    except TestbedError as error:
        assert str(path) in str(error)
        return
    event("whole")
    told: list[str] = []
    left.journal(str).undo(say=told.append)
    assert sorted(told) == sorted(str(change) for change in left.changes)


# -- what cannot be undone ---------------------------------------------------------------------------------


def test_what_cannot_be_undone_does_not_keep_the_others_and_stays_in_the_journal(tmp_path: Path) -> None:
    undone: list[str] = []

    def undo(change: Change) -> None:
        if change.details["name"] == "b":
            raise TestbedError("it is stuck")
        undone.append(change.details["name"])

    journal = Journal(undo, tmp_path / "a.journal", HEADER)
    with pytest.raises(UndoFailed, match="^cannot undo host: thing b: it is stuck$") as raised, journal.scope():
        for name in "abc":
            note(journal, name)
    assert undone == ["c", "a"] and [change.details["name"] for change, _ in raised.value.problems] == ["b"]
    journal.close()
    assert names(tmp_path / "a.journal") == ["b"]


def test_a_server_that_cannot_be_reached_is_waited_for_once(tmp_path: Path) -> None:
    asked: list[str] = []

    def undo(change: Change) -> None:
        asked.append(str(change))
        if change.server == "host":
            raise ConnectError("host: no answer")

    journal = Journal(undo)
    with pytest.raises(UndoFailed) as raised, journal.scope():
        for server, name in (("host", "a"), ("loadgen", "b"), ("host", "c"), ("loadgen", "d"), ("host", "e")):
            note(journal, name, server)
    assert asked == ["loadgen: thing d", "loadgen: thing b"] or asked == ["host: thing e", "loadgen: thing d", "loadgen: thing b"]
    assert [str(change) for change, _ in raised.value.problems] == ["host: thing e", "host: thing c", "host: thing a"]


def test_an_error_goes_on_when_undoing_fails_too_which_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def undo(change: Change) -> None:
        raise TestbedError("it is stuck")

    journal = Journal(undo)
    with pytest.raises(ValueError, match="the first"), journal.scope():
        note(journal, "a")
        raise ValueError("the first")
    assert "cannot undo host: thing a: it is stuck" in caplog.text


def test_a_context_that_an_interruption_kept_from_being_left_keeps_nothing_from_being_undone(
    journal: Journal, undone: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    never_left = journal.scope()
    with pytest.raises(KeyboardInterrupt), journal.scope():
        never_left.__enter__()
        note(journal, "a")
        monkeypatch.setattr(journal_module, "requested", lambda: True)
        raise KeyboardInterrupt
    assert undone == ["a"] and not journal.standing


def test_what_ends_with_its_machine_is_not_undone_by_itself(undone: list[str]) -> None:
    journal = Journal(lambda change: undone.append(change.details["name"]))
    note(journal, "before", "guest")
    journal.note("host", "guest", machine="guest", details={"name": "guest"})
    note(journal, "inside", "guest")
    note(journal, "after")
    journal.undo()
    assert undone == ["after", "guest", "before"] and not journal.standing


def test_within_a_running_machine_changes_are_undone_in_order_with_those_of_others(undone: list[str]) -> None:
    journal = Journal(lambda change: undone.append(change.details["name"]))
    with journal.scope():
        journal.note("host", "guest", machine="guest", details={"name": "guest"})
        with journal.scope():
            for server, name in (("guest", "a"), ("host", "b"), ("guest", "c"), ("loadgen", "d")):
                note(journal, name, server)
        assert undone == ["d", "c", "b", "a"]
    assert undone == ["d", "c", "b", "a", "guest"]


def test_what_is_inside_a_machine_that_cannot_be_ended_stays_with_it(tmp_path: Path) -> None:
    def undo(change: Change) -> None:
        if change.kind == "guest":
            raise TestbedError("it does not end")

    journal = Journal(undo, tmp_path / "a.journal", HEADER)
    journal.note("host", "guest", machine="guest", details={"name": "guest"})
    note(journal, "inside", "guest")
    with pytest.raises(UndoFailed):
        journal.undo()
    assert names(tmp_path / "a.journal") == ["guest", "inside"]


def test_a_machine_that_is_ended_takes_its_own_changes_with_it_and_no_others(tmp_path: Path, undone: list[str]) -> None:
    journal = Journal(lambda change: undone.append(change.details["name"]), tmp_path / "a.journal", HEADER)
    note(journal, "network")
    journal.note("host", "guest", machine="guest", details={"name": "guest"})
    note(journal, "inside", "guest")
    note(journal, "after")
    journal.undo_machine("loadgen")
    assert names(tmp_path / "a.journal") == ["network", "guest", "inside", "after"]
    journal.undo_machine("guest")
    assert undone == ["guest"] and names(tmp_path / "a.journal") == ["network", "after"]
    journal.undo()
    assert undone == ["guest", "after", "network"]


def test_a_machine_that_cannot_be_ended_stays_in_the_journal(tmp_path: Path) -> None:
    def undo(change: Change) -> None:
        raise TestbedError("it does not end")

    journal = Journal(undo, tmp_path / "a.journal", HEADER)
    journal.note("host", "guest", machine="guest", details={"name": "guest"})
    with pytest.raises(TestbedError, match="it does not end"):
        journal.undo_machine("guest")
    assert names(tmp_path / "a.journal") == ["guest"]


# -- each part by hand -------------------------------------------------------------------------------------


def content(path: Path) -> list[dict[str, Any]]:
    """What each line of a file says, without the header."""
    header, *lines = path.read_text().splitlines()
    assert json.loads(header) == {"version": 1, "who": "the test"}
    return [json.loads(line) for line in lines]


@pytest.fixture
def without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing waits for the disk."""
    for name in _SYNCING:
        monkeypatch.setattr(os, name, lambda descriptor: None)


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize(
    ("details", "shown"),
    [
        ({"name": "br0"}, "host: bridge br0"),
        ({"path": "/run/x"}, "host: bridge /run/x"),
        ({"path": "/run/x", "name": "br0"}, "host: bridge br0"),
        ({"path": "/run/x", "name": ""}, "host: bridge /run/x"),
        ({"name": "", "path": ""}, "host: bridge"),
        ({"other": "x"}, "host: bridge"),
        ({}, "host: bridge"),
    ],
)
def test_a_change_is_shown_with_its_name_or_else_its_path(details: dict[str, str], shown: str) -> None:
    assert str(Change(7, "host", "bridge", details)) == shown


def test_a_change_is_not_changed_and_what_is_left_begins_empty(tmp_path: Path) -> None:
    change = Change(1, "host", "thing", {})
    assert (change.boot, change.machine) == ("", "")
    with pytest.raises(FrozenInstanceError):
        change.number = 2  # type: ignore[misc]
    left, other = Left(tmp_path, {}), Left(tmp_path, {})
    assert (left.changes, left.kept) == ([], "") and left.changes is not other.changes


def test_a_journal_tells_its_file_and_has_none_where_it_got_none(tmp_path: Path) -> None:
    assert Journal(lambda change: None, tmp_path / "a.journal").path == tmp_path / "a.journal"
    journal = Journal(lambda change: None)
    assert journal.path is None
    journal.begin()
    note(journal, "a")
    with journal.kept("shell"):
        note(journal, "b")
    assert [change.number for change in journal.standing] == [1, 2] and list(tmp_path.iterdir()) == []
    journal.close()
    journal.undo()
    assert journal.standing == ()


def test_the_file_is_there_from_the_beginning_and_made_once(journal: Journal, tmp_path: Path) -> None:
    path = tmp_path / "journals/a.journal"
    journal.begin()
    first = path.stat().st_ino
    assert content(path) == [] and read_journal(path).header == {"version": 1, "who": "the test"}
    note(journal, "a")
    journal.begin()
    assert path.stat().st_ino == first and names(path) == ["a"]
    journal.undo()
    journal.close()
    assert list(tmp_path.iterdir()) == []


def test_a_header_says_the_version_also_where_nobody_gave_one(tmp_path: Path) -> None:
    Journal(lambda change: None, tmp_path / "a.journal").begin()
    assert (tmp_path / "a.journal").read_text() == '{"version": 1}\n'


def test_a_file_that_cannot_be_begun_is_named_and_nothing_is_changed(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    path = tmp_path / "file" / "folder" / "a.journal"
    for write in (Journal(str, path).begin, lambda: note(Journal(str, path), "a")):
        with pytest.raises(TestbedError) as raised:
            write()
        assert str(raised.value) == f"the journal {path} cannot be written: Not a directory; nothing is changed"


def test_each_line_of_the_file_is_what_was_noted_and_undone(journal: Journal, tmp_path: Path) -> None:
    journal.note("host", "bridge", boot="b", machine="m", details={"name": "x"})
    note(journal, "y", "loadgen")
    journal.undo(after=1)
    with journal.kept("setup-network"):
        pass
    assert content(tmp_path / "journals/a.journal") == [
        {"change": 1, "server": "host", "kind": "bridge", "details": {"name": "x"}, "boot": "b", "machine": "m"},
        {"change": 2, "server": "loadgen", "kind": "thing", "details": {"name": "y"}, "boot": "", "machine": ""},
        {"undone": 2},
        {"kept": "setup-network"},
    ]
    assert read_journal(tmp_path / "journals/a.journal").kept == "setup-network"


def test_what_is_noted_does_not_change_with_what_it_was_made_of(journal: Journal) -> None:
    details = {"name": "a"}
    journal.note("host", "thing", details=details)
    details["name"] = "b"
    assert journal.standing == (Change(1, "host", "thing", {"name": "a"}),)


@pytest.mark.usefixtures("without_waiting")
@pytest.mark.parametrize("standing", range(7))
def test_a_file_is_made_anew_when_it_has_so_many_lines_more_than_changes_stand(
    journal: Journal, tmp_path: Path, compact_often: Callable[[int], None], standing: int
) -> None:
    compact_often(4)
    path = tmp_path / "journals/a.journal"
    journal.begin()
    for number in range(standing):
        note(journal, str(number))
    lines = []
    for _ in range(30):
        note(journal, "x")
        lines.append(len(path.read_text().splitlines()))
        assert names(path) == [*map(str, range(standing)), "x"]
        journal.undo(after=journal.standing[-1].number - 1)
        lines.append(len(path.read_text().splitlines()))
        assert names(path) == [*map(str, range(standing))]
    assert max(lines) == 4 + standing + 1, "the header counts, too"
    assert min(lines[10:]) == standing + 2, "the header and what stands, then the line that was to be written"


@pytest.mark.usefixtures("without_waiting")
def test_a_file_is_made_anew_at_about_a_thousand_lines(journal: Journal, tmp_path: Path) -> None:
    path = tmp_path / "journals/a.journal"
    journal.begin()
    first, written = path.stat().st_ino, 1
    while path.stat().st_ino == first:
        note(journal, "x")
        journal.undo()
        written += 2
    assert 999 < written < 1004 and len(path.read_text().splitlines()) < 4


@pytest.mark.parametrize("lines", [0, 1, 2, 3, 4])
def test_what_is_meant_to_stay_is_written_also_where_the_file_is_made_anew_for_it(
    journal: Journal, tmp_path: Path, compact_often: Callable[[int], None], lines: int
) -> None:
    compact_often(lines)
    with journal.kept("setup-network"):
        note(journal, "a")
        note(journal, "b")
    path = tmp_path / "journals/a.journal"
    assert read_journal(path).kept == "setup-network" and names(path) == ["a", "b"]
    assert [line.get("change") for line in content(path)] == [1, 2, None], "none of them is there twice"


def test_no_file_stays_open(journal: Journal, compact_often: Callable[[int], None]) -> None:
    before = open_files()
    compact_often(0)
    for name in "abcde":
        note(journal, name)
    assert open_files() == before + 1
    journal.close()
    assert open_files() == before
    journal.close()
    assert open_files() == before


def test_a_new_file_that_cannot_take_its_place_leaves_nothing(
    journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def replace(source: Path, target: Path) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    before = open_files()
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", replace)
        with pytest.raises(TestbedError, match="Input/output error; nothing is changed$"):
            note(journal, "a")
    assert open_files() == before and list((tmp_path / "journals").iterdir()) == [] and journal.standing == ()


def test_half_a_new_file_of_a_process_that_died_is_written_over(journal: Journal, tmp_path: Path) -> None:
    (tmp_path / "journals").mkdir()
    (tmp_path / "journals/.a.journal.new").write_text("half of something that is much longer than what comes\n" * 100)
    note(journal, "a")
    assert content(tmp_path / "journals/a.journal")[0]["change"] == 1 and os.listdir(tmp_path / "journals") == ["a.journal"]


def test_the_folders_above_are_made_too(tmp_path: Path) -> None:
    journal = Journal(lambda change: None, tmp_path / "a/b/c/d.journal", HEADER)
    note(journal, "x")
    assert names(tmp_path / "a/b/c/d.journal") == ["x"]


def test_an_undoing_that_cannot_be_written_down_is_an_undoing_all_the_same(
    journal: Journal, undone: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    note(journal, "a")
    monkeypatch.setattr(os, "write", lambda descriptor, content: _REAL["write"](descriptor, content[:3]))
    journal.undo()
    assert undone == ["a"] and journal.standing == ()
    assert f"the journal {journal.path} cannot be written: [Errno 28] No space left on device" in caplog.messages
    monkeypatch.undo()
    assert journal.path is not None and names(journal.path) == ["a"], "it is undone once more, which does no harm"


def test_numbers_go_on_behind_a_change_that_could_not_be_noted(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    note(journal, "a")
    with monkeypatch.context() as patch, pytest.raises(TestbedError):
        patch.setattr(os, "write", lambda descriptor, content: 0)
        note(journal, "b")
    note(journal, "c")
    numbers = [change.number for change in journal.standing]
    assert numbers == sorted(set(numbers)) and [change.details["name"] for change in journal.standing] == ["a", "c"]


def test_only_the_last_change_of_its_kind_is_settled(journal: Journal, tmp_path: Path, undone: list[str]) -> None:
    for server, name in (("host", "a"), ("host", "b"), ("host", "a"), ("loadgen", "a")):
        note(journal, name, server)
    for nothing in (("guest", "thing", {"name": "a"}), ("host", "other", {"name": "a"}), ("host", "thing", {"name": "c"})):
        journal.settle(*nothing)
    assert [change.number for change in journal.standing] == [1, 2, 3, 4]
    journal.settle("host", "thing", {"name": "a"})
    assert [change.number for change in journal.standing] == [1, 2, 4] and names(tmp_path / "journals/a.journal") == [
        "a",
        "b",
        "a",
    ]
    journal.settle("host", "thing", {"name": "a"})
    journal.settle("host", "thing", {"name": "a"})
    assert [change.number for change in journal.standing] == [2, 4] and undone == []


def test_only_the_changes_of_one_server_are_undone_where_it_is_named(journal: Journal, undone: list[str]) -> None:
    for server, name in (("host", "a"), ("loadgen", "b"), ("host", "c"), ("loadgen", "d")):
        note(journal, name, server)
    journal.undo(server="loadgen")
    assert undone == ["d", "b"]
    journal.undo(server="guest")
    assert undone == ["d", "b"]
    with journal.scope("host"):
        note(journal, "e")
        note(journal, "f", "loadgen")
    assert undone == ["d", "b", "e"] and [change.details["name"] for change in journal.standing] == ["a", "c", "f"]
    with pytest.raises(ValueError), journal.scope("loadgen"):
        note(journal, "g")
        note(journal, "h", "loadgen")
        raise ValueError
    assert undone == ["d", "b", "e", "h"]
    journal.undo(after=1)
    assert undone == ["d", "b", "e", "h", "g", "f", "c"] and [change.number for change in journal.standing] == [1]


def test_what_an_undoing_did_is_said_and_nothing_where_nothing_was_left(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    said: list[str] = []
    journal = Journal(lambda change: f"removed {change.details['name']}" if change.details["name"] != "b" else None)
    for name in "abc":
        note(journal, name)
    journal.undo(after=2)
    assert caplog.messages == ["removed c"]
    journal.undo(say=said.append)
    assert said == ["removed a"] and caplog.messages == ["removed c"]


def test_all_that_could_not_be_undone_is_told_line_by_line() -> None:
    def undo(change: Change) -> None:
        raise OSError(errno.EBUSY, "busy") if change.details["name"] == "a" else TestbedError("it is stuck")

    journal = Journal(undo)
    note(journal, "a")
    note(journal, "b", "loadgen")
    with pytest.raises(UndoFailed) as raised:
        journal.undo()
    assert str(raised.value) == "cannot undo loadgen: thing b: it is stuck\ncannot undo host: thing a: [Errno 16] busy"
    assert len(journal.standing) == 2 and isinstance(raised.value, TestbedError)


def test_a_mistake_in_an_undoing_is_not_taken_for_one_that_failed() -> None:
    def undo(change: Change) -> None:
        raise ZeroDivisionError

    journal = Journal(undo)
    note(journal, "a")
    with pytest.raises(ZeroDivisionError):
        journal.undo()


@pytest.mark.parametrize("in_a_hurry", [False, True])
def test_a_server_that_could_not_be_reached_is_tried_again_next_time_but_in_a_hurry(
    monkeypatch: pytest.MonkeyPatch, in_a_hurry: bool
) -> None:
    asked: list[str] = []

    def undo(change: Change) -> None:
        asked.append(change.server)
        if change.server == "host" and len(asked) < 3:
            raise ConnectError("host: no answer")

    journal = Journal(undo)
    note(journal, "a")
    note(journal, "b", "loadgen")
    assert not journal.is_unreachable("host")
    with pytest.raises(UndoFailed, match="^cannot undo host: thing a: host: no answer$"):
        journal.undo()
    assert journal.is_unreachable("host") and not journal.is_unreachable("loadgen") and asked == ["loadgen", "host"]
    monkeypatch.setattr(journal_module, "requested", lambda: in_a_hurry)
    with (
        pytest.raises(UndoFailed, match="^cannot undo host: thing a: host: no answer$")
        if in_a_hurry
        else pytest.raises(ValueError)
    ):
        asked.append("")
        journal.undo()
        raise ValueError
    assert journal.is_unreachable("host") is in_a_hurry and asked == ["loadgen", "host", "", *([] if in_a_hurry else ["host"])]


def test_what_is_forgotten_is_not_undone_and_its_file_is_gone(journal: Journal, tmp_path: Path, undone: list[str]) -> None:
    note(journal, "a")
    journal.forget()
    assert journal.standing == () and list(tmp_path.iterdir()) == []
    journal.undo()
    assert undone == []


def test_a_file_of_which_changes_stand_is_left_when_its_journal_is_closed(journal: Journal, tmp_path: Path) -> None:
    note(journal, "a")
    journal.close()
    assert names(tmp_path / "journals/a.journal") == ["a"]
    (tmp_path / "journals/a.journal").unlink()
    journal.forget()
    assert list(tmp_path.iterdir()) == []


def test_what_is_changed_for_good_is_undone_after_an_error_and_only_that(
    journal: Journal, undone: list[str], tmp_path: Path
) -> None:
    note(journal, "a")
    with pytest.raises(ValueError), journal.kept("shell"):
        note(journal, "b")
        raise ValueError
    assert undone == ["b"] and read_journal(tmp_path / "journals/a.journal").kept == ""
    assert names(tmp_path / "journals/a.journal") == ["a"]


def test_that_it_is_meant_to_stay_cannot_be_written_is_said_in_full(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    note(journal, "a")
    with pytest.raises(TestbedError) as raised, monkeypatch.context() as patch, journal.kept("shell"):
        patch.setattr(os, "write", lambda descriptor, content: 0)
    assert str(raised.value) == f"the journal {journal.path} cannot be written: No space left on device"


def test_whoever_goes_on_with_a_journal_counts_on(journal: Journal, tmp_path: Path) -> None:
    for name in "abc":
        note(journal, name)
    journal.undo(after=2)
    path = abandoned(journal)
    left = read_journal(path)
    went_on = left.journal(lambda change: None)
    assert went_on.path == path and [change.number for change in went_on.standing] == [1, 2]
    note(went_on, "d")
    assert went_on.standing[-1] == Change(3, "host", "thing", {"name": "d"})
    assert read_journal(path).header == left.header == {"version": 1, "who": "the test"}
    went_on.undo()
    went_on.close()
    assert list(tmp_path.iterdir()) == []
    empty = Left(path, HEADER).journal(lambda change: None)
    note(empty, "e")
    assert empty.standing[0].number == 1


def test_what_is_undone_in_the_file_is_left_out_and_what_never_was_does_not_matter(tmp_path: Path) -> None:
    path = tmp_path / "a.journal"
    lines = [
        {"version": 1},
        _WHOLE,
        _WHOLE | {"change": 5, "details": {}},
        {"undone": 1},
        {"undone": 9},
        {"kept": "first"},
        {"kept": "b"},
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    left = read_journal(path)
    assert left.changes == [Change(5, "host", "thing", {}, "", "")] and (left.kept, left.path) == ("b", path)


@pytest.mark.parametrize(
    "line",
    [*(_WHOLE | {key: wrong} for key in _WHOLE for wrong in (None, 1.5, ["x"], 7) if not (key == "change" and wrong == 7)),
     *({key: value for key, value in _WHOLE.items() if key != missing} for missing in _WHOLE),
     _WHOLE | {"details": {"name": 1}}, _WHOLE | {"change": 0}, _WHOLE | {"change": -1}, _WHOLE | {"change": "1"},
     {"undone": 0}, {"undone": "1"}, {"undone": None}, {"kept": None}, {}],
    ids=str,
)  # fmt: skip
def test_a_line_that_is_not_as_it_should_be_makes_a_damaged_journal(tmp_path: Path, line: dict[str, Any]) -> None:
    path = tmp_path / "a.journal"
    path.write_text(f'{{"version": 1}}\n{json.dumps(_WHOLE)}\n')
    assert len(read_journal(path).changes) == 1
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")
    with pytest.raises(TestbedError) as raised:
        read_journal(path)
    assert str(raised.value) == f"the journal {path} is damaged: mend it or move it away, then look after the testbed"


@pytest.mark.parametrize(
    "header", ["", "{}\n", '{"version": 0}\n', '{"version": 2}\n', '{"version": "1"}\n', '{"version": 1}', "1\n"]
)
def test_a_journal_of_another_version_is_none_and_named(tmp_path: Path, header: str) -> None:
    path = tmp_path / "a.journal"
    path.write_text(header)
    with pytest.raises(TestbedError) as raised:
        read_journal(path)
    assert str(raised.value) == f"{path} is no journal of this version of autotest"


def test_what_a_change_is_about_is_said_by_name(journal: Journal) -> None:
    with pytest.raises(TypeError):
        journal.note("host", "thing", "b-1", "guest", {"name": "a"})  # type: ignore[call-arg,misc]
