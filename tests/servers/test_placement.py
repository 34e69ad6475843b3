"""Threads of real processes are put where the configuration says, and back: read from /proc and asked of the kernel here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotest.config import values
from autotest.config.testbed import HostConfig
from autotest.errors import QemuError, TestbedError
from autotest.qemu import qmp
from autotest.remote.local import LocalTransport
from autotest.remote.wait import wait_for
from autotest.run.journal import Journal, UndoFailed, read_journal
from autotest.servers import placement, thread_control, threads
from autotest.servers.server import Server
from autotest.servers.undoing import undo

HERE = LocalTransport("here")
CPUS = sorted(os.sched_getaffinity(0))
BOTH = f"{CPUS[0]}-{CPUS[1]}" if CPUS[1] == CPUS[0] + 1 else f"{CPUS[0]},{CPUS[1]}"
ALL = threads.cpu_ranges(CPUS)
ABSENT = 8000

Before = dict[int, tuple[str, int, int, int]]


def seen(pid: int) -> Before:
    """CPUs, policy, priority and nice value of all threads of a process, by their ids."""
    found = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        tid = int(task.name)
        priority = os.sched_getparam(tid).sched_priority
        found[tid] = (cpus_of(tid), os.sched_getscheduler(tid), priority, os.getpriority(os.PRIO_PROCESS, tid))
    return found


def cpus_of(tid: int) -> str:
    (line,) = [line for line in Path(f"/proc/{tid}/status").read_text().splitlines() if line.startswith("Cpus_allowed_list:")]
    return line.split()[1]


@contextmanager
def ended(command: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


class Qemu:
    """A QEMU with a machine that stands still, so that even a real-time vCPU takes nothing of this machine."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.socket = str(folder / "qmp.sock")
        machine = ["-S", "-display", "none", "-nodefaults", "-no-user-config", "-machine", "pc", "-m", "16"]
        self.command = ["qemu-system-x86_64", *machine, "-qmp", f"unix:{self.socket},server=on,wait=off", *options]

    @contextmanager
    def running(self) -> Iterator[Qemu]:
        with ended(self.command) as self.process:
            wait_for(lambda: qmp.is_listening(HERE, self.socket), "QMP", 10, 0.02)
            yield self

    @property
    def pid(self) -> int:
        return self.process.pid

    def ask(self, command: str, **arguments: Any) -> Any:
        with qmp.connect(HERE, self.socket) as control:
            return control.command(command, **arguments)

    def vcpus(self) -> list[int]:
        return [vcpu["thread-id"] for vcpu in self.ask("query-cpus-fast")]

    def place(self, server: Server, config: HostConfig, vhost: bool = False) -> tuple[threads.Thread, ...]:
        with qmp.connect(HERE, self.socket) as control:
            return placement.place_guest(server, config, self.pid, control, vhost=vhost)


@pytest.fixture
def qemu(tmp_path: Path) -> Iterator[Qemu]:
    """One with two vCPUs, each with a thread of its own, and an I/O thread."""
    with Qemu(tmp_path, "-accel", "tcg,thread=multi", "-smp", "2", "-object", "iothread,id=io0").running() as qemu:
        yield qemu


@pytest.fixture
def server() -> Server:
    assert len(CPUS) >= 2, "these tests move threads between two CPUs"
    return Server("host", HostConfig(fqdn="localhost"))


def config(**keys: str) -> HostConfig:
    """Section host with these keys, as the file has them."""
    parsed = {key: (values.cpu_list if key.startswith("cpus_") else values.scheduling)(text) for key, text in keys.items()}
    return HostConfig(fqdn="localhost", **parsed)  # type: ignore[arg-type]


# -- pinning -----------------------------------------------------------------------------------------------


@pytest.mark.default
def test_each_vcpu_gets_a_cpu_of_its_own_and_the_rest_of_qemu_its_own_list(qemu: Qemu, server: Server) -> None:
    placed = qemu.place(server, config(cpus_vcpus=BOTH, cpus_qemu=str(CPUS[1])))
    first, second = qemu.vcpus()
    found = seen(qemu.pid)
    assert found.pop(first)[0] == str(CPUS[0]) and found.pop(second)[0] == str(CPUS[1])
    assert len(found) >= 3 and {cpus for cpus, *_ in found.values()} == {str(CPUS[1])}
    assert {(thread.name, thread.tid) for thread in placed} >= {("vcpu 0", first), ("vcpu 1", second), ("qemu", qemu.pid)}
    (iothread,) = qemu.ask("query-iothreads")
    assert [thread.tid for thread in placed if thread.name == "iothread io0"] == [iothread["thread-id"]]


@pytest.mark.default
def test_with_fewer_cpus_than_vcpus_all_vcpus_share_them_and_nothing_else_is_moved(qemu: Qemu, server: Server) -> None:
    before = seen(qemu.pid)
    qemu.place(server, config(cpus_vcpus=str(CPUS[1])))
    found, vcpus = seen(qemu.pid), qemu.vcpus()
    assert {found.pop(tid)[0] for tid in vcpus} == {str(CPUS[1])}
    assert found == {tid: each for tid, each in before.items() if tid not in vcpus}


@pytest.mark.parametrize(
    ("cpus", "vcpus", "expected"),
    [
        ("2-5", 1, [[2], [3], [4], [5], [2]]),  # the fifth shares one with the first
        ("2-5", 2, [[2, 3], [4, 5], [2, 3], [4, 5], [2, 3]]),
        ("2-4", 2, [[2, 3], [4, 2], [3, 4], [2, 3], [4, 2]]),
    ],
)
def test_several_guests_take_the_cpus_of_a_list_in_turn(cpus: str, vcpus: int, expected: list[list[int]]) -> None:
    """All on the CPUs of the first would be measured as what guests cost each other."""
    found = [threads.Thread(tid, 1, "", False, (0, 1), 0, 0, 0) for tid in range(vcpus)]
    for role in (placement.VCPUS, placement.VHOST):
        configured = config(**{f"cpus_{role}": cpus})
        shares = [placement._shares(configured, role, found, number) for number in range(1, 6)]
        assert [[cpu for wanted in share.values() for cpu in wanted[0]] for share in shares] == expected


@pytest.mark.default
def test_a_thread_that_is_all_vcpus_gets_one_cpu(tmp_path: Path, server: Server) -> None:
    with Qemu(tmp_path, "-accel", "tcg,thread=single", "-smp", "2").running() as qemu:
        placed = qemu.place(server, config(cpus_vcpus=BOTH))
        (thread,) = set(qemu.vcpus())
        assert cpus_of(thread) == str(CPUS[0])
        assert threads.record(placed)["vcpu 0-1"]["cpus"] == str(CPUS[0])


def test_without_keys_nothing_is_asked_of_the_machine(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_ask", lambda *_: pytest.fail("asked"))
    without = config(cpus_switch="0")  # of another role
    assert placement.place_guest(server, without, 1, None, vhost=True) == ()  # type: ignore[arg-type]
    assert placement.place_switch(server, config(cpus_vcpus="0"), 1) == ()
    placement.require_placed(server, ())
    assert server.journal.standing == ()


@pytest.mark.default
def test_a_switchs_threads_share_its_cpus_those_that_it_makes_later_too(server: Server) -> None:
    with python(f"{IMPORTS}start('worker')\nsay()\nsys.stdin.readline()\nstart('late')\nsay()\nsys.stdin.readline()") as process:
        before = seen(process.pid)
        placed = placement.place_switch(server, config(cpus_switch=str(CPUS[1]), scheduling_switch="batch"), process.pid)
        assert {each[:2] for each in seen(process.pid).values()} == {(str(CPUS[1]), os.SCHED_BATCH)}
        assert "switch worker" in {thread.name for thread in placed}
        go_on(process)
        assert len(seen(process.pid)) == len(before) + 1
        assert {each[:2] for each in seen(process.pid).values()} == {(str(CPUS[1]), os.SCHED_BATCH)}
        server.journal.undo()
        assert set(seen(process.pid).values()) == set(before.values())


# -- scheduling --------------------------------------------------------------------------------------------


@pytest.mark.default
@pytest.mark.parametrize(
    ("text", "policy", "priority", "nice"),
    [
        ("other", os.SCHED_OTHER, 0, 0),
        ("nice:-5", os.SCHED_OTHER, 0, -5),
        ("batch", os.SCHED_BATCH, 0, 0),
        ("idle", os.SCHED_IDLE, 0, 0),
        ("fifo:7", os.SCHED_FIFO, 7, 3),
        ("rr:1", os.SCHED_RR, 1, 3),
    ],
)
def test_each_scheduling_is_really_set_and_taken_back(
    qemu: Qemu, server: Server, text: str, policy: int, priority: int, nice: int
) -> None:
    for tid in seen(qemu.pid):
        os.setpriority(os.PRIO_PROCESS, tid, 3)
    before = seen(qemu.pid)
    placed = qemu.place(server, config(scheduling_vcpus=text))
    found, vcpus = seen(qemu.pid), qemu.vcpus()
    assert {found.pop(tid) for tid in vcpus} == {(ALL, policy, priority, nice)}
    assert {each[1:] for each in found.values()} == {(os.SCHED_OTHER, 0, 3)}
    assert threads.record(placed)["vcpu 0"] == {"cpus": ALL, "scheduling": text}
    server.journal.undo()
    assert seen(qemu.pid) == before


@pytest.mark.default
def test_a_setting_that_the_kernel_refuses_is_named_with_key_thread_and_reason(
    qemu: Qemu, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To root it refuses real-time only where the cgroup has none, so here a machine that does nothing answers for it."""
    vcpu = qemu.vcpus()[1]

    def refusing(server: Server, pid: int, start: int, wanted: Any, others: Any) -> threads.Placed:
        refused = {(vcpu, "scheduling"): "Operation not permitted"}
        return threads.Placed(tuple(threads.of_process(server, pid)), 0, refused, tuple(CPUS))

    monkeypatch.setattr(placement, "place", refusing)
    with pytest.raises(TestbedError) as caught:
        qemu.place(server, config(scheduling_vcpus="fifo:50"))
    first, second = str(caught.value).splitlines()
    assert first.startswith("host: [host] scheduling_vcpus: vcpu 0, thread ") and first.endswith("as other and not as fifo:50")
    assert second.endswith(f"vcpu 1, thread {vcpu}, is scheduled as other and not as fifo:50 (Operation not permitted)")


# -- CPUs that are not there -------------------------------------------------------------------------------


@pytest.mark.default
def test_the_cpus_there_are_those_of_the_machine_not_those_that_this_process_uses(server: Server) -> None:
    os.sched_setaffinity(0, CPUS[:1])
    try:
        assert threads.available_cpus(server) == tuple(CPUS)
    finally:
        os.sched_setaffinity(0, CPUS)


@pytest.mark.default
@pytest.mark.parametrize("text", [str(ABSENT), f"{CPUS[1]},{ABSENT}"], ids=["all absent", "one absent"])
def test_a_cpu_that_went_away_since_is_an_error_and_all_is_as_before(qemu: Qemu, server: Server, text: str) -> None:
    """The kernel itself refuses a list only if none of it is there."""
    before = seen(qemu.pid)
    says = rf"\[host\] cpus_qemu: .*, may run on CPU .* and not on .*{ABSENT}.*; those that can be used are {ALL}"
    with pytest.raises(TestbedError, match=says), server.journal.scope():
        qemu.place(server, config(cpus_qemu=text, cpus_vcpus=str(CPUS[0])))
    assert seen(qemu.pid) == before


# -- vhost -------------------------------------------------------------------------------------------------

IMPORTS = """
import ctypes, os, sys, threading, time
def start(name):
    ready = threading.Event()
    def work():
        ctypes.CDLL(None).prctl(15, name.encode(), 0, 0, 0)
        ready.set()
        time.sleep(60)
    threading.Thread(target=work, daemon=True).start()
    ready.wait()
def say():
    print('.', flush=True)
"""


@contextmanager
def python(program: str) -> Iterator[subprocess.Popen[str]]:
    """A process of that program, which has said that it is ready."""
    with ended([sys.executable, "-c", program]) as process:
        assert process.stdout and process.stdout.readline() == ".\n"
        yield process


def go_on(process: subprocess.Popen[str]) -> None:
    assert process.stdin and process.stdout
    process.stdin.write("\n")
    process.stdin.flush()
    assert process.stdout.readline() == ".\n"


class Control:
    """QMP of a process that is no QEMU."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers

    def command(self, name: str, **arguments: Any) -> Any:
        return self.answers[name.replace("-", "_")]


def control(pid: int) -> Any:
    return Control(query_cpus_fast=[{"cpu-index": 0, "thread-id": pid}], query_iothreads=[])


def place_vhost(server: Server, pid: int, vhost: bool = True, **keys: str) -> dict[str, threads.Thread]:
    placed = placement.place_guest(server, config(**keys), pid, control(pid), vhost=vhost)
    return {thread.name: thread for thread in placed}


@pytest.mark.default
def test_vhost_threads_that_are_tasks_of_qemu_get_a_cpu_each_in_the_order_in_which_they_began(server: Server) -> None:
    """As since Linux 6.4; the id in the name is that of a thread of QEMU in the kernel's own count."""
    with python(f"{IMPORTS}start('vhost-77')\ntime.sleep(.03)\nstart('vhost-77')\nsay()\ntime.sleep(60)") as process:
        own = sorted(set(seen(process.pid)) - {process.pid})
        placed = place_vhost(server, process.pid, cpus_vhost=BOTH, cpus_vcpus=str(CPUS[1]))
        assert [placed["vhost 0"].tid, placed["vhost 1"].tid] == own
        assert [cpus_of(tid) for tid in own] == [str(CPUS[0]), str(CPUS[1])]


@pytest.mark.default
def test_vhost_threads_are_none_of_qemus_other_threads(server: Server) -> None:
    with python(f"{IMPORTS}start('vhost-77')\nstart('worker')\nsay()\ntime.sleep(60)") as process:
        placed = place_vhost(server, process.pid, cpus_qemu=str(CPUS[1]))
        assert (placed["vhost 0"].cpus, placed["qemu"].cpus) == (tuple(CPUS), (CPUS[1],))


def test_vhost_threads_of_the_kernel_itself_are_found_by_the_id_in_their_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """As before Linux 6.4; there may be none where this runs, so a process stands for one."""
    with python(f"{IMPORTS}say()\ntime.sleep(60)") as qemu, python(f"{IMPORTS}say()\ntime.sleep(60)") as stands_for_it:
        read = thread_control.read_thread
        kernels = [(stands_for_it.pid, f"vhost-{qemu.pid}"), (os.getpid(), f"vhost-{qemu.pid}7")]

        def read_thread(tid: int) -> dict[str, Any] | None:
            found = read(tid)
            return {**found, "kernel": True} if found and tid != qemu.pid else found

        monkeypatch.setattr(thread_control, "_processes", lambda: kernels)
        monkeypatch.setattr(thread_control, "read_thread", read_thread)
        assert [thread["tid"] for thread in thread_control.of_process(qemu.pid)] == [qemu.pid, stands_for_it.pid]


@pytest.mark.default
def test_a_process_that_only_calls_itself_like_a_vhost_thread_is_none(qemu: Qemu, server: Server) -> None:
    named = f"{IMPORTS}ctypes.CDLL(None).prctl(15, b'vhost-{qemu.pid}', 0, 0, 0)\nsay()\ntime.sleep(60)"
    with python(named) as process:
        assert Path(f"/proc/{process.pid}/comm").read_text() == f"vhost-{qemu.pid}\n"
        assert {thread.tid for thread in threads.of_process(server, qemu.pid)} == set(seen(qemu.pid))


def test_a_kernel_thread_is_told_from_a_process_by_its_flags() -> None:
    # Linux 6.1, process 115 opened /dev/vhost-net; Linux 6.18, a process with brackets in its name.
    vhost = (
        "116 (vhost-115) S 2 0 0 0 -1 2129984 0 0 0 0 0 0 0 0 20 0 1 0 1192 0 0 18446744073709551615 0 0 0 0 0 0 0 "
        "2147483647 0 1 0 0 17 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
    )
    other = (
        "3555 (a) b) R 3269 3269 26970 0 -1 4194304 2898 6521 0 0 4 1 6 0 20 0 1 0 2641762 17145856 3421 "
        "18446744073709551615 94349431570432 94349431570773 140723845613984 0 0 0 0 16781312 2 0 0 0 17 0 0 0 0 0 0 "
        "94349431582128 94349431582744 94349805457408 140723845617861 140723845617904 140723845617904 140723845619663 0\n"
    )
    assert thread_control.understand_stat(vhost) == ("vhost-115", "S", 1192, True)
    assert thread_control.understand_stat(other) == ("a) b", "R", 2641762, False)


@pytest.mark.default
def test_a_vhost_thread_that_is_not_found_is_an_error_where_the_guest_has_vhost(qemu: Qemu, server: Server) -> None:
    wanted = config(cpus_vhost=str(CPUS[0]))
    with pytest.raises(TestbedError, match=r"cpus_vhost or scheduling_vhost is set, but QEMU has no vhost thread"):
        qemu.place(server, wanted, vhost=True)
    assert qemu.place(server, wanted, vhost=False)


# -- threads that are made meanwhile -----------------------------------------------------------------------


def test_threads_that_are_made_while_the_others_are_placed_are_placed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    program = f"{IMPORTS}start('worker')\nstart('worker')\nstart('vhost-77')\nsay()\ntime.sleep(60)"
    with python(program) as process:
        everything = thread_control.of_process(process.pid)
        seen_so_far = iter([everything[:1], everything[:2]])
        monkeypatch.setattr(thread_control, "of_process", lambda pid: next(seen_so_far, everything))
        monkeypatch.setattr(thread_control, "available", lambda: CPUS)
        others = (everything[0]["start"], [[CPUS[1]], None, None, None])
        answer = thread_control.place({"pid": process.pid, "threads": [], "others": others})
        placed = [thread["tid"] for thread in everything[:3]]
        assert [thread["name"] for thread in everything[1:]] == ["worker", "worker", "vhost-77"]
        assert {tid: cpus for tid, (cpus, *_) in seen(process.pid).items() if cpus == str(CPUS[1])}.keys() == set(placed)
        assert answer["changed"] == placed and answer["refused"] == []


# -- undoing -----------------------------------------------------------------------------------------------


def journal(server: Server, path: Path) -> None:
    server.journal = Journal(lambda change: undo(server, change), path)


def undone(path: Path) -> list[str]:
    """What a later process does that knows the journal alone."""
    later = Server("host", HostConfig(fqdn="localhost"))
    said: list[str] = []
    left = read_journal(path).journal(lambda change: undo(later, change))
    left.undo(say=said.append)
    left.close()
    return said


@pytest.mark.default
def test_a_later_process_puts_all_threads_back_those_made_meanwhile_too(qemu: Qemu, server: Server, tmp_path: Path) -> None:
    path = tmp_path / "j"
    journal(server, path)
    os.sched_setaffinity(qemu.vcpus()[1], CPUS[:1])  # one that was somewhere of its own
    before = seen(qemu.pid)
    qemu.place(server, config(cpus_vcpus=str(CPUS[1]), cpus_qemu=str(CPUS[1]), scheduling_qemu="nice:4", scheduling_vcpus="rr:2"))
    qemu.ask("object-add", **{"qom-type": "iothread", "id": "late"})
    late = set(seen(qemu.pid)) - set(before)
    assert late and {seen(qemu.pid)[tid] for tid in late} == {(str(CPUS[1]), os.SCHED_OTHER, 0, 4)}  # of who made them
    content = path.read_bytes()
    assert undone(path) == [f"host: placement guest: {len(before) + len(late)} threads placed as before"]
    assert seen(qemu.pid) == before | dict.fromkeys(late, before[qemu.pid])
    path.write_bytes(content)
    assert undone(path) == []
    assert not path.exists()


@pytest.mark.default
def test_what_was_before_is_noted_before_anything_is_changed(qemu: Qemu, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    before = seen(qemu.pid)

    def full(kind: str, **details: str) -> None:
        assert kind == "placement" and seen(qemu.pid) == before
        raise TestbedError("no space left")

    monkeypatch.setattr(server, "note", full)
    with pytest.raises(TestbedError, match="no space left"):
        qemu.place(server, config(cpus_vcpus=str(CPUS[1])))
    assert seen(qemu.pid) == before


@pytest.mark.default
def test_nothing_is_left_to_undo_where_qemu_is_gone(qemu: Qemu, server: Server, tmp_path: Path) -> None:
    journal(server, tmp_path / "j")
    qemu.place(server, config(cpus_vcpus=str(CPUS[1]), cpus_qemu=str(CPUS[1])))
    qemu.process.kill()
    qemu.process.wait()
    assert undone(tmp_path / "j") == []


@pytest.mark.default
def test_a_process_that_got_the_id_of_a_qemu_that_ended_is_left_alone(qemu: Qemu, server: Server) -> None:
    placed = qemu.place(server, config(cpus_vcpus=str(CPUS[1]), cpus_qemu=str(CPUS[1])))
    (change,) = server.journal.standing
    before = json.loads(change.details["before"])
    before["threads"] = [(tid, start - 1, setting) for tid, start, setting in before["threads"]]
    before["others"][0] -= 1
    now = seen(qemu.pid)
    assert threads.restore(server, json.dumps(before)) == 0
    assert seen(qemu.pid) == now and len(placed) == len(now)


@pytest.mark.parametrize(
    "before",
    [
        "", "{", "[]", "{}", '{"pid": 1}', '{"pid": "1", "threads": [], "others": null}',
        '{"pid": 1, "threads": [[1, 2]], "others": null}', '{"pid": 1, "threads": [[1, 2, [[0], 0, 0]]], "others": null}',
        '{"pid": 1, "threads": [[1, 2, [["0"], 0, 0, 0]]], "others": null}', '{"pid": 1, "threads": [], "others": 5}',
        '{"pid": 1, "threads": [[1, 2, [null, null, null, null]]], "others": null}',
    ],
)  # fmt: skip
def test_a_damaged_journal_is_said_to_be_so_and_nothing_is_run(
    server: Server, monkeypatch: pytest.MonkeyPatch, before: str
) -> None:
    monkeypatch.setattr(threads, "_ask", lambda *_: pytest.fail("asked"))
    server.note("placement", name="guest", before=before)
    with pytest.raises(UndoFailed, match="the journal does not tell how threads were placed"):
        server.journal.undo()


# -- what moves threads meanwhile, and what the record says ------------------------------------------------


@pytest.mark.default
def test_a_thread_that_something_moves_is_named_with_where_it_is_and_was_put(qemu: Qemu, server: Server) -> None:
    placed = qemu.place(server, config(cpus_vcpus=BOTH, cpus_qemu=str(CPUS[0])))
    placement.require_placed(server, placed)
    vcpu, other = qemu.vcpus()
    os.setpriority(os.PRIO_PROCESS, other, 1)
    assert threads.moved(server, placed) == [
        f"vcpu 1 (thread {other}) is on CPU {CPUS[1]} as nice:1, but was put on CPU {CPUS[1]} as other"
    ]
    os.setpriority(os.PRIO_PROCESS, other, 0)
    os.sched_setaffinity(vcpu, CPUS[1:2])
    os.sched_setscheduler(vcpu, os.SCHED_BATCH, os.sched_param(0))
    with pytest.raises(TestbedError) as caught:
        placement.require_placed(server, placed)
    assert f"vcpu 0 (thread {vcpu}) is on CPU {CPUS[1]} as batch, but was put on CPU {CPUS[0]} as other" in str(caught.value)
    assert "; " not in str(caught.value)
    qemu.process.kill()
    qemu.process.wait()
    placement.require_placed(server, placed)  # that it is gone others notice


@pytest.mark.default
def test_two_guests_that_are_placed_alike_are_recorded_alike(tmp_path: Path, server: Server) -> None:
    found = []
    for _ in range(2):
        with Qemu(tmp_path, "-accel", "tcg,thread=multi", "-smp", "2").running() as qemu:
            wanted = config(cpus_vcpus=BOTH, scheduling_vcpus="fifo:1", cpus_qemu=BOTH, scheduling_qemu="nice:1")
            placed = qemu.place(server, wanted)
            found.append(threads.record(placed))
    assert (
        found[0]
        == found[1]
        == {
            "vcpu 0": {"cpus": str(CPUS[0]), "scheduling": "fifo:1"},
            "vcpu 1": {"cpus": str(CPUS[1]), "scheduling": "fifo:1"},
            "qemu": {"cpus": BOTH, "scheduling": "nice:1"},
        }
    )


def test_threads_of_one_name_that_differ_are_recorded_with_all_that_they_have() -> None:
    one = threads.Thread(1, 1, "qemu", False, (0, 1), os.SCHED_BATCH, 0, 3)
    other = threads.Thread(2, 1, "qemu", False, (1,), os.SCHED_BATCH | 0x40000000, 0, 0)
    assert threads.record([one, other]) == {"qemu": {"cpus": "0-1 or 1", "scheduling": "batch or batch nice:3"}}


@given(st.sets(st.integers(0, values.MAX_CPU), min_size=1))
def test_cpus_are_written_as_they_are_read(cpus: set[int]) -> None:
    assert values.cpu_list(threads.cpu_ranges(sorted(cpus))) == tuple(sorted(cpus))


def test_only_keys_that_are_set_and_have_threads_determine_a_result() -> None:
    assert placement.configured(config()) == {}
    wanted = config(cpus_vcpus="3,1", scheduling_vhost="fifo:05", cpus_switch="7")
    assert placement.configured(wanted, placement.roles(vhost=False, switch=False)) == {"placement.cpus of vcpus": "1,3"}
    assert placement.configured(wanted, placement.roles(vhost=True, switch=True)) == {
        "placement.cpus of vcpus": "1,3", "placement.scheduling of vhost": "fifo:5", "placement.cpus of switch": "7",
    }  # fmt: skip


# -- answers -----------------------------------------------------------------------------------------------


@pytest.mark.default
@pytest.mark.parametrize(
    "answer",
    [None, {}, [{}], [{"cpu-index": 0}], [{"cpu-index": "0", "thread-id": 1}], [{"cpu-index": 0, "thread-id": True}], [5]],
)
def test_a_qemu_that_does_not_tell_of_its_threads_is_an_error(server: Server, answer: Any) -> None:
    strange: Any = Control(query_cpus_fast=answer, query_iothreads=[])
    with pytest.raises(QemuError, match="QMP query-cpus-fast: no answer that QEMU gives"):
        placement.place_guest(server, config(cpus_vcpus="0"), os.getpid(), strange, vhost=False)


@pytest.mark.default
def test_a_vcpu_that_is_a_thread_of_another_process_is_not_touched(server: Server) -> None:
    with python(f"{IMPORTS}say()\ntime.sleep(60)") as process:
        with pytest.raises(QemuError, match=f"QMP names thread {process.pid} as a vCPU, which process {os.getpid()} does not"):
            placement.place_guest(server, config(cpus_vcpus=str(CPUS[1])), os.getpid(), control(process.pid), vhost=False)
        assert cpus_of(process.pid) == ALL


@pytest.mark.default
def test_a_process_that_is_gone_is_an_error(server: Server) -> None:
    with ended(["true"]) as process:
        process.wait()
    with pytest.raises(TestbedError, match=f"the switch, process {process.pid}, is gone"):
        placement.place_switch(server, config(cpus_switch="0"), process.pid)
    with pytest.raises(QemuError, match=f"QEMU, process {process.pid}, is gone"):
        placement.place_guest(server, config(cpus_vcpus="0"), process.pid, control(process.pid), vhost=False)


@pytest.mark.parametrize(
    "answer", ["", "x", "5", "null", "[5]", "[{}]", '{"threads": []}', '[{"tid": "1"}]',
               '[{"tid": 1, "start": 1, "name": "a", "cpus": "0", "policy": 0, "priority": 0, "nice": 0}]']
)  # fmt: skip
def test_a_machine_that_answers_something_else_is_an_error(server: Server, monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    class Answer:
        stdout = answer

    monkeypatch.setattr(server.transport.outside, "run", lambda *_, **__: Answer)
    with pytest.raises(TestbedError, match="host: what it says of its threads is not understood"):
        threads.of_process(server, 1)
    with pytest.raises(TestbedError, match="host: what it says of its threads is not understood"):
        threads.restore(server, '{"pid": 1, "threads": [], "others": null}')


# -- real-time ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("runtime", "says"),
    [("950000", "for 50 ms in each 1000 ms"), ("-1", "stops no real-time thread"), ("1000000", "stops no real-time thread")],
)
def test_real_time_has_a_warning_that_says_what_the_kernel_does_to_it(
    server: Server, monkeypatch: pytest.MonkeyPatch, runtime: str, says: str
) -> None:
    files = dict(zip(placement._THROTTLE, (f"{runtime}\n", "1000000\n"), strict=True))
    monkeypatch.setattr(server.transport.outside, "read", files.get)
    warning = placement.rt_warning(server, config(scheduling_vcpus="fifo:1", scheduling_qemu="nice:1", scheduling_switch="rr:1"))
    assert warning and warning.startswith("scheduling_vcpus, scheduling_switch: ") and says in warning
    assert placement.rt_warning(server, config(scheduling_vcpus="nice:-20", scheduling_qemu="idle")) is None


def test_the_real_files_on_throttling_are_understood(server: Server) -> None:
    assert placement.rt_warning(server, config(scheduling_vcpus="fifo:1"))
