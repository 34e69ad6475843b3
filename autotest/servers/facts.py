"""What a machine is: its CPU, its kernel, and the settings on which a measurement depends.

Reading is one command there, understanding a pure function. What a machine does not tell is None, never an error.
Where the kernel shows these things: https://docs.kernel.org/admin-guide/abi.html
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from autotest.servers.server import Server

_CPUFREQ, _CPU = "/sys/devices/system/cpu/cpufreq", "/sys/devices/system/cpu"

# What it prints: for each thing a line with its name behind the mark, then what is known of it. The shell itself reads what are
# files: a guest without KVM takes 50 ms to start a program.
_MARK = "==> "
SHOW = f"""
show() {{ printf '{_MARK}%s\\n' "$1"; shift; "$@" 2>/dev/null; echo; }}
lines() {{ for file; do while read -r line || [ "$line" ]; do printf '%s\\n' "$line"; done <"$file"; done; }}
"""
_SCRIPT = f"""{SHOW}
block() {{ while read -r line && [ "$line" ]; do printf '%s\\n' "$line"; done <"$1"; }}
first() {{ read -r line <"$1"; printf '%s\\n' "$line"; }}
show hostname lines /proc/sys/kernel/hostname
show machine-id lines /etc/machine-id
show kernel lines /proc/sys/kernel/osrelease
show kernel-version lines /proc/sys/kernel/version
show architecture uname -m
show arguments lines /proc/cmdline
show cpuinfo block /proc/cpuinfo
show meminfo first /proc/meminfo
show cpus lines {_CPU}/online
show smt lines {_CPU}/smt/active
show governors sort -u {_CPUFREQ}/policy*/scaling_governor
show no_turbo lines {_CPU}/intel_pstate/no_turbo
show boost lines {_CPUFREQ}/boost
show nodes lines /sys/devices/system/node/online
show thp lines /sys/kernel/mm/transparent_hugepage/enabled
for folder in /sys/kernel/mm/hugepages/hugepages-*; do
    show "hugepages ${{folder##*-}}" lines "$folder/nr_hugepages" "$folder/free_hugepages"
done
for entry in {_CPU}/vulnerabilities/*; do show "mitigation ${{entry##*/}}" lines "$entry"; done
device=/sys/class/net/$1/device
if [ -n "$2" ]; then device=/sys/bus/pci/devices/$2; fi
if [ -e "$device" ]; then
    show nic-path readlink -f "$device"
    show nic-driver readlink "$device/driver"
    for name in vendor device numa_node; do show "nic-$name" lines "$device/$name"; done
fi
show nic-speed lines "/sys/class/net/$1/speed"
"""
_THP_CHOSEN = re.compile(r"\[(\w+)\]")
_PCI_ADDRESS = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_CPUINFO_LINE = re.compile(r"([^:\t]+?)\s*:\s*(.*)")
_ARM_CPU = ("CPU implementer", "CPU variant", "CPU part", "CPU revision")  # ARM has no names, only these numbers
#: Of a kernel's arguments those that keep other work and power saving away from CPUs and change how memory is reached.
_TELLING_ARGUMENTS = (
    "isolcpus", "nohz_full", "rcu_nocbs", "idle", "intel_idle.max_cstate", "processor.max_cstate", "iommu", "intel_iommu",
    "amd_iommu",
)  # fmt: skip


@dataclass(frozen=True)
class Nic:
    """The test interface: PCI address, ``vendor:device`` of its model, driver, NUMA node, speed in Mbit/s."""

    interface: str | None = None
    pci_address: str | None = None
    model: str | None = None
    driver: str | None = None
    numa_node: int | None = None
    speed: int | None = None


@dataclass(frozen=True)
class MachineFacts:
    """What one machine is.

    Attributes:
        machine: tells machines apart: a checksum of the machine id, which itself is not to be published.
        cpus, numa_nodes: those that are online, like ``0-63``.
        governor: of all CPUs; several are separated by commas.
        turbo: whether the CPUs may clock higher than their base frequency.
        memory_kib: in KiB.
        hugepages: by size, like ``2048kB``, how many there are in total and free.
        mitigations: by vulnerability, in the kernel's words.
    """

    hostname: str | None = None
    machine: str | None = None
    architecture: str | None = None
    kernel: str | None = None
    kernel_version: str | None = None
    kernel_arguments: str | None = None
    cpu: str | None = None
    cpus: str | None = None
    microcode: str | None = None
    smt: bool | None = None
    governor: str | None = None
    turbo: bool | None = None
    numa_nodes: str | None = None
    memory_kib: int | None = None
    hugepages: Mapping[str, Mapping[str, int | None]] = field(default_factory=dict)
    transparent_hugepages: str | None = None
    mitigations: Mapping[str, str] = field(default_factory=dict)
    nic: Nic = Nic()

    def record(self) -> dict[str, Any]:
        """As ``machines`` of ``trial_*.json`` has them."""
        found = dataclasses.asdict(self)
        return _spaced(found | {"nic": _spaced(found["nic"])})

    @property
    def telling_arguments(self) -> list[str]:
        """The kernel's arguments that change what is measured; the others say what to boot, or name a console."""
        words = (self.kernel_arguments or "").split()
        return [word for word in words if word.partition("=")[0] in _TELLING_ARGUMENTS]


def read_facts(server: Server) -> MachineFacts:
    """Ask a machine: one command of about 50 ms there, so never while a trial runs."""
    config = server.config
    command = ["sh", "-s", "--", config.test_iface or "", config.test_iface_addr or ""]
    asked = server.run(command, input=_SCRIPT, check=False)
    return understand_facts(asked.stdout, config.test_iface)


def understand_facts(text: str, interface: str | None = None) -> MachineFacts:
    """The facts from what the script printed on a machine whose test interface has that name."""
    shown = sections(text)
    cpuinfo, meminfo = _pairs(shown.get("cpuinfo", "")), _pairs(shown.get("meminfo", ""))
    chosen = _THP_CHOSEN.search(shown.get("thp", ""))
    return MachineFacts(
        hostname=shown.get("hostname"),
        machine=_digest(shown.get("machine-id")),
        architecture=shown.get("architecture"),
        kernel=shown.get("kernel"),
        kernel_version=shown.get("kernel-version"),
        kernel_arguments=shown.get("arguments", "").partition(" -- ")[0] or None,  # behind it are those of init
        cpu=cpuinfo.get("model name") or " ".join(cpuinfo[key] for key in _ARM_CPU if key in cpuinfo) or None,
        cpus=shown.get("cpus"),
        microcode=cpuinfo.get("microcode"),
        smt=_switch(shown.get("smt")),
        governor=",".join(shown.get("governors", "").split()) or None,
        turbo=_turbo(_switch(shown.get("no_turbo")), _switch(shown.get("boost"))),
        numa_nodes=shown.get("nodes"),
        memory_kib=_number(meminfo.get("MemTotal")),
        hugepages={size: _pages(counts) for size, counts in _of_each(shown, "hugepages ")},
        transparent_hugepages=chosen[1] if chosen else None,
        mitigations=dict(_of_each(shown, "mitigation ")),
        nic=_nic(shown, interface),
    )


def _nic(shown: Mapping[str, str], interface: str | None) -> Nic:
    addresses = _PCI_ADDRESS.findall(shown.get("nic-path", ""))
    model = [shown[key].removeprefix("0x") for key in ("nic-vendor", "nic-device") if key in shown]
    node = _number(shown.get("nic-numa_node"))
    speed = _number(shown.get("nic-speed"))
    return Nic(
        interface=interface,
        pci_address=addresses[-1] if addresses else None,
        model=":".join(model) if len(model) == 2 else None,
        driver=shown["nic-driver"].rpartition("/")[2] if "nic-driver" in shown else None,
        numa_node=None if node is None or node < 0 else node,  # -1: the firmware does not say
        speed=None if speed is None or speed < 0 else speed,  # -1: no link
    )


def sections(text: str) -> dict[str, str]:
    """What a script that begins with :data:`SHOW` showed, by name, without what is empty."""
    found: dict[str, list[str]] = {}
    name = None
    for line in text.split("\n"):
        if line.startswith(_MARK):
            name = line.removeprefix(_MARK)
            found[name] = []
        elif name is not None:
            found[name].append(line)
    joined = {name: "\n".join(lines).strip() for name, lines in found.items()}
    return {name: value for name, value in joined.items() if value}


def _of_each(shown: Mapping[str, str], prefix: str) -> Iterator[tuple[str, str]]:
    """The things of one sort: the rest of their names, and what is known of them."""
    return ((name.removeprefix(prefix), value) for name, value in shown.items() if name.startswith(prefix))


def _pages(counts: str) -> dict[str, int | None]:
    total, _, free = counts.partition("\n")
    return {"total": _number(total), "free": _number(free)}


def _pairs(text: str) -> dict[str, str]:
    """``key : value`` lines; of a key that is there twice the first."""
    found: dict[str, str] = {}
    for line in text.split("\n"):
        if match := _CPUINFO_LINE.fullmatch(line.strip()):
            found.setdefault(match[1], match[2])
    return found


def _turbo(no_turbo: bool | None, boost: bool | None) -> bool | None:
    return boost if no_turbo is None else not no_turbo


def _switch(text: str | None) -> bool | None:
    return {"0": False, "1": True}.get(text or "")


def _number(text: str | None) -> int | None:
    """The number at the beginning, which a unit may follow."""
    found = re.match(r"-?[0-9]{1,18}\b", text or "")
    return int(found[0]) if found else None


def _digest(text: str | None) -> str | None:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:12] if text else None


def _spaced(values: Mapping[str, Any]) -> dict[str, Any]:
    """With the names of the JSON: words, separated by spaces."""
    return {key.replace("_", " "): value for key, value in values.items()}
