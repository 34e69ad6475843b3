"""What spoils numbers on a machine although everything works. Reading is one command there, which waits a moment in between."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from autotest.errors import TestbedError
from autotest.preflight.requirement import Finding, Requirement, passed, warned
from autotest.preflight.survey import Survey

_SECONDS = 0.4  # between the two looks: long enough for a share of CPU time in clock ticks of 10 ms
_BUSY_CPUS = 0.1  # CPUs; what sshd and the look itself take is below
_MIB_SWAPPED = 1
_SHOWN = 4
_MARK = "==> "
_SCRIPT = f"""
show() {{ printf '{_MARK}%s\\n' "$1"; shift; "$@" 2>/dev/null; }}
show stat grep '^cpu ' /proc/stat
show vmstat grep '^pswp' /proc/vmstat
sleep {_SECONDS}
show stat-later grep '^cpu ' /proc/stat
show vmstat-later grep '^pswp' /proc/vmstat
show swap grep '^Swap' /proc/meminfo
show irqbalance sh -c 'for each in /proc/[0-9]*/comm; do read -r name <"$each" && [ "$name" = irqbalance ] && echo running; done'
"""
_STAT = re.compile(r"cpu +[0-9]{1,18}( [0-9]{1,18}){7,}")
_CPUS = re.compile(r"([0-9]{1,4})(?:-([0-9]{1,4}))?")
_LINE = re.compile(r"(\S+?):?\s+([0-9]{1,18}\b.*)")


def noise(server: str) -> Iterator[Requirement]:
    """All that is looked at on a server that takes part in a measurement."""
    yield Governor(server)
    yield Turbo(server)
    yield Mitigations(server)
    yield IrqBalance(server)
    yield Swap(server)
    yield OtherLoad(server)


@dataclass(frozen=True)
class Governor(Requirement):
    """CPUs at a constant frequency, where their frequency is the kernel's to choose."""

    @property
    def subject(self) -> str:
        return "CPU frequency"

    def look(self, survey: Survey) -> Finding:
        governor = survey.facts(self.server).governor
        if governor is None:
            return passed("not the kernel's to choose")
        if governor == "performance":
            return passed("governor performance")
        return warned(
            f"governor {governor}: CPUs that idle between frames are slow when one comes", "cpupower frequency-set -g performance"
        )


@dataclass(frozen=True)
class Turbo(Requirement):
    """CPUs that never clock higher than what they can keep up."""

    @property
    def subject(self) -> str:
        return "turbo"

    def look(self, survey: Survey) -> Finding:
        turbo = survey.facts(self.server).turbo
        if not turbo:
            return passed("off" if turbo is False else "the kernel does not tell")
        no_turbo, boost = "/sys/devices/system/cpu/intel_pstate/no_turbo", "/sys/devices/system/cpu/cpufreq/boost"
        return warned(
            "on: the frequency depends on temperature and on the other CPUs", f"echo 1 > {no_turbo}, or echo 0 > {boost}"
        )


@dataclass(frozen=True)
class Mitigations(Requirement):
    """No mitigations of CPU vulnerabilities that cost time in each system call and exit of a guest."""

    @property
    def subject(self) -> str:
        return "mitigations"

    def look(self, survey: Survey) -> Finding:
        found = [name for name, text in survey.facts(self.server).mitigations.items() if text.startswith("Mitigation")]
        if not found:
            return passed("none in use")
        more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        detail = f"{', '.join(found[:_SHOWN])}{more}: system calls and exits of guests take longer"
        return warned(detail, "boot with mitigations=off where nobody else uses the machine; the records of trials tell of them")


@dataclass(frozen=True)
class IrqBalance(Requirement):
    """Nothing that moves interrupts between CPUs during a trial."""

    @property
    def subject(self) -> str:
        return "interrupts"

    def look(self, survey: Survey) -> Finding:
        if _sample(survey, self.server).get("irqbalance"):
            return warned("irqbalance runs: it moves the NIC's interrupts to other CPUs", "systemctl stop irqbalance")
        return passed("nothing moves them")


@dataclass(frozen=True)
class Swap(Requirement):
    """All memory where it is used."""

    @property
    def subject(self) -> str:
        return "swap"

    def look(self, survey: Survey) -> Finding:
        sample = _sample(survey, self.server)
        sizes = _numbers(sample["swap"])
        used = (sizes.get("SwapTotal", 0) - sizes.get("SwapFree", 0)) // 1024
        before, later = _numbers(sample.get("vmstat", "")), _numbers(sample.get("vmstat-later", ""))
        moved = sum(later.values()) - sum(before.values())
        if moved:
            return warned(f"swapping: {moved} pages in {_SECONDS:g} s", "free memory, or give the guest less; swapoff -a")
        if used >= _MIB_SWAPPED:
            return warned(f"{used} MiB are swapped out: a trial may wait for one of its pages", "swapoff -a")
        return passed("nothing is swapped out")


@dataclass(frozen=True)
class OtherLoad(Requirement):
    """CPUs that do nothing else."""

    @property
    def subject(self) -> str:
        return "other load"

    def look(self, survey: Survey) -> Finding:
        sample = _sample(survey, self.server)
        busy, cpus = busy_cpus(sample["stat"], sample["stat-later"]), _count(survey.facts(self.server).cpus)
        share = busy * cpus
        of_all = f"{share:.1f} of {cpus} CPUs"
        if share > _BUSY_CPUS:
            return warned(f"{of_all} are busy before anything is measured", "see with top what it is, and end it or wait for it")
        return passed(f"{of_all} busy")


def busy_cpus(before: str, later: str) -> float:
    """The share of CPU time that was not idle, from 0 to 1, between two readings of the first line of /proc/stat.

    See proc(5): user, nice, system, idle, iowait, irq, softirq, steal; what follows is in the first two already.
    """
    first, second = ([int(word) for word in line.split()[1:9]] for line in (before, later))
    passed_by = [now - then for then, now in zip(first, second, strict=True)]
    total = sum(passed_by)
    return 1 - (passed_by[3] + passed_by[4]) / total if total > 0 else 0.0


def _count(cpus: str | None) -> int:
    """How many CPUs are in a list like ``0-3,8``."""
    return sum(int(last or first) - int(first) + 1 for first, last in _CPUS.findall(cpus or "0")) or 1


def _sample(survey: Survey, name: str) -> dict[str, str]:
    """What the script shows on that machine, by name."""
    server = survey.server(name)

    def ask() -> dict[str, str]:
        text = server.run(["sh", "-s"], input=_SCRIPT, check=False).stdout
        sections = (part.partition("\n") for part in text.split(_MARK)[1:])
        found = {title: content.strip() for title, _, content in sections}
        if not all(_STAT.fullmatch(found.get(each, "")) for each in ("stat", "stat-later")) or "swap" not in found:
            raise TestbedError(f"{name}: /proc does not tell how busy it is: {text[:200]!r}")
        return found

    return survey.once(("noise", name), ask)


def _numbers(text: str) -> dict[str, int]:
    """``name value`` or ``name: value unit`` lines."""
    return {match[1]: int(match[2].split()[0]) for line in text.splitlines() if (match := _LINE.match(line))}
