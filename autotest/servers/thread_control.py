"""The threads of a process: on which CPUs they may run, how they are scheduled, and changing that.

This file runs on the machine whose threads they are, which may be another one with an older Python, and so imports nothing
but Python's own library. Its arguments are the name of one of ``COMMANDS`` and what that takes, as JSON; it prints what that
gives, as JSON.

A thread is what :func:`read_thread` gives. A setting is a list of CPUs, policy and priority as sched_setscheduler(2) takes
them, and nice value; what is None in it stays as it is. Start times are in clock ticks since the boot.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable
from typing import Any

_POSSIBLE = "/sys/devices/system/cpu/possible"
_VHOST = re.compile(r"vhost-([0-9]+)")  # the id is that of the thread that opened the device: drivers/vhost/vhost.c
_KERNEL_THREAD = 0x00200000  # PF_KTHREAD of include/linux/sched.h
_ROUNDS = 10  # while threads are placed, those that are not yet may make new ones


def available() -> list[int]:
    """The CPUs that this process may use if it wants to: those that are online and in the cpuset of its cgroup."""
    with open(_POSSIBLE) as file:
        highest = int(re.findall("[0-9]+", file.read())[-1])
    os.sched_setaffinity(0, range(highest + 1))  # the kernel takes of these what there is
    return sorted(os.sched_getaffinity(0))


def read_thread(tid: int) -> dict[str, Any] | None:
    """One thread as it is now; None where it has ended."""
    try:
        with open(f"/proc/{tid}/task/{tid}/stat", errors="replace") as file:
            name, state, start, is_kernels = understand_stat(file.read())
        if state in "ZX":
            return None
        return {
            "tid": tid,
            "start": start,
            "name": name,
            "kernel": is_kernels,
            "cpus": sorted(os.sched_getaffinity(tid)),
            "policy": os.sched_getscheduler(tid),
            "priority": os.sched_getparam(tid).sched_priority,
            "nice": os.getpriority(os.PRIO_PROCESS, tid),
        }
    except (FileNotFoundError, ProcessLookupError):
        return None


def understand_stat(stat: str) -> tuple[str, str, int, bool]:
    """Name, state, start time, and whether it is a thread of the kernel's own, from proc(5)'s stat."""
    name, _, rest = stat.partition("(")[2].rpartition(")")
    fields = rest.split()
    return name, fields[0], int(fields[19]), bool(int(fields[6]) & _KERNEL_THREAD)


def of_process(pid: int) -> list[dict[str, Any]]:
    """The threads of a process in the order in which they began, with those that the kernel runs for its vhost devices.

    Since Linux 6.4 the latter are threads of the process, too; before, and where the kernel is told so, they are its own.
    """
    try:
        own = {int(name) for name in os.listdir(f"/proc/{pid}/task")}
    except (FileNotFoundError, ProcessLookupError):
        return []
    others = {tid for tid, name in _processes() if is_vhost_of(own, name)} - own
    found = [thread for thread in map(read_thread, own | others) if thread]
    found = [thread for thread in found if thread["tid"] in own or thread["kernel"]]
    return sorted(found, key=lambda thread: (thread["start"], thread["tid"]))


def is_vhost(name: str) -> bool:
    """Whether a thread of that name is one that the kernel runs for a vhost device."""
    return _VHOST.fullmatch(name) is not None


def is_vhost_of(tids: set[int], name: str) -> bool:
    """Whether a thread of that name works for a vhost device which one of these threads opened."""
    match = _VHOST.fullmatch(name)
    return match is not None and int(match.group(1)) in tids


def _processes() -> list[tuple[int, str]]:
    """Id and name of all processes; the kernel's own threads are among them."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/comm", errors="replace") as file:
                    found.append((int(entry), file.read().rstrip("\n")))
            except (FileNotFoundError, ProcessLookupError):
                pass
    return found


def place(request: dict[str, Any]) -> dict[str, Any]:
    """Give threads of a process the settings that are asked for.

    Args:
        request: ``pid`` of the process; ``threads``, a list of thread id, start time and setting; ``others``, the setting of
            all its threads that are not in that list, vhost threads apart, with the start time of the process in front, or
            None for none. A thread of that id which started at another time is another one.

    Returns:
        ``threads`` as they are then; ``changed``, the ids of those that were not so before; ``refused``: thread id, what of
        it (``cpus`` or ``scheduling``), and why; and the CPUs that are ``available``.
    """
    wanted = {(tid, start): setting for tid, start, setting in request["threads"]}
    done: set[tuple[int, int]] = set()
    changed: list[int] = []
    refused: list[list[Any]] = []
    for _ in range(_ROUNDS):
        threads = of_process(request["pid"])
        others = _setting_of_others(request, threads)
        todo = []
        for thread in threads:
            known = thread["tid"], thread["start"]
            setting = wanted.get(known, None if is_vhost(thread["name"]) else others)
            if known not in done and setting:
                todo.append((thread, setting))
                done.add(known)
        if not todo:
            break
        for what, change in (("cpus", _set_cpus), ("scheduling", _set_scheduling)):  # first all get away from each other
            for thread, setting in todo:
                try:
                    if change(thread, setting):
                        changed.append(thread["tid"])
                except ProcessLookupError:
                    pass
                except OSError as error:
                    refused.append([thread["tid"], what, error.strerror])
    return {"threads": of_process(request["pid"]), "changed": changed, "refused": refused, "available": available()}


def _setting_of_others(request: dict[str, Any], threads: list[dict[str, Any]]) -> list[Any] | None:
    if request["others"] is None:
        return None
    start, setting = request["others"]
    is_it = any((thread["tid"], thread["start"]) == (request["pid"], start) for thread in threads)
    return list(setting) if is_it else None


def _set_cpus(thread: dict[str, Any], setting: list[Any]) -> bool:
    cpus = setting[0]
    if cpus is None or cpus == thread["cpus"]:
        return False
    os.sched_setaffinity(thread["tid"], cpus)
    return True


def _set_scheduling(thread: dict[str, Any], setting: list[Any]) -> bool:
    tid, (_, policy, priority, nice) = thread["tid"], setting
    changes_policy = policy is not None and (policy, priority) != (thread["policy"], thread["priority"])
    if changes_policy:
        os.sched_setscheduler(tid, policy, os.sched_param(priority))
    changes_nice = nice is not None and nice != thread["nice"]
    if changes_nice:
        os.setpriority(os.PRIO_PROCESS, tid, nice)
    return changes_policy or changes_nice


def read(tids: list[int]) -> list[dict[str, Any] | None]:
    """These threads as they are now, each None where it has ended."""
    return [read_thread(tid) for tid in tids]


COMMANDS: dict[str, Callable[[Any], Any]] = {
    "available": lambda _: available(),
    "of_process": of_process,
    "place": place,
    "read": read,
}

if __name__ == "__main__":
    print(json.dumps(COMMANDS[sys.argv[1]](json.loads(sys.argv[2]))))
