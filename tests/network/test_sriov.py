"""Virtual functions: made on request, without drivers, and removed at the end unless somebody else's."""

from __future__ import annotations

from typing import Any

import pytest
from fake_kernel import FakeKernel, FakeMachine

from autotest.errors import TestbedError
from autotest.network.pci import PciDevices

PF, VFS = "0000:05:00.0", ["0000:05:00.1", "0000:05:00.2"]


@pytest.fixture(autouse=True)
def physical(kernel: FakeKernel) -> None:
    """A NIC that can have four; a driver of the kernel's would take them."""
    kernel.module("igbvf", takes="8086:10ed", net=True)
    kernel.device(PF, group=30, driver="e1000e", vfs=4)


def undo(pci: PciDevices, note: tuple[str, dict[str, str]]) -> bool:
    kind, details = note
    name = details["name"]
    if kind == "virtual-functions":
        return pci.remove_virtual_functions(name, int(details["count"]), details["autoprobe"])
    if kind == "function-mac":
        return pci.restore_function_mac(name, int(details["number"]), details["mac"], details["before"])
    return pci.restore(name, **{key: value for key, value in details.items() if key != "name"})


@pytest.mark.default
@pytest.mark.parametrize("autoprobe", ["0", "1"])
def test_they_are_made_without_drivers_bound_one_by_one_and_gone_at_the_end(
    pci: PciDevices, kernel: FakeKernel, notes: list[Any], autoprobe: str
) -> None:
    kernel.register("vfio-pci")
    (kernel.pci / "devices" / PF / "sriov_drivers_autoprobe").write_text(f"{autoprobe}\n")
    before = kernel.state()
    assert pci.set_virtual_functions(PF, 2) == VFS
    device = pci.require(PF)
    assert (device.sriov_numvfs, device.sriov_totalvfs, list(device.virtual_functions)) == (2, 4, VFS)
    assert device.sriov_drivers_autoprobe is (autoprobe == "1")
    assert [kernel.driver_of(function) for function in VFS] == ["", ""]
    assert pci.require(VFS[1]).physical_function == PF and pci.require(VFS[1]).is_virtual_function
    assert pci.bind(VFS[0], "vfio-pci").driver == "vfio-pci"
    assert pci.bind(VFS[1], "igbvf").driver == "igbvf"
    assert [undo(pci, note) for note in reversed(notes)] == [True, True, True]
    assert kernel.state() == before
    assert [undo(pci, note) for note in reversed(notes)] == [False, False, False]
    assert kernel.state() == before


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_beside_somebody_elses_none_are_made_and_theirs_are_not_used(
    pci: PciDevices, kernel: FakeKernel, notes: list[Any], count: int
) -> None:
    kernel.takes(str(kernel.pci / "devices" / PF / "sriov_numvfs"), "2")
    before = kernel.state()
    with pytest.raises(TestbedError, match=rf"2 virtual functions already, .* \(echo 0 > .*{PF}/sriov_numvfs\)"):
        pci.set_virtual_functions(PF, count)
    assert kernel.state() == before and notes == []


def test_more_than_it_can_have_and_none_at_all_are_told(pci: PciDevices, kernel: FakeKernel, notes: list[Any]) -> None:
    with pytest.raises(TestbedError, match="0000:05:00.0 can have 1 to 4 virtual functions, not 5"):
        pci.set_virtual_functions(PF, 5)
    with pytest.raises(TestbedError, match="0000:01:00.0 can have no virtual functions: switch SR-IOV on"):
        pci.set_virtual_functions("0000:01:00.0", 1)
    with pytest.raises(TestbedError, match="there is no PCI device 0000:07:00.0"):
        pci.set_virtual_functions("0000:07:00.0", 1)
    kernel.takes(str(kernel.pci / f"devices/{PF}/driver/unbind"), PF)
    with pytest.raises(TestbedError, match="has no driver, which it needs"):
        pci.set_virtual_functions(PF, 1)
    assert notes == []


def test_functions_in_use_are_not_removed_and_their_user_is_named(pci: PciDevices, kernel: FakeKernel, notes: list[Any]) -> None:
    pci.set_virtual_functions(PF, 2)
    pci.bind(VFS[1], "vfio-pci")
    kernel.process(4711, "qemu-system-x86_64", "/dev/vfio/vfio", "/dev/vfio/101")
    kernel.set(blocks=VFS)
    with pytest.raises(TestbedError, match="in use: process 4711, qemu-system-x86_64, has /dev/vfio/101 open"):
        undo(pci, notes[0])
    assert pci.require(PF).sriov_numvfs == 2


def test_removing_that_the_kernel_does_not_end_is_left_after_its_time(
    pci: PciDevices, kernel: FakeKernel, machine: FakeMachine, notes: list[Any]
) -> None:
    pci.set_virtual_functions(PF, 2)
    machine.shorter["_LONG"] = 0.3
    kernel.set(blocks=VFS)
    with pytest.raises(TestbedError, match="/sriov_numvfs: writing '0' did not end within 0.3 s"):
        undo(pci, notes[0])


def test_those_that_the_user_has_made_anew_since_stay(pci: PciDevices, kernel: FakeKernel, notes: list[Any]) -> None:
    pci.set_virtual_functions(PF, 2)
    for count in ("0", "3"):
        kernel.takes(str(kernel.pci / "devices" / PF / "sriov_numvfs"), count)
    assert not undo(pci, notes[0])
    assert pci.require(PF).sriov_numvfs == 3


def test_making_that_was_cut_short_leaves_drivers_to_take_functions_as_before(
    pci: PciDevices, kernel: FakeKernel, notes: list[Any]
) -> None:
    before = kernel.state()
    pci.set_virtual_functions(PF, 2)
    kernel.takes(str(kernel.pci / "devices" / PF / "sriov_numvfs"), "0")
    (kernel.pci / "devices" / PF / "sriov_drivers_autoprobe").write_text("0\n")
    assert undo(pci, notes[0]) and kernel.state() == before


def test_a_function_gets_its_mac_address_and_has_the_one_before_again(
    pci: PciDevices, kernel: FakeKernel, machine: FakeMachine, notes: list[Any]
) -> None:
    pci.set_virtual_functions(PF, 2)
    kernel.set(macs={"0": "00:00:00:00:00:00", "1": "00:00:00:00:00:00"})
    pci.set_function_mac(PF, 1, "52:54:00:FA:00:60")
    assert ["ip", "link", "set", "dev", "eth3", "vf", "1", "mac", "52:54:00:FA:00:60"] in machine.commands
    kernel.set(macs={"0": "00:00:00:00:00:00", "1": "52:54:00:fa:00:60"})
    pci.set_function_mac(PF, 1, "52:54:00:fa:00:60")
    assert [kind for kind, _ in notes] == ["virtual-functions", "function-mac"]
    assert undo(pci, notes[1])
    assert kernel.known["macs"] == {"0": "00:00:00:00:00:00", "1": "00:00:00:00:00:00"}
    assert not undo(pci, notes[1])
    assert undo(pci, notes[0]) and not undo(pci, notes[1])


def test_a_function_that_is_not_there_gets_no_mac_address(pci: PciDevices, kernel: FakeKernel, notes: list[Any]) -> None:
    with pytest.raises(TestbedError, match="0000:05:00.0 has no virtual function 0, it has 0"):
        pci.set_function_mac(PF, 0, "52:54:00:fa:00:60")
    pci.set_virtual_functions(PF, 1)
    with pytest.raises(TestbedError, match="ip does not tell of virtual function 0 of eth3"):
        pci.set_function_mac(PF, 0, "52:54:00:fa:00:60")
    (kernel.net / "eth3").unlink()
    with pytest.raises(TestbedError, match="has no network interface through which"):
        pci.set_function_mac(PF, 0, "52:54:00:fa:00:60")
    assert [kind for kind, _ in notes] == ["virtual-functions"]
