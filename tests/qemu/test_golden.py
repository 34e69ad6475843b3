"""Golden command lines, each of which QEMU itself realises as far as it, and this machine, have what it takes.

What is lacking is told from QEMU's own description of itself, or from the machine. Then QEMU must refuse the line for that
very reason, and realise the rest of it.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import golden
import pytest
from golden import Line, Option
from realised import Bench, Realised, read_options

from autotest.interfaces import INTERFACE_KINDS, InterfaceKind
from autotest.qemu.capabilities import Capabilities, inquire
from autotest.remote.local import LocalTransport

QEMU = "qemu-system-x86_64"
HERE = LocalTransport("host")
LINES = golden.all_lines()
PCI = Path("/sys/bus/pci/devices")

Options = tuple[Option, ...]


def test_command_lines_are_the_golden_ones() -> None:
    kept = {path.name: path.read_text() for path in golden.FOLDER.glob("*.txt")}
    assert kept == golden.texts(LINES), f"where the new ones are right: {golden.RENEW}"


# -- what QEMU makes of them -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Lack:
    """Something that QEMU or this machine has not: what QEMU says of it, and the command line without it."""

    reason: str
    rest: Options


def lack(options: Options, known: Capabilities, refusal_of_kvm: str | None) -> Lack | None:
    """What QEMU will miss first, in the order in which it makes things."""

    def instead(old: str, *new: str) -> Options:
        return tuple((name, text) for name, value in options for text in (new if value == old else (value,)))

    for wanted in ("-accel", "-object", "-netdev", "-device"):
        for value in (value for name, value in options if name == wanted):
            kind, given = read_options(value)
            if wanted == "-accel" and kind == "kvm" and refusal_of_kvm:
                return Lack(refusal_of_kvm, (*instead("kvm", "tcg"), ("-cpu", "max")))
            if given.get("hugetlb") == "on" and int(given["size"][:-1]) > free_huge_pages():
                return Lack("Cannot allocate memory", instead(value, value.replace("hugetlb=on,", "")))
            if given.get("vhost") == "on" and not Path("/dev/vhost-net").exists():
                return Lack("open vhost char device failed", instead(value, value.replace("vhost=on,vhostforce=on", "vhost=off")))
            if wanted == "-device" and (reason := lacking_of_device(kind, given, known)):
                rest = value.replace(",use-ioregionfd=on", "")
                return Lack(reason, instead(value, *([rest] if rest != value else [])))
    return None


def lacking_of_device(kind: str, given: dict[str, str], known: Capabilities) -> str | None:
    """What QEMU says of a device that it cannot make, None where it can."""
    if kind not in known.devices:
        return f"'{kind}' is not a valid device model name"
    if "use-ioregionfd" in given and "use-ioregionfd" not in (known.properties(kind) or ()):
        return f"Property '{kind}.use-ioregionfd' not found"
    if kind == "vfio-pci" and not (PCI / given["host"]).exists():
        return f"{given['host']}: no such host device"
    if kind == "vfio-user-pci":
        return given["socket"].rpartition("/")[2]  # which nobody serves
    return None


def free_huge_pages() -> int:
    """In MiB."""
    counts = dict(re.findall(r"^(\w+): *(\d+)", Path("/proc/meminfo").read_text(), re.MULTILINE))
    return int(counts["HugePages_Free"]) * int(counts["Hugepagesize"]) // 1024


@pytest.fixture(scope="module")
def known() -> Capabilities:
    devices = {read_options(value)[0] for line in LINES for name, value in line.options if name == "-device"}
    return inquire(HERE, QEMU, devices)


@pytest.fixture(scope="module")
def refusal_of_kvm() -> str | None:
    """What QEMU says first of a machine with KVM and nothing else; None where it makes one. KVM may be there and good for nothing."""
    machine = ["-machine", "pc", "-accel", "kvm", "-cpu", "host", "-nodefaults", "-display", "none", "-S", "-qmp", "stdio"]
    ended = subprocess.run(
        [QEMU, *machine], input='{"execute": "qmp_capabilities"}{"execute": "quit"}', capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip
    return ended.stderr.splitlines()[0] if ended.returncode else None


@pytest.fixture(scope="module")
def bench(shared_netns: str, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(shared_netns, tmp_path_factory.mktemp("golden"), golden.FILES)


@pytest.mark.parametrize("line", LINES, ids=str)
def test_qemu_realises_the_golden_line_or_refuses_it_for_what_it_lacks(
    line: Line, known: Capabilities, bench: Bench, refusal_of_kvm: str | None
) -> None:
    options = line.options
    while missing := lack(options, known, refusal_of_kvm):
        refusal = bench.realise(QEMU, options).refusal
        assert refusal and missing.reason in refusal
        options = missing.rest
    require_realised(bench.realise(QEMU, options), options)


def require_realised(made: Realised, options: Options) -> None:
    """Every object, device and queue that was asked for is there as it was asked for."""
    assert made.refusal is None
    assert made.status in ("prelaunch", "paused")
    assert list(made.parts) == list(expected_parts(options))
    backends = [read_options(value)[1] for name, value in options if name == "-netdev"]
    assert list(made.backends) == [each["id"] for each in backends for _ in range(int(each.get("queues") or queues_of(each)))]


def expected_parts(options: Options) -> Iterator[dict[str, Any]]:
    for option, value in options:
        if option in ("-object", "-device"):
            kind, given = read_options(value)
            realised = {"realized": True} if option == "-device" else {}
            yield realised | {"type": kind} | {name: as_qemu_has_it(text) for name, text in given.items() if name != "id"}


def as_qemu_has_it(text: str) -> str | int | bool:
    if text in ("on", "off"):
        return text == "on"
    if found := re.fullmatch(r"(\d+)(M?)", text):
        return int(found[1]) << (20 if found[2] else 0)
    return text


def queues_of(backend: dict[str, str]) -> int:
    """Queues of a macvtap: as many as files are given."""
    return len(backend["fds"].split(":")) if "fds" in backend else 1


def test_a_nic_without_an_iommu_group_is_refused_by_qemu_for_that(known: Capabilities, bench: Bench) -> None:
    alone = sorted(device.name for device in PCI.iterdir() if not (device / "iommu_group").exists())
    assert alone or any(Path("/sys/kernel/iommu_groups").iterdir())  # each PCI device here is in a group: nothing to refuse
    line = next(line for line in LINES if line.file == "vfio")
    for address in alone[:1]:
        options = tuple((name, value.replace(str(golden.HOST.test_iface_addr), address)) for name, value in line.options)
        refusal = bench.realise(QEMU, options).refusal
        assert refusal and f"{address}: no iommu_group found" in refusal


@pytest.mark.parametrize("kind", [kind for kind in INTERFACE_KINDS.values() if kind.ring_sizes], ids=lambda kind: kind.name)
@pytest.mark.parametrize("machine", ["pcvm", "microvm"])
def test_the_longest_ring_that_is_allowed_is_the_longest_that_qemu_makes(kind: InterfaceKind, machine: str, bench: Bench) -> None:
    """QEMU makes others shorter without a word."""
    ring = f"tx_queue_size={kind.longest_tx_ring}"
    line = next(line for line in LINES if line.file == kind.name and line.title == f"{machine} rx_queue_size=1024 {ring}")
    options = tuple((name, value.replace(ring, "tx_queue_size=1024")) for name, value in line.options)
    lengths = [part.get("tx_queue_size") for part in bench.realise(QEMU, options).parts]
    assert lengths[-1] == kind.longest_tx_ring
