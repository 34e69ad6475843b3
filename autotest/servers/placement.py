"""CPU placement: on which CPUs the threads of QEMU, vhost and switch run, and how the kernel schedules them there.

Each thread has a role, and each role two keys in section ``host``, ``cpus_ROLE`` and ``scheduling_ROLE``; see
``docs/placement.md``. Threads are found over QMP and in ``/proc`` once QEMU answers. How they were before is noted in the
journal, and restored from there.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from autotest.config.guests import name_of
from autotest.config.testbed import HostConfig
from autotest.errors import QemuError, TestbedError
from autotest.results.identity import Plain
from autotest.servers.server import Server
from autotest.servers.threads import (
    REAL_TIME,
    SHOWN,
    UNCHANGED,
    Placed,
    Setting,
    Thread,
    cpu_ranges,
    moved,
    of_process,
    place,
    restoring,
    setting,
)

if TYPE_CHECKING:
    from autotest.qemu.qmp import Qmp

log = logging.getLogger(__name__)

VCPUS, VHOST, QEMU, SWITCH = ROLES = ("vcpus", "vhost", "qemu", "switch")
GUEST_ROLES = (VCPUS, VHOST, QEMU)

_CPU_EACH = (VCPUS, VHOST)  # roles whose threads get a CPU each where there are enough
_THROTTLE = "/proc/sys/kernel/sched_rt_runtime_us", "/proc/sys/kernel/sched_rt_period_us"


# -- what is configured ------------------------------------------------------------------------------------


def roles(*, vhost: bool, switch: bool) -> tuple[str, ...]:
    """The roles that there are threads for: of a guest, which may have vhost, and of a switch between it and the wire."""
    return (VCPUS, *((VHOST,) if vhost else ()), QEMU, *((SWITCH,) if switch else ()))


def configured(config: HostConfig, roles: Iterable[str] = ROLES) -> dict[str, Plain]:
    """What of placement determines a result: the keys of these roles that have a value, and nothing where none has."""
    found: dict[str, Plain] = {}
    for role in roles:
        cpus, scheduling = _wanted(config, role)
        if cpus:
            found[f"placement.cpus of {role}"] = cpu_ranges(cpus)
        if scheduling:
            found[f"placement.scheduling of {role}"] = scheduling
    return found


def _wanted(config: HostConfig, role: str) -> tuple[tuple[int, ...], str | None]:
    return getattr(config, f"cpus_{role}"), getattr(config, f"scheduling_{role}")


def missing_cpus(config: HostConfig, available: Iterable[int], roles: Iterable[str] = ROLES) -> dict[str, tuple[int, ...]]:
    """By key, the CPUs that are configured but not available."""
    there = set(available)
    missing = {f"cpus_{role}": tuple(cpu for cpu in _wanted(config, role)[0] if cpu not in there) for role in roles}
    return {key: cpus for key, cpus in missing.items() if cpus}


def rt_warning(server: Server, config: HostConfig, roles: Iterable[str] = ROLES) -> str | None:
    """What real-time scheduling does to the numbers on that machine; None where none is configured. Starts no process.

    See https://docs.kernel.org/scheduler/sched-rt-group.html, and for Linux 6.12 fair_server of kernel/sched/deadline.c.
    """
    keys = [f"scheduling_{role}" for role in roles if (_wanted(config, role)[1] or "").startswith(REAL_TIME)]
    if not keys:
        return None
    runtime, period = (_microseconds(server, path) for path in _THROTTLE)
    if 0 <= runtime < period:
        what = (
            f"the kernel stops real-time threads that never sleep for {(period - runtime) / 1000:g} ms in each "
            f"{period / 1000:g} ms (sched_rt_runtime_us), since Linux 6.12 only while others wait for the CPU: latencies show it"
        )
    else:
        what = "the kernel stops no real-time thread here: one that never sleeps leaves nothing of its CPU to anything else"
    return f"{', '.join(keys)}: {what}"


def _microseconds(server: Server, path: str) -> int:
    text = server.transport.outside.read(path) or ""
    try:
        return int(text)
    except ValueError:
        raise TestbedError(f"{server.name}: {path} is not what Linux writes: {text[:50]!r}") from None


# -- placing -----------------------------------------------------------------------------------------------


def place_guest(
    server: Server, config: HostConfig, pid: int, control: Qmp, *, vhost: bool, number: int = 1
) -> tuple[Thread, ...]:
    """Place the threads of a QEMU, and of the kernel for its vhost devices, as configured.

    Args:
        server, config: the host, where two commands are run; none where nothing is configured for a guest.
        pid: of QEMU.
        control: its QMP.
        vhost: whether it has a vhost device, so that there must be threads of it.
        number: of the guest; the CPUs of guest 2 are those behind guest 1's, and so on.

    Returns:
        All its threads as they are now, with names like ``vcpu 0``; nothing where nothing is configured.

    Raises:
        TestbedError: the kernel refuses a setting, or something else has changed it; with the key.
        QemuError: QEMU is gone, or does not tell of its threads.
    """
    if not configured(config, GUEST_ROLES):
        return ()
    found = of_process(server, pid)
    if not found:
        raise QemuError(f"{server.name}: QEMU, process {pid}, is gone")
    vcpus, iothreads = _vcpus(control), _iothreads(control)
    if strangers := vcpus.keys() - {thread.tid for thread in found}:
        raise QemuError(f"{server.name}: QMP names thread {min(strangers)} as a vCPU, which process {pid} does not have")
    with_roles = _guest_roles(found, vcpus, iothreads)
    if vhost and configured(config, [VHOST]) and not with_roles[VHOST]:
        raise TestbedError(f"{server.name}: [host] cpus_vhost or scheduling_vhost is set, but QEMU has no vhost thread")
    return _place(server, config, name_of(number), pid, with_roles, others=QEMU, number=number)


def place_switch(server: Server, config: HostConfig, pid: int) -> tuple[Thread, ...]:
    """Place all threads of the process between wire and guest, as :func:`place_guest` does; they share the CPUs.

    Raises:
        TestbedError: as there, or the process is gone.
    """
    if not configured(config, [SWITCH]):
        return ()
    found = of_process(server, pid)
    if not found:
        raise TestbedError(f"{server.name}: the switch, process {pid}, is gone")
    named = [replace(thread, name=f"switch {thread.name}") for thread in found]
    return _place(server, config, "switch", pid, {SWITCH: named}, others=SWITCH)


def require_placed(server: Server, placed: Sequence[Thread]) -> None:
    """Raises TestbedError when something has moved threads since they were placed. One command there, none without threads."""
    if found := moved(server, placed):
        raise TestbedError(f"{server.name}: something moves threads that were placed: " + "; ".join(found[:SHOWN]))


def _vcpus(control: Qmp) -> dict[int, str]:
    """Thread ids in the order of the vCPUs, with a name for each; under TCG one thread may be all vCPUs."""
    numbers: dict[int, list[int]] = defaultdict(list)
    for vcpu in sorted(_listed(control, "query-cpus-fast", "cpu-index", int), key=lambda vcpu: int(vcpu["cpu-index"])):
        numbers[vcpu["thread-id"]].append(vcpu["cpu-index"])
    return {tid: f"vcpu {cpu_ranges(indexes)}" for tid, indexes in numbers.items()}


def _iothreads(control: Qmp) -> dict[int, str]:
    return {each["thread-id"]: f"iothread {each['id']}" for each in _listed(control, "query-iothreads", "id", str)}


def _listed(control: Qmp, command: str, key: str, kind: type) -> list[dict[str, Any]]:
    """The answer to a query for threads. https://www.qemu.org/docs/master/interop/qemu-qmp-ref.html"""
    answer = control.command(command)
    wanted = {"thread-id": int, key: kind}
    if not isinstance(answer, list) or not all(
        isinstance(each, dict) and all(type(each.get(name)) is expected for name, expected in wanted.items()) for each in answer
    ):
        raise QemuError(f"QMP {command}: no answer that QEMU gives: {str(answer)[:100]!r}")
    return answer


def _guest_roles(found: Iterable[Thread], vcpus: Mapping[int, str], iothreads: Mapping[int, str]) -> dict[str, list[Thread]]:
    """QEMU's threads by role, named, in the order in which they get CPUs: vCPUs by number, vhost by queue, as they began."""
    by_id = {thread.tid: thread for thread in found}
    of_vcpus = [replace(by_id.pop(tid), name=name) for tid, name in vcpus.items()]
    vhost = [thread for thread in by_id.values() if thread.is_vhost]
    rest = [thread for thread in by_id.values() if not thread.is_vhost]
    return {
        VCPUS: of_vcpus,
        VHOST: [replace(thread, name=f"vhost {number}") for number, thread in enumerate(vhost)],
        QEMU: [replace(thread, name=iothreads.get(thread.tid, "qemu")) for thread in rest],
    }


def _place(
    server: Server,
    config: HostConfig,
    name: str,
    pid: int,
    with_roles: Mapping[str, Sequence[Thread]],
    *,
    others: str,
    number: int = 1,
) -> tuple[Thread, ...]:
    """Note how the threads are, place them, and see that they are. Those made meanwhile get what the role ``others`` gets."""
    wanted = {thread: each for role, found in with_roles.items() for thread, each in _shares(config, role, found, number).items()}
    role_of = {(thread.tid, thread.start): (role, thread) for role, found in with_roles.items() for thread in found}
    maker = next((thread for thread in wanted if thread.tid == pid), next(iter(wanted)))
    of_others = setting(*_wanted(config, others)) if configured(config, [others]) else None
    server.note("placement", name=name, before=restoring(pid, maker.start, wanted, maker if of_others else None))
    placed = place(server, pid, maker.start, wanted, of_others)
    problems, threads = [], []
    for now in placed.threads:
        role, before = role_of.get((now.tid, now.start), (others, None))
        thread = replace(now, name=before.name if before else others)
        was_wanted = wanted[before] if before else None if now.is_vhost else of_others
        threads.append(thread)
        problems += _problems(config, role, thread, was_wanted or UNCHANGED, placed)
        log.debug("%s: %s: CPU %s, %s", server.name, thread.name, cpu_ranges(thread.cpus), thread.scheduling)
    if len(problems) > SHOWN:
        problems[SHOWN:] = [f"and {len(problems) - SHOWN} more of that kind"]
    if problems:
        raise TestbedError(f"{server.name}: " + "\n".join(problems))
    return tuple(threads)


def _shares(config: HostConfig, role: str, found: Sequence[Thread], number: int = 1) -> dict[Thread, Setting]:
    """What each thread gets. The guests take the CPUs of a list in turn; behind its end they begin again, and share."""
    cpus, scheduling = _wanted(config, role)
    if role in _CPU_EACH and cpus and len(cpus) >= len(found):
        first = (number - 1) * len(found)
        return {thread: setting((cpus[(first + place) % len(cpus)],), scheduling) for place, thread in enumerate(found)}
    return dict.fromkeys(found, setting(cpus, scheduling))


def _problems(config: HostConfig, role: str, thread: Thread, wanted: Setting, placed: Placed) -> list[str]:
    """In which ways a thread is not placed as it should be, with the kernel's reason where it gave one."""
    cpus, (other_cpus, other_scheduling) = wanted[0], thread.differences(wanted)
    problems = []

    def why(what: str) -> str:
        reason = placed.refused.get((thread.tid, what))
        return f" ({reason})" if reason else ""

    if cpus and other_cpus:
        problems.append(
            f"[host] cpus_{role}: {thread.name}, thread {thread.tid}, may run on CPU {cpu_ranges(thread.cpus)} and not on "
            f"{cpu_ranges(cpus)}{why('cpus')}; those that can be used are {cpu_ranges(placed.available)}"
        )
    if other_scheduling:
        problems.append(
            f"[host] scheduling_{role}: {thread.name}, thread {thread.tid}, is scheduled as {thread.scheduling} and not as "
            f"{_wanted(config, role)[1]}{why('scheduling')}"
        )
    return problems
