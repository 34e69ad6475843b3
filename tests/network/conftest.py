"""A machine whose kernel is a folder, for what is done to PCI devices."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_kernel import FakeKernel, FakeMachine

from autotest.network.pci import PciDevices


@pytest.fixture
def kernel(tmp_path: Path) -> FakeKernel:
    """Two spare NICs, each in a group of its own, and the admin NIC; vfio-pci and its like are not loaded."""
    kernel = FakeKernel(tmp_path / "machine").create()
    kernel.module("e1000e", takes="8086:10d3", net=True)
    kernel.module("virtio-pci", takes="1af4:1041", net=True)
    kernel.module("pcieport")
    kernel.module("vfio-pci", loaded=False)
    kernel.module("igb_uio", loaded=False)
    kernel.module("uio_pci_generic", loaded=False)
    kernel.device("0000:00:02.0", "1af4:1041", group=1, driver="virtio-pci")
    kernel.device("0000:01:00.0", group=17, driver="e1000e")
    kernel.device("0000:02:00.0", group=18, driver="e1000e")
    return kernel


@pytest.fixture
def machine(kernel: FakeKernel) -> FakeMachine:
    return FakeMachine(kernel)


@pytest.fixture
def notes() -> list[tuple[str, dict[str, str]]]:
    """What was written into the journal: kinds of change with their details."""
    return []


@pytest.fixture
def pci(machine: FakeMachine, kernel: FakeKernel, notes: list[tuple[str, dict[str, str]]]) -> PciDevices:
    return PciDevices(machine, lambda kind, **details: notes.append((kind, details)), root=str(kernel.root))
