"""Threads on a machine: on which CPUs they may run, how the kernel schedules them, and changing that and back.

What is done there does :mod:`autotest.servers.thread_control`.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotest.errors import TestbedError, printable
from autotest.servers import thread_control
from autotest.servers.server import Server

Setting = tuple[tuple[int, ...] | None, int | None, int | None, int | None]
"""CPUs, policy and priority as sched_setscheduler(2) has them, and nice value; None for what stays as it is."""

UNCHANGED: Setting = (None, None, None, None)
REAL_TIME = ("fifo", "rr")
SHOWN = 3  # threads in an error: what is wrong with one is often wrong with all

_RESET_ON_FORK = 0x40000000  # SCHED_RESET_ON_FORK of include/uapi/linux/sched.h: a flag of the policy
_POLICIES = {0: "other", 1: "fifo", 2: "rr", 3: "batch", 5: "idle", 6: "deadline"}  # SCHED_* of the same file
_NUMBERS = {name: number for number, name in _POLICIES.items()}


@dataclass(frozen=True)
class Thread:
    """One thread, and how it is placed.

    Attributes:
        tid: its id.
        start: when it began, in clock ticks since the boot: together with the id it is this one and no other.
        name: what it calls itself.
        is_vhost: whether the kernel runs it for a vhost device of a process.
        cpus: those that it may run on, ascending.
        policy, priority: as sched_setscheduler(2) has them.
        nice: its nice value, which real-time policies leave aside.
    """

    tid: int
    start: int
    name: str
    is_vhost: bool
    cpus: tuple[int, ...]
    policy: int
    priority: int
    nice: int

    @property
    def setting(self) -> Setting:
        """What makes another thread placed like this one."""
        return self.cpus, self.policy, self.priority, self.nice

    @property
    def scheduling(self) -> str:
        """As :func:`autotest.config.values.scheduling` reads it; the nice value follows where that has no word for both."""
        policy = self.policy & ~_RESET_ON_FORK
        name = _POLICIES.get(policy, f"policy {policy}")
        if name in REAL_TIME:
            return f"{name}:{self.priority}"
        if not self.nice:
            return name
        return f"nice:{self.nice}" if name == "other" else f"{name} nice:{self.nice}"

    def differences(self, wanted: Setting) -> tuple[bool, bool]:
        """Whether its CPUs, and whether its scheduling is another one than is wanted."""
        cpus, policy, priority, nice = wanted
        is_other = policy is not None and (self.policy, self.priority) != (policy, priority)
        return cpus is not None and self.cpus != cpus, is_other or (nice is not None and self.nice != nice)


@dataclass(frozen=True)
class Placed:
    """What came of placing threads.

    Attributes:
        threads: all of the process as they are then.
        changed: how many were placed otherwise before.
        refused: by thread id and ``cpus`` or ``scheduling``, why the kernel refused it.
        available: the CPUs that threads may run on there.
    """

    threads: tuple[Thread, ...]
    changed: int
    refused: Mapping[tuple[int, str], str]
    available: tuple[int, ...]


def setting(cpus: tuple[int, ...], scheduling: str | None) -> Setting:
    """The setting for CPUs, empty for those that it has, and scheduling as :func:`autotest.config.values.scheduling` gives it.

    Where no nice value is asked for it is 0, but real-time policies have none.
    """
    if not scheduling:
        return cpus or None, None, None, None
    policy, _, number = scheduling.partition(":")
    if policy in REAL_TIME:
        return cpus or None, _NUMBERS[policy], int(number), None
    return cpus or None, _NUMBERS["other" if policy == "nice" else policy], 0, int(number or 0)


def cpu_ranges(cpus: Sequence[int]) -> str:
    """CPUs in ascending order as the kernel writes them; the opposite of :func:`autotest.config.values.cpu_list`.

    >>> cpu_ranges((2, 3, 4, 8))
    '2-4,8'
    """
    ranges: list[list[int]] = []
    for cpu in cpus:
        if ranges and cpu == ranges[-1][-1] + 1:
            ranges[-1][1:] = [cpu]
        else:
            ranges.append([cpu])
    return ",".join("-".join(map(str, each)) for each in ranges)


# -- asking and changing -----------------------------------------------------------------------------------


def available_cpus(server: Server) -> tuple[int, ...]:
    """The CPUs there on which a thread of root's may run: online, and in the cpuset of the login's cgroup; ascending."""
    return tuple(_numbers(server, _ask(server, "available", None)))


def of_process(server: Server, pid: int) -> list[Thread]:
    """The threads of a process in the order in which they began, with the kernel's for its vhost devices; none where it has ended."""
    return _threads(server, _ask(server, "of_process", pid))


def place(server: Server, pid: int, start: int, wanted: Mapping[Thread, Setting], others: Setting | None) -> Placed:
    """Place threads of a process.

    Args:
        server: where one command is run, as root.
        pid, start: the process and when it began.
        wanted: threads with what they get; those that have ended meanwhile are left aside.
        others: what all its threads get that are not named: they were made meanwhile. None: they stay as they are.
    """
    return _place(server, _request(pid, start, wanted, others))


def restoring(pid: int, start: int, threads: Iterable[Thread], maker: Thread | None) -> str:
    """For the journal: what :func:`restore` must know. Threads that are made later get what ``maker`` has now."""
    return json.dumps(_request(pid, start, {thread: thread.setting for thread in threads}, maker.setting if maker else None))


def restore(server: Server, before: str) -> int:
    """Place threads as they were before; returns how many were placed otherwise. Those that have ended are left aside.

    Raises:
        TestbedError: the kernel refuses it, or the journal's text is damaged.
    """
    try:
        request = json.loads(before)
        settings = [setting for _, _, setting in request["threads"]] + ([request["others"][1]] if request["others"] else [])
        numbers = [request["pid"], *(number for tid, start, _ in request["threads"] for number in (tid, start))]
        numbers += [number for cpus, *scheduling in settings for number in (*cpus, *scheduling)]
        if not all(type(number) is int for number in numbers) or not all(len(setting) == 4 for setting in settings):
            raise ValueError
    except (ValueError, TypeError, LookupError):
        raise TestbedError(f"the journal does not tell how threads were placed: {before[:100]!r}") from None
    placed = _place(server, request)
    refused = [f"thread {tid}: {why}" for (tid, _), why in placed.refused.items()]
    if refused:
        raise TestbedError(f"{server.name}: threads cannot be placed as before: {'; '.join(refused[:SHOWN])}")
    return placed.changed


def moved(server: Server, placed: Sequence[Thread]) -> list[str]:
    """Which threads are no longer as they were placed, in words; not those that have ended. One command there, or none."""
    if not placed:
        return []
    answer = _ask(server, "read", [thread.tid for thread in placed])
    there = {(thread.tid, thread.start): thread for thread in _threads(server, answer)}
    found = []
    for thread in placed:
        now = there.get((thread.tid, thread.start))
        if now and now.setting != thread.setting:
            found.append(
                f"{thread.name} (thread {thread.tid}) is on CPU {cpu_ranges(now.cpus)} as {now.scheduling}, "
                f"but was put on CPU {cpu_ranges(thread.cpus)} as {thread.scheduling}"
            )
    return found


def record(placed: Iterable[Thread]) -> dict[str, dict[str, str]]:
    """For the record of a trial, by name: CPUs and scheduling. Without ids, so that what is placed alike is recorded alike."""
    found: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for thread in placed:
        found[thread.name]["cpus"].add(cpu_ranges(thread.cpus))
        found[thread.name]["scheduling"].add(thread.scheduling)
    return {name: {key: " or ".join(sorted(each)) for key, each in values.items()} for name, values in found.items()}


# -- what is run there -------------------------------------------------------------------------------------


def _request(pid: int, start: int, wanted: Mapping[Thread, Setting], others: Setting | None) -> dict[str, Any]:
    listed = [(thread.tid, thread.start, each) for thread, each in wanted.items()]
    return {"pid": pid, "threads": listed, "others": (start, others) if others else None}


def _place(server: Server, request: object) -> Placed:
    answer = _ask(server, "place", request)
    try:
        refused = {(int(tid), str(what)): str(why) for tid, what, why in answer["refused"]}
        changed = len(set(answer["changed"]))
        return Placed(tuple(_threads(server, answer["threads"])), changed, refused, tuple(_numbers(server, answer["available"])))
    except (LookupError, TypeError, ValueError):
        raise _no_answer(server, answer) from None


def _ask(server: Server, command: str, argument: object) -> Any:
    # -I: the folder in which it runs may hold a file with the name of a module.
    python = ["python3", "-I", "-", command, json.dumps(argument)]
    answer = server.transport.outside.run(python, input=Path(thread_control.__file__).read_text(), sudo=True).stdout
    try:
        return json.loads(answer)
    except ValueError:
        raise _no_answer(server, answer) from None


def _threads(server: Server, answer: Any) -> list[Thread]:
    try:
        return [_thread(server, each) for each in answer if each is not None]
    except (LookupError, TypeError):
        raise _no_answer(server, answer) from None


def _thread(server: Server, answer: Mapping[str, Any]) -> Thread:
    numbers = ("tid", "start", "policy", "priority", "nice")
    tid, start, policy, priority, nice = _numbers(server, [answer[key] for key in numbers])
    cpus, name = tuple(_numbers(server, answer["cpus"])), str(answer["name"])
    return Thread(tid, start, printable(name), thread_control.is_vhost(name), cpus, policy, priority, nice)


def _numbers(server: Server, answer: Any) -> list[int]:
    if not isinstance(answer, list) or not all(type(number) is int for number in answer):
        raise _no_answer(server, answer)
    return answer


def _no_answer(server: Server, answer: object) -> TestbedError:
    return TestbedError(f"{server.name}: what it says of its threads is not understood: {str(answer)[:100]!r}")
