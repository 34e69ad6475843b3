"""NICs and huge pages that exist only in a test."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from autotest.errors import TestbedError
from autotest.network.pci import PciDevices
from autotest.network.pci_device import NETWORK_CLASS, PciDevice
from autotest.remote.transport import Note
from autotest.servers.server import Server

OTHER, NIC = "0000:18:00.0", "0000:18:00.1"
OTHER_MAC, NIC_MAC = "64:9d:99:b1:0b:61", "64:9d:99:b1:0b:62"


class FakePci(PciDevices):
    """Devices that are bound by being told so. A NIC has its interface only with its first driver, the kernel's.

    Attributes:
        found: the devices, by address.
        refused: what is wrong with binding; empty where nothing is.
        asked: the options of the last binding.
    """

    def __init__(self, note: Note, *devices: PciDevice) -> None:
        self._name = "loadgen"
        self._note = note
        self._kernels = {device.address: device for device in devices}
        self.found = dict(self._kernels)
        self._sysfs: Any = SimpleNamespace(look=lambda: SimpleNamespace(devices=self.found))
        self.asked: dict[str, object] = {}
        self.refused = ""

    def bind(self, address: str, driver: str, **options: object) -> PciDevice:  # type: ignore[override]
        self.asked = options
        device = self.require(address)
        if self.refused:
            raise TestbedError(self.refused)
        if device.driver != driver:
            self._note("driver", name=address, driver=driver, before=device.driver or "", override="", interfaces="[]")
            self.give(address, driver)
        return self.found[address]

    def restore(self, address: str, driver: str, before: str, override: str, interfaces: str) -> bool:
        self.give(address, before)
        return True

    def give(self, address: str, driver: str) -> None:
        """Bind it, as if it had always been so."""
        kernels = self._kernels[address]
        self.found[address] = kernels if driver == kernels.driver else replace(kernels, driver=driver, interfaces={})

    def interface_of(self, address: str, timeout: float = 0) -> str:
        return next(iter(self.found[address].interfaces))


def device(address: str, name: str, mac: str, driver: str = "ixgbe") -> PciDevice:
    """A NIC with its interface."""
    return PciDevice(address, 0x8086, 0x10FB, NETWORK_CLASS << 16, driver, interfaces={name: mac} if name else {})


def hugepages(root: Path, nodes: int = 2, free: int = 0, size: int = 2048) -> None:
    """Files as the kernel shows its huge pages: sizes in KiB, so many pages free on each node."""
    for folder in (root / "sys/kernel/mm", *(root / f"sys/devices/system/node/node{node}" for node in range(nodes))):
        for each in {size, 2048}:
            pages = folder / f"hugepages/hugepages-{each}kB"
            pages.mkdir(parents=True)
            for name in ("nr", "free"):
                (pages / f"{name}_hugepages").write_text(f"{free if each == size else 0}\n")
    (root / "proc").mkdir(exist_ok=True)
    (root / "proc/meminfo").write_text("Hugepagesize:       2048 kB\n")
    pagesize = f",pagesize={size // 1024}M"
    (root / "proc/mounts").write_text(
        f"hugetlbfs /dev/hugepages hugetlbfs rw,relatime,pagesize=2M 0 0\nhugetlbfs /mnt hugetlbfs rw{pagesize} 0 0\n"
    )


def reserved(root: Path, size: int = 2048) -> list[int]:
    """How many pages there are on each node."""
    nodes = sorted((root / "sys/devices/system/node").iterdir())
    return [int((node / f"hugepages/hugepages-{size}kB/nr_hugepages").read_text()) for node in nodes]


def noted(server: Server) -> list[str]:
    """The kinds of changes that stand."""
    return [change.kind for change in server.journal.standing]


def given(path: str) -> dict[str, str]:
    """What the first line of a file for MoonGen gives it."""
    line = Path(path).read_text().splitlines()[0]
    fields = line.removeprefix("local given = { ").removesuffix(" }").split(", ")
    return {name: json.loads(value) for name, value in (field.split(" = ", 1) for field in fields)}
