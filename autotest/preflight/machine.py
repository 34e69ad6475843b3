"""What a machine has: programs, files, kernel modules and device files, huge pages."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from autotest.preflight.requirement import Finding, Requirement, failed, passed, warned
from autotest.preflight.survey import Survey

# For each module a line: what is known of it. A module of which the kernel's own list says nothing may still be built in:
# where that list is missing, its symbols tell.
_MODULES = """
folder=/lib/modules/$(uname -r)
for module; do
    name=$(printf %s "$module" | tr - _)
    if [ -e "/sys/module/$name" ]; then echo loaded
    elif tr - _ 2>/dev/null <"$folder/modules.builtin" | grep -q "/$name\\.ko"; then echo built-in
    elif modprobe -n -q -- "$module" 2>/dev/null; then echo loadable
    elif [ ! -e "$folder/modules.builtin" ] && grep -q -m 1 " ${name}_" /proc/kallsyms; then echo built-in
    else echo missing
    fi
done
"""
_AVAILABLE = re.compile(r"^MemAvailable:\s+([0-9]{1,18}) kB$", re.MULTILINE)
_FEWER = ", or fewer guests"
_OPEN = 'exec 3<"$1"'  # not for writing, too: a shell would make a file where there is none
_MADE_BY = {"/dev/net/tun": "tun", "/dev/vhost-net": "vhost_net", "/dev/vfio/vfio": "vfio-pci"}
_LOADED_FOR_A_TEST = ("vfio-pci",)  # when a NIC is bound to it
_THERE = 'for file; do if [ -r "$file" ]; then echo there; else echo missing; fi; done'
# Of a path some shells only say that there is such a file.
_PROGRAMS = """
for program; do
    found=$(command -v -- "$program") && case $found in
        /*) [ -f "$found" ] && [ -x "$found" ];;
    esac && echo there || echo missing
done
"""


@dataclass(frozen=True)
class Programs(Requirement):
    """Programs, each by its name or its path; ``needed_by`` is for the user.

    With ``as_root`` they are looked for where root finds them: that may be in more folders.
    """

    programs: tuple[str, ...]
    needed_by: str
    as_root: bool = False

    @property
    def subject(self) -> str:
        return f"programs of {self.needed_by}"

    def look(self, survey: Survey) -> Finding:
        missing = _missing(survey, self.server, _PROGRAMS, self.programs, sudo=self.as_root)
        if missing:
            return failed(f"there is no {', '.join(missing)}", "install it there, or correct the path in the configuration")
        return passed(", ".join(self.programs))


@dataclass(frozen=True)
class WayToSockets(Requirement):
    """socat, where there is no other way to QEMU's socket, which is root's; see ``Transport.connect_unix``."""

    @property
    def subject(self) -> str:
        return "way to QEMU's socket"

    def look(self, survey: Survey) -> Finding:
        transport = survey.server(self.server).transport
        if transport.is_local and transport.is_root:
            return passed("is opened by root here")
        if _missing(survey, self.server, _PROGRAMS, ("socat",), sudo=False):
            return failed("there is no socat, through which it is reached", "install it there")
        return passed("socat")


@dataclass(frozen=True)
class Files(Requirement):
    """Files or folders that root can read there, each with the key that names it."""

    files: tuple[tuple[str, str], ...]
    needed_by: str

    @property
    def subject(self) -> str:
        return f"files of {self.needed_by}"

    def look(self, survey: Survey) -> Finding:
        missing = _missing(survey, self.server, _THERE, [path for _, path in self.files])
        if missing:
            named = ", ".join(f"{key} {path}" for key, path in self.files if path in missing)
            return failed(f"there is no {named}", "put it there, or name another in the configuration")
        return passed(", ".join(path for _, path in self.files))


def _missing(survey: Survey, server: str, script: str, named: Sequence[str], sudo: bool = True) -> list[str]:
    """Those of which the script does not say that they are there."""
    answers = survey.server(server).run(["sh", "-c", script, "sh", *named], sudo=sudo).stdout.split()
    return [name for number, name in enumerate(named) if answers[number : number + 1] != ["there"]]


@dataclass(frozen=True)
class Modules(Requirement):
    """Modules of the kernel, each loaded, built in, or such that they can be loaded."""

    modules: tuple[str, ...]

    @property
    def subject(self) -> str:
        return "kernel modules"

    def look(self, survey: Survey) -> Finding:
        states = module_states(survey, self.server, self.modules)
        missing = [module for module, state in states.items() if state == "missing"]
        if missing:
            return failed(f"there is no {', '.join(missing)}", "install the kernel's modules, or boot a kernel that has them")
        return passed(", ".join(f"{module} {state}" for module, state in states.items()))


def module_states(survey: Survey, server: str, modules: Sequence[str]) -> dict[str, str]:
    """Of each module ``loaded``, ``built-in``, ``loadable`` or ``missing``."""

    def ask() -> list[str]:
        return survey.server(server).run(["sh", "-c", _MODULES, "sh", *modules], sudo=True).stdout.split()

    return dict(zip(modules, survey.once(("modules", server, tuple(modules)), ask), strict=True))


@dataclass(frozen=True)
class DeviceFile(Requirement):
    """A device file that root can open, which is how the kernel loads its module where that is not loaded yet."""

    path: str
    needed_by: str

    @property
    def subject(self) -> str:
        return self.path

    def look(self, survey: Survey) -> Finding:
        opened = survey.server(self.server).run(["sh", "-c", _OPEN, "sh", self.path], sudo=True, check=False)
        if opened.code == 0:
            return passed("can be opened")
        why = opened.stderr.strip().rpartition(": ")[2] or f"exit code {opened.code}"
        detail = f"{self.needed_by} needs it, but it cannot be opened: {why}"
        module = _MADE_BY.get(self.path)
        if module is None:
            return failed(detail, "load the kernel module that makes it")
        state = module_states(survey, self.server, (module,))[module]
        if state == "loadable" and module in _LOADED_FOR_A_TEST:
            return passed(f"comes with module {module}, which is loaded for the test")
        if state == "missing":
            return failed(detail, f"boot a kernel that has the module {module}")
        return failed(
            detail, f"modprobe {module}" if state == "loadable" else f"{module} is {state}: look who took the file away"
        )


@dataclass(frozen=True)
class HugepageMemory(Requirement):
    """So many MiB of huge pages, of the kernel's default size: free, or memory that they can be made of when they are needed.

    Attributes:
        mebibytes: that are needed, or of several guests by each.
        needed_by: for the user.
        of_each_node: whether so many are needed of each NUMA node.
        guests: how many need them.
    """

    mebibytes: int
    needed_by: str
    of_each_node: bool = False
    guests: int = 1

    @property
    def subject(self) -> str:
        return "huge pages"

    def look(self, survey: Survey) -> Finding:
        server = survey.server(self.server)
        state = survey.once(("huge pages", self.server), server.hugepages.state)
        size, counts = state.default_size, state.counts[state.default_size]
        each = math.ceil(self.mebibytes * (max(1, len(state.of_nodes)) if self.of_each_node else 1) * 1024 / size)
        missing = each * self.guests - counts.free
        there = f"{counts.free} of {counts.total} pages of {size // 1024} MiB are free"
        if missing <= 0:
            return passed(there)
        memory = available_memory(survey, self.server)
        if memory is not None and memory >= missing * size:
            return passed(f"{there}, {missing} more are reserved when {self.needed_by} needs them")
        enough = _at_most((counts.free + (memory or 0) // size) // each) if self.guests > 1 else ""
        detail = f"{self.needed_by} needs {each * self.guests * size // 1024} MiB: {there}"
        parameter = f"hugepages={counts.total + missing} on the kernel's command line"
        return failed(
            f"{detail}, and there is no memory for {missing} more{enough}",
            f"free memory, or reserve them when the machine boots: {parameter}{_FEWER if enough else ''}",
        )


@dataclass(frozen=True)
class GuestMemory(Requirement):
    """Memory for so many guests, each of which may use all of its own: else the kernel ends one of them in the middle of a trial.

    ``mebibytes`` are each guest's.
    """

    guests: int
    mebibytes: int

    @property
    def subject(self) -> str:
        return "memory of the guests"

    def look(self, survey: Survey) -> Finding:
        memory = available_memory(survey, self.server)
        if memory is None:
            return failed("/proc/meminfo does not tell how much is available", "look at it there: MemAvailable")
        needed, there = self.guests * self.mebibytes, memory // 1024
        what = f"{self.guests} guests with {self.mebibytes} MiB each need {needed} MiB"
        if needed <= there:
            return passed(f"{what}, {there} MiB are available")
        detail = f"{what}, but {there} MiB are available{_at_most(there // self.mebibytes)}"
        remedy = f"free memory, less memory in [guest]{_FEWER}"
        if survey.servers.host.guest_is_running():
            return warned(f"{detail}; perhaps a guest that is running has it", f"autotest kill-guest, or {remedy}")
        return failed(detail, remedy)


def available_memory(survey: Survey, server: str) -> int | None:
    """How many KiB can be had there without swapping, as the kernel estimates it; None where it does not tell."""
    text = survey.once(("memory", server), lambda: survey.server(server).run(["cat", "/proc/meminfo"]).stdout)
    found = _AVAILABLE.search(text)
    return int(found[1]) if found else None


def _at_most(guests: int) -> str:
    return f": enough for {guests} guest{'s' * (guests != 1)}"


@dataclass(frozen=True)
class QueuesOfGuest(Requirement):
    """A guest with as many CPUs as it has pairs of queues: else it would be measured under the name of more than it uses."""

    queues: int
    vcpus: int

    @property
    def subject(self) -> str:
        return "queues of the guest"

    def look(self, survey: Survey) -> Finding:
        if self.queues <= self.vcpus:
            return passed(f"{self.queues} pairs, {self.vcpus} vCPUs")
        detail = f"{self.queues} pairs, but the guest has {self.vcpus} vCPUs: Linux uses no more pairs than it has CPUs"
        return failed(detail, f"vcpus = {self.queues} in [guest], or fewer queues")
