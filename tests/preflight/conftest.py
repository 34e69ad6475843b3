"""A testbed in two namespaces, and the kernel that stands for its host's PCI bus."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fake_kernel import FakeKernel
from preflight_bed import Bed, make_bed


@pytest.fixture
def bed(make_netns: Callable[[], str], tmp_path: Path, tmux_socket: str) -> Iterator[Bed]:
    made = make_bed(make_netns(), make_netns(), tmp_path, tmux_socket)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def kernel(bed: Bed) -> FakeKernel:
    """One with a NIC in an IOMMU group of its own, an admin NIC and a disk controller; vfio-pci can be loaded."""
    kernel = FakeKernel(bed.root).create()
    kernel.module("e1000e", takes="8086:10d3", net=True)
    kernel.module("nvme")
    kernel.module("vfio-pci", loaded=False)
    kernel.device("0000:00:02.0", group=1, driver="e1000e")
    kernel.device("0000:01:00.0", group=17, driver="e1000e")
    kernel.device("0000:04:00.0", group=19, driver="nvme", code="0x010802")
    return kernel
