"""The CPUs that threads are put on: there, on the NIC's NUMA node, and not taken away by the kernel."""

from __future__ import annotations

import math
from dataclasses import dataclass

from autotest.config.testbed import HostConfig
from autotest.config.values import cpu_list
from autotest.preflight.requirement import Finding, Requirement, failed, passed, warned
from autotest.preflight.survey import Survey
from autotest.servers.placement import missing_cpus, rt_warning
from autotest.servers.threads import available_cpus, cpu_ranges

_NODES = 'for node in /sys/devices/system/node/node*; do echo "${node##*/node} $(cat "$node/cpulist")"; done'


@dataclass(frozen=True)
class PlacementCpus(Requirement):
    """The CPUs that keys of section ``host`` name for these roles are there."""

    roles: tuple[str, ...]

    @property
    def subject(self) -> str:
        return "CPUs of the guest"

    def look(self, survey: Survey) -> Finding:
        host = survey.servers.host
        if not any(getattr(host.config, f"cpus_{role}") for role in self.roles):
            return passed("wherever the kernel puts its threads")
        available = available_cpus(host)
        missing = missing_cpus(host.config, available, self.roles)
        if missing:
            what = "; ".join(f"{key} has CPU {cpu_ranges(cpus)}" for key, cpus in missing.items())
            return failed(f"{what}, which is not there", f"the CPUs that may be used are {cpu_ranges(available)}")
        return passed(
            "; ".join(f"{role} on {cpu_ranges(_cpus(host.config, role))}" for role in self.roles if _cpus(host.config, role))
        )


@dataclass(frozen=True)
class GuestCpus(Requirement):
    """CPUs for so many guests with ``vcpus`` each, of which ``cpu_overcommit`` may share one."""

    guests: int
    vcpus: int

    @property
    def subject(self) -> str:
        return "CPUs for the guests"

    def look(self, survey: Survey) -> Finding:
        host = survey.servers.host
        configured, share = host.config.cpus_vcpus, host.config.cpu_overcommit
        cpus = configured or survey.once(("CPUs", self.server), lambda: available_cpus(host))
        needed, room = self.guests * self.vcpus, len(cpus) * share
        where = f"cpus_vcpus {cpu_ranges(configured)}" if configured else f"the CPUs {cpu_ranges(cpus)}"
        what = f"{self.guests} guests have {needed} vCPUs, and {where} with cpu_overcommit = {share} have room for {room}"
        if needed <= room:
            return passed(what)
        enough = room // self.vcpus
        shared = f"cpu_overcommit = {math.ceil(needed / len(cpus))} in [host]: then they share CPUs, and are slower"
        return failed(f"{what}: enough for {enough} guest{'s' * (enough != 1)}", f"fewer guests, or {shared}")


@dataclass(frozen=True)
class NumaNode(Requirement):
    """The NIC and the threads of these roles on one NUMA node."""

    roles: tuple[str, ...]

    @property
    def subject(self) -> str:
        return "NUMA node"

    def look(self, survey: Survey) -> Finding:
        nodes, near = self._nodes(survey), survey.facts(self.server).nic.numa_node
        if len(nodes) < 2:
            return passed("there is only one")
        if near is None or near not in nodes:
            return passed(f"there are {len(nodes)}, but of the NIC the machine does not tell on which it is")
        config, good = survey.servers.host.config, set(nodes[near])
        far = {f"cpus_{role}": tuple(cpu for cpu in _cpus(config, role) if cpu not in good) for role in self.roles}
        if named := [f"{key} {cpu_ranges(cpus)}" for key, cpus in far.items() if cpus]:
            what = f"the NIC is on node {near}, but not {'; '.join(named)}: each frame crosses between the nodes"
            return warned(what, f"the CPUs of node {near} are {cpu_ranges(nodes[near])}")
        if not all(_cpus(config, role) for role in self.roles):
            what = f"there are {len(nodes)}, and the guest's threads may run on any; the NIC is on node {near}"
            return warned(what, f"cpus_{self.roles[0]} and the others in [host], of {cpu_ranges(nodes[near])}")
        return passed(f"NIC and threads on node {near}")

    def _nodes(self, survey: Survey) -> dict[int, tuple[int, ...]]:
        """The CPUs of each node that has some."""
        text = survey.server(self.server).run(["sh", "-c", _NODES], check=False).stdout
        found = (line.split() for line in text.splitlines())
        return {int(words[0]): cpu_list(words[1]) for words in found if len(words) == 2 and words[0].isdigit()}


@dataclass(frozen=True)
class RealTime(Requirement):
    """Real-time threads that the kernel does not stop for a part of each second."""

    roles: tuple[str, ...]

    @property
    def subject(self) -> str:
        return "real-time scheduling"

    def look(self, survey: Survey) -> Finding:
        host = survey.servers.host
        if warning := rt_warning(host, host.config, self.roles):
            return warned(warning, "another scheduling, or see docs/placement.md")
        return passed("not asked for")


def _cpus(config: HostConfig, role: str) -> tuple[int, ...]:
    found: tuple[int, ...] = getattr(config, f"cpus_{role}")
    return found
