"""Drivers of PCI devices: bound, given back, and never taken from who needs them. The kernel is one in a folder."""

from __future__ import annotations

import errno
import json
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from fake_kernel import EMPTY, FakeKernel, FakeMachine

from autotest.errors import TestbedError
from autotest.network.pci import PciDevices
from autotest.remote.local import LocalTransport
from autotest.remote.transport import Result

NIC, OTHER, ADMIN = "0000:01:00.0", "0000:02:00.0", "0000:00:02.0"
NIC_MAC = "52:54:00:00:01:00"


def restore(pci: PciDevices, notes: list[tuple[str, dict[str, str]]]) -> bool:
    """Undo the last change of a driver."""
    (details,) = [details for kind, details in notes if kind == "driver"][-1:]
    arguments = {("address" if key == "name" else key): value for key, value in details.items()}
    return pci.restore(**arguments)


# -- binding and giving back -------------------------------------------------------------------------------


@pytest.mark.parametrize("driver", ["vfio-pci", "igb_uio", "uio_pci_generic"])
def test_a_nic_is_bound_and_given_back_with_all_that_was(
    pci: PciDevices, kernel: FakeKernel, notes: list[tuple[str, dict[str, str]]], driver: str
) -> None:
    kernel.register(driver)
    before = kernel.state()
    device = pci.bind(NIC, driver)
    assert device.driver == kernel.driver_of(NIC) == driver and device.interfaces == {}
    assert device.driver_override == driver
    assert kernel.driver_of(OTHER) == "e1000e"
    assert restore(pci, notes)
    assert kernel.state() == before
    assert not restore(pci, notes)
    assert kernel.state() == before


def test_binding_takes_three_commands_and_two_where_the_driver_is_loaded(pci: PciDevices, machine: FakeMachine) -> None:
    pci.bind(NIC, "vfio-pci")
    assert len(machine.commands) == 3
    machine.commands.clear()
    pci.bind(OTHER, "vfio-pci")
    assert len(machine.commands) == 2


def test_it_is_noted_before_anything_is_changed(pci: PciDevices, machine: FakeMachine, kernel: FakeKernel) -> None:
    before = kernel.state()

    def refuse(kind: str, /, *, machine: str = "", **details: str) -> None:
        raise TestbedError(f"{kind}: the journal is full")

    pci._note = refuse
    with pytest.raises(TestbedError, match="^autoprobe: the journal is full"):
        pci.bind(NIC, "vfio-pci")
    assert kernel.state() == before
    kernel.register("vfio-pci")
    before = kernel.state()
    with pytest.raises(TestbedError, match="^driver: the journal is full"):
        pci.bind(NIC, "vfio-pci")
    assert kernel.state() == before


def test_what_is_bound_already_is_neither_changed_nor_noted(
    pci: PciDevices, machine: FakeMachine, kernel: FakeKernel, notes: list[Any]
) -> None:
    kernel.set(network={**EMPTY, "routes": '[{"dst": "default", "dev": "eth1"}]'})
    before = kernel.state()
    assert pci.bind(NIC, "e1000e").driver == "e1000e"
    assert kernel.state() == before and notes == [] and len(machine.commands) == 1


def test_a_device_without_a_driver_has_none_again_and_keeps_its_override(
    pci: PciDevices, kernel: FakeKernel, notes: list[Any]
) -> None:
    kernel.device("0000:03:00.0", group=19)
    (kernel.pci / "devices/0000:03:00.0/driver_override").write_text("nobody\n")
    pci.bind("0000:03:00.0", "vfio-pci")
    assert kernel.driver_of("0000:03:00.0") == "vfio-pci"
    assert restore(pci, notes)
    assert kernel.driver_of("0000:03:00.0") == "" and kernel.text("0000:03:00.0", "driver_override") == "nobody"
    assert not restore(pci, notes)


def test_a_nic_that_the_user_keeps_on_vfio_gets_a_kernel_driver_and_is_on_vfio_again(
    pci: PciDevices, kernel: FakeKernel, notes: list[Any]
) -> None:
    kernel.register("vfio-pci")
    kernel.device("0000:03:00.0", group=19, driver="vfio-pci")
    (kernel.pci / "devices/0000:03:00.0/driver_override").write_text("vfio-pci\n")
    before = kernel.state()
    assert pci.bind("0000:03:00.0", "e1000e").interfaces == {"eth3": "52:54:00:00:03:00"}
    assert pci.interface_of("0000:03:00.0") == "eth3"
    assert restore(pci, notes) and kernel.state() == before


def test_a_driver_for_any_device_is_given_back_also_where_its_override_was_taken_away_since(
    pci: PciDevices, kernel: FakeKernel, notes: list[Any]
) -> None:
    kernel.register("vfio-pci")
    kernel.device("0000:03:00.0", group=19, driver="vfio-pci")
    before = kernel.state()
    pci.bind("0000:03:00.0", "e1000e")
    assert restore(pci, notes) and kernel.state() == before


def test_two_bindings_one_after_the_other_are_given_back_one_after_the_other(
    pci: PciDevices, kernel: FakeKernel, notes: list[Any]
) -> None:
    pci.bind(NIC, "vfio-pci")
    pci.bind(NIC, "igb_uio")
    assert restore(pci, notes) and kernel.driver_of(NIC) == "vfio-pci"
    notes.pop()
    assert restore(pci, [note for note in notes if note[1].get("driver") == "vfio-pci"])
    assert kernel.driver_of(NIC) == "e1000e" and kernel.text(NIC, "driver_override") == "(null)"


def test_an_interface_is_up_in_its_bridge_with_its_mtu_and_address_again(
    pci: PciDevices, machine: FakeMachine, kernel: FakeKernel, notes: list[Any]
) -> None:
    kernel.register("vfio-pci")
    kernel.upper("br0", "eth1", bridge=True)
    for words in (["mtu", "9000"], ["address", "52:54:00:aa:aa:aa"], ["up"]):
        kernel.ip_link_set(["dev", "eth1", *words])
    (kernel.net / "eth1/addr_assign_type").write_text("3\n")
    before = kernel.state()
    pci.bind(NIC, "vfio-pci")
    assert restore(pci, notes)
    (kernel.net / "eth1/addr_assign_type").write_text("3\n")
    assert kernel.state() == before
    machine.commands.clear()
    assert not restore(pci, notes)
    assert not [command for command in machine.commands if command[:3] == ["ip", "link", "set"]]


def test_what_was_cut_short_between_driver_and_interface_is_done_to_the_end(
    pci: PciDevices, kernel: FakeKernel, notes: list[Any]
) -> None:
    kernel.register("vfio-pci")
    kernel.ip_link_set(["dev", "eth1", "up"])
    before = kernel.state()
    pci.bind(NIC, "vfio-pci")
    kernel.takes(str(kernel.pci / f"devices/{NIC}/driver/unbind"), NIC)
    kernel.takes(str(kernel.pci / f"devices/{NIC}/driver_override"), "\n")
    kernel.probe(NIC)
    assert restore(pci, notes)
    assert kernel.state() == before


def test_two_nics_have_their_names_again_though_the_kernel_gives_the_lowest_one_that_is_free(
    pci: PciDevices, kernel: FakeKernel, notes: list[Any]
) -> None:
    kernel.register("vfio-pci")
    before = kernel.state()
    pci.bind(NIC, "vfio-pci")
    pci.bind(OTHER, "vfio-pci")
    assert restore(pci, notes)
    assert pci.require(OTHER).interfaces == {"eth2": "52:54:00:00:02:00"}
    notes.pop()
    assert restore(pci, notes)
    assert kernel.state() == before


def test_a_name_that_another_interface_has_by_now_is_told(pci: PciDevices, kernel: FakeKernel, notes: list[Any]) -> None:
    pci.bind(NIC, "vfio-pci")
    kernel.upper("eth1")
    with pytest.raises(
        TestbedError, match="the interface of 0000:01:00.0 was eth1 and is eth3 now, because another has its name"
    ):
        restore(pci, notes)
    assert kernel.driver_of(NIC) == "e1000e"


def test_a_device_that_somebody_has_bound_to_a_third_driver_since_is_left_alone(
    pci: PciDevices, kernel: FakeKernel, notes: list[Any]
) -> None:
    pci.bind(NIC, "vfio-pci")
    kernel.takes(str(kernel.pci / f"devices/{NIC}/driver/unbind"), NIC)
    kernel.attach(NIC, "pcieport")
    before = kernel.state()
    assert not restore(pci, notes)
    assert kernel.state() == before


def test_a_device_that_is_gone_is_no_problem(pci: PciDevices, kernel: FakeKernel, notes: list[Any]) -> None:
    pci.bind(NIC, "vfio-pci")
    (kernel.pci / "devices" / NIC).unlink()
    assert not restore(pci, notes)


@pytest.mark.default
def test_an_interface_that_comes_late_is_waited_for(pci: PciDevices, kernel: FakeKernel, notes: list[Any]) -> None:
    kernel.ip_link_set(["dev", "eth1", "up"])
    pci.bind(NIC, "vfio-pci")
    kernel.set(late={NIC: 0.5})
    assert restore(pci, notes)
    assert (kernel.net / "eth1/flags").read_text() == "0x1003\n"


@pytest.mark.default
def test_an_interface_that_does_not_come_back_is_told(
    pci: PciDevices, kernel: FakeKernel, notes: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autotest.network.pci._INTERFACE_TIMEOUT", 0.3)
    pci.bind(NIC, "vfio-pci")
    kernel.set(drivers={**kernel.known["drivers"], "e1000e": {"takes": "8086:10d3", "net": False}})
    with pytest.raises(TestbedError, match="0000:01:00.0 has no network interface after 0.3 s, its driver is e1000e"):
        restore(pci, notes)
    with pytest.raises(TestbedError, match="no network interface"):
        restore(pci, notes)


# -- modules -----------------------------------------------------------------------------------------------


def test_a_module_is_loaded_for_the_one_device_only_and_other_devices_stay_without_a_driver(
    pci: PciDevices, kernel: FakeKernel, notes: list[Any]
) -> None:
    kernel.module("ice", takes="8086:1592", net=True, loaded=False)
    for address in ("0000:03:00.0", "0000:03:00.1"):
        kernel.device(address, "8086:1592")
    pci.bind("0000:03:00.0", "ice")
    assert kernel.driver_of("0000:03:00.0") == "ice" and kernel.driver_of("0000:03:00.1") == ""
    assert kernel.known["modprobe_sees"] == [["ice", "0"]]
    assert (kernel.pci / "drivers_autoprobe").read_text() == "1\n"
    assert [kind for kind, _ in notes] == ["autoprobe", "driver"]
    assert not pci.let_drivers_probe()


def test_a_driver_whose_module_was_unloaded_meanwhile_is_loaded_again_to_give_the_device_back(
    pci: PciDevices, kernel: FakeKernel, notes: list[Any]
) -> None:
    kernel.register("vfio-pci")
    before = kernel.state()
    pci.bind(NIC, "vfio-pci")
    kernel.takes(str(kernel.pci / f"devices/{OTHER}/driver/unbind"), OTHER)
    shutil.rmtree(kernel.pci / "drivers/e1000e")
    assert restore(pci, notes)
    kernel.probe(OTHER)
    assert kernel.state() == before and [kind for kind, _ in notes] == ["driver"]


def test_where_drivers_take_nothing_by_themselves_it_stays_so_and_binding_works(
    pci: PciDevices, kernel: FakeKernel, notes: list[Any]
) -> None:
    (kernel.pci / "drivers_autoprobe").write_text("0\n")
    pci.bind(NIC, "vfio-pci")
    assert kernel.driver_of(NIC) == "vfio-pci" and (kernel.pci / "drivers_autoprobe").read_text() == "0\n"
    assert [kind for kind, _ in notes] == ["driver"]


def test_loading_that_was_cut_short_does_not_keep_drivers_from_devices(pci: PciDevices, kernel: FakeKernel) -> None:
    (kernel.pci / "drivers_autoprobe").write_text("0\n")
    assert pci.let_drivers_probe() and not pci.let_drivers_probe()
    assert (kernel.pci / "drivers_autoprobe").read_text() == "1\n"


@pytest.mark.parametrize("driver", ["nosuch", "-r", "$(reboot)", "e1000e x", "../e1000e"])
def test_a_driver_that_is_not_there_is_told_and_nothing_is_changed(
    pci: PciDevices, kernel: FakeKernel, notes: list[Any], driver: str
) -> None:
    before = kernel.state()
    with pytest.raises(TestbedError, match="there is no driver .* modprobe: FATAL: Module .* not found"):
        pci.bind(NIC, driver)
    assert kernel.state() == before and [kind for kind, _ in notes] == ["autoprobe"]


def test_a_module_that_brings_no_such_driver_is_told(pci: PciDevices, kernel: FakeKernel) -> None:
    kernel.set(modules=["odd"])
    with pytest.raises(TestbedError, match="there is no driver odd: modprobe loads a module of that name, but"):
        pci.bind(NIC, "odd")


# -- what goes wrong ---------------------------------------------------------------------------------------


def test_a_probe_that_binds_nothing_is_seen_though_the_kernel_calls_it_a_success(
    pci: PciDevices, kernel: FakeKernel, notes: list[Any]
) -> None:
    kernel.register("vfio-pci")
    before = kernel.state()
    kernel.set(inert=[NIC])
    with pytest.raises(
        TestbedError, match="vfio-pci was asked for 0000:01:00.0, but it has no driver: the kernel does not say why"
    ):
        pci.bind(NIC, "vfio-pci")
    kernel.set(inert=[])
    assert restore(pci, notes) and kernel.state() == before


def test_a_driver_that_refuses_is_told_with_the_kernels_words_and_undone(
    pci: PciDevices, kernel: FakeKernel, notes: list[Any]
) -> None:
    kernel.register("vfio-pci")
    before = kernel.state()
    kernel.set(refused={NIC: errno.EINVAL})
    with pytest.raises(TestbedError, match="vfio-pci was asked for 0000:01:00.0, but it has no driver: Invalid argument"):
        pci.bind(NIC, "vfio-pci")
    kernel.set(refused={})
    assert restore(pci, notes) and kernel.state() == before


def test_a_driver_of_the_kernel_that_is_for_other_devices_is_not_forced_on_this_one(
    pci: PciDevices, kernel: FakeKernel, notes: list[Any]
) -> None:
    before = kernel.state()
    with pytest.raises(TestbedError) as raised:
        pci.bind(NIC, "virtio-pci")
    said = "virtio-pci was asked for 0000:01:00.0, but it has no driver: No such device; is it a driver for 8086:10d3?"
    assert said in str(raised.value)
    assert restore(pci, notes) and kernel.state() == before


def test_what_the_kernels_log_says_of_the_device_is_quoted(pci: PciDevices, kernel: FakeKernel) -> None:
    kernel.register("vfio-pci")
    kernel.set(refused={NIC: errno.EINVAL}, says="4,2,2,-;vfio-pci 0000:01:00.0: the IOMMU does not isolate it\n SUBSYSTEM=pci\n")
    log = kernel.root / "dev/kmsg"
    log.write_text("6,1,1,-;vfio-pci 0000:01:00.0: of an hour ago\n")
    with pytest.raises(TestbedError, match="Invalid argument; vfio-pci 0000:01:00.0: the IOMMU does not isolate it; is it"):
        pci.bind(NIC, "vfio-pci")


@pytest.mark.default
def test_an_unbinding_that_the_kernel_does_not_end_is_left_after_its_time(
    pci: PciDevices, machine: FakeMachine, kernel: FakeKernel
) -> None:
    machine.shorter["_LONG"] = 0.3
    kernel.set(blocks=[NIC])
    start = time.monotonic()
    with pytest.raises(TestbedError, match="/driver/unbind: writing '0000:01:00.0' did not end within 0.3 s"):
        pci.bind(NIC, "vfio-pci")
    assert time.monotonic() - start < 3


HELD = {
    "group": ("vfio-pci", ["/dev/vfio/vfio", "/dev/vfio/17", "anon_inode:[vfio-device]"], "/dev/vfio/17"),
    "container alone": ("vfio-pci", ["/dev/vfio/vfio"], "/dev/vfio/vfio"),
    "device alone": ("vfio-pci", ["anon_inode:[vfio-device]"], "anon_inode:[vfio-device]"),
    "without IOMMU": ("vfio-pci", ["/dev/vfio/noiommu-17"], "/dev/vfio/noiommu-17"),
    "uio": ("igb_uio", ["/dev/uio0"], "/dev/uio0"),
}


@pytest.mark.parametrize("how", HELD)
def test_a_device_in_use_is_never_taken_from_its_user_who_is_named(
    pci: PciDevices, machine: FakeMachine, kernel: FakeKernel, notes: list[Any], how: str
) -> None:
    driver, opened, named = HELD[how]
    pci.bind(NIC, driver)
    kernel.process(4711, "qemu-system-x86_64 -S", "/dev/null", *opened)
    kernel.set(blocks=[NIC])
    before = kernel.state()
    said = f"0000:01:00.0 is in use: process 4711, qemu-system-x86_64 -S, has {named} open: end it first"
    for use in (lambda: pci.bind(NIC, "e1000e"), lambda: pci.bind(NIC, driver), lambda: restore(pci, notes)):
        with pytest.raises(TestbedError) as raised:
            use()
        assert said in str(raised.value)
    assert kernel.state() == before
    (holder,) = pci.holders(NIC)
    assert (holder.pid, holder.holds) == (4711, named)


def test_a_nic_of_the_kernel_has_no_holders_that_keep_it_from_being_bound_again(pci: PciDevices, kernel: FakeKernel) -> None:
    kernel.process(4711, "dpdk-testpmd", "/dev/vfio/vfio", "/dev/vfio/17", "/dev/uio0")
    assert pci.bind(NIC, "e1000e").driver == "e1000e"


def test_whoever_opens_it_at_the_last_moment_is_seen_too(pci: PciDevices, machine: FakeMachine, kernel: FakeKernel) -> None:
    pci.bind(NIC, "vfio-pci")
    before = kernel.state()

    def open_it(asked: list[str]) -> None:
        if "bind" in asked:
            kernel.process(99, "dpdk-testpmd", "/dev/vfio/17")

    machine.before = open_it
    with pytest.raises(TestbedError, match="in use: process 99, dpdk-testpmd"):
        pci.bind(NIC, "e1000e")
    assert kernel.state() == before


def test_who_has_other_devices_open_or_ends_meanwhile_is_no_holder(pci: PciDevices, kernel: FakeKernel, tmp_path: Path) -> None:
    pci.bind(NIC, "vfio-pci")
    kernel.process(1, "qemu", "/dev/vfio/vfio", "/dev/vfio/18", "anon_inode:[vfio-device]")
    kernel.process(2, "sh", "/dev/vfio/170", "/dev/uio0", "anon_inode:[eventfd]")
    (kernel.root / "proc/3").mkdir()
    assert pci.holders(NIC) == []
    assert pci.bind(NIC, "e1000e").driver == "e1000e"


# -- what it refuses ---------------------------------------------------------------------------------------


def test_an_absent_address_is_told_with_the_network_devices_that_there_are(pci: PciDevices, notes: list[Any]) -> None:
    with pytest.raises(TestbedError) as raised:
        pci.bind("0000:01:00.1", "vfio-pci")
    assert str(raised.value).startswith(
        "host: there is no PCI device 0000:01:00.1; its network devices are 0000:01:00.0 (e1000e, eth1), "
    )
    assert "0000:00:02.0 (virtio-pci, eth0)" in str(raised.value) and notes == []


def test_a_nic_with_another_mac_address_than_configured_is_not_the_one(pci: PciDevices, notes: list[Any]) -> None:
    assert pci.bind(NIC, "e1000e", mac=NIC_MAC.upper()).address == NIC
    with pytest.raises(TestbedError) as raised:
        pci.bind(NIC, "vfio-pci", mac="52:54:00:00:99:99")
    assert f"{NIC} is not the NIC with 52:54:00:00:99:99, it is eth1 with {NIC_MAC}" in str(raised.value) and notes == []


def test_only_network_devices_are_bound_unless_another_kind_is_asked_for(
    pci: PciDevices, kernel: FakeKernel, notes: list[Any]
) -> None:
    kernel.module("nvme", takes="1b36:0010")
    path = kernel.device("0000:04:00.0", "1b36:0010", group=20, driver="nvme", code="0x010802")
    with pytest.raises(TestbedError, match="0000:04:00.0 is no network device, its class is 0x010802: left alone"):
        pci.bind("0000:04:00.0", "vfio-pci")
    (path / "nvme/nvme0n1").mkdir(parents=True)
    (kernel.root / "sys/class/block/nvme0n1").symlink_to(path / "nvme/nvme0n1")
    with pytest.raises(TestbedError, match="it has disks: nvme0n1"):
        pci.bind("0000:04:00.0", "vfio-pci", kinds=(0x01,))
    assert notes == []
    (kernel.root / "sys/class/block/nvme0n1").unlink()
    assert pci.bind("0000:04:00.0", "vfio-pci", kinds=(0x01,)).driver == "vfio-pci"


def addresses(**of: str) -> str:
    return json.dumps([{"ifname": name, "addr_info": [{"local": each, "scope": "global"}]} for name, each in of.items()])


def ss(local: str, process: str = "sshd") -> str:
    return f'0      36     {local}      10.0.2.2:51234 users:(("{process}",pid=612,fd=4),("{process}",pid=600,fd=4))\n'


def bridge_with_address(kernel: FakeKernel) -> None:
    kernel.upper("br0", "eth1", bridge=True)
    kernel.set(network={**EMPTY, "addresses": addresses(br0="fd00::1")})


def vlan_on_bond_with_default_route(kernel: FakeKernel) -> None:
    kernel.upper("bond0", "eth1", "eth2")
    kernel.upper("bond0.5", "bond0")
    kernel.set(network={**EMPTY, "routes": '[{"dst": "default", "dev": "bond0.5"}]'})


IN_USE: dict[str, tuple[Callable[[FakeKernel], None], str]] = {
    "default route": (
        lambda kernel: kernel.set(network={**EMPTY, "routes": '[{"dst": "default", "gateway": "10.0.2.2", "dev": "eth1"}]'}),
        "carries the default route (eth1)",
    ),
    "default route of IPv6": (
        lambda kernel: kernel.set(network={**EMPTY, "routes6": '[{"dst": "default", "dev": "eth1", "metric": 1024}]'}),
        "carries the default route (eth1)",
    ),
    "default route over several": (
        lambda kernel: kernel.set(network={**EMPTY, "routes": '[{"dst": "default", "nexthops": [{"dev": "x"}, {"dev": "eth1"}]}]'}),
        "carries the default route (eth1)",
    ),
    "SSH": (
        lambda kernel: kernel.set(network={**EMPTY, "addresses": addresses(eth1="10.0.2.15"), "connections": ss("10.0.2.15:22")}),
        "carries an SSH connection to this machine (10.0.2.15, eth1)",
    ),
    "SSH over a link's address": (
        lambda kernel: kernel.set(network={
            **EMPTY, "addresses": addresses(eth1="fe80::1").replace("global", "link"),
            "connections": ss("[fe80::1]%eth1:22", "sshd-session"),
        }),
        "carries an SSH connection to this machine (fe80::1, eth1)",
    ),
    "our own login": (
        lambda kernel: kernel.set(network={**EMPTY, "addresses": addresses(eth1="10.0.2.15")}, login="10.0.2.2 51234 10.0.2.15 22"),
        "carries an SSH connection to this machine (10.0.2.15, eth1)",
    ),
    "an address": (
        lambda kernel: kernel.set(network={**EMPTY, "addresses": addresses(eth1="192.168.7.1")}),
        "has the address 192.168.7.1 (eth1)",
    ),
    "address of its bridge": (bridge_with_address, "has the address fd00::1 (br0, on top of eth1)"),
    "default route of a VLAN on its bond": (
        vlan_on_bond_with_default_route, "carries the default route (bond0.5, on top of eth1)",
    ),
    "VLAN": (lambda kernel: kernel.upper("eth1.5", "eth1"), "is below eth1.5, which would go with it (eth1)"),
    "hidden": (
        lambda kernel: (kernel.net / "eth1").unlink(),
        "is bound to e1000e, but its interface is not to be seen here, perhaps it is a container's",
    ),
}  # fmt: skip


@pytest.mark.default
@pytest.mark.parametrize("use", IN_USE)
def test_a_nic_that_the_machine_needs_is_refused_unless_told_by_name(
    pci: PciDevices, kernel: FakeKernel, notes: list[Any], use: str
) -> None:
    prepare, reason = IN_USE[use]
    prepare(kernel)
    before = kernel.state()
    for allowed in ((), (OTHER,)):
        with pytest.raises(TestbedError) as raised:
            pci.bind(NIC, "vfio-pci", allowed=allowed)
        assert str(raised.value) == (
            f"host: {NIC} is not bound to vfio-pci: it {reason}; if that may end, add it to bind_in_use in the server's section"
        )
        assert reason in str(pci.refusal(NIC, allowed))
    assert kernel.state() == before and notes == []
    assert pci.refusal(NIC, [NIC]) is None
    assert pci.bind(NIC, "vfio-pci", allowed=[NIC]).driver == "vfio-pci"


def test_a_nic_that_is_not_needed_may_be_bound(pci: PciDevices, kernel: FakeKernel) -> None:
    kernel.upper("br0", "eth1", bridge=True)
    kernel.upper("br1", "eth2", bridge=True)
    network = {
        "addresses": addresses(eth2="10.1.1.1", br1="10.1.1.2", eth0="10.0.2.15")[:-1]
        + ', {"ifname": "eth1", "addr_info": [{"local": "fe80::1", "scope": "link"}]}, {}]',
        "routes": '[{"dst": "default", "dev": "eth2"}]', "routes6": "", "connections": ss("10.0.2.15:22") + ss("[::ffff:10.1.1.1]:22"),
    }  # fmt: skip
    kernel.set(network=network)
    assert pci.refusal(NIC) is None
    assert pci.refusal(OTHER) and pci.refusal(ADMIN)


def test_a_virtual_function_may_be_bound_though_its_physical_function_carries_all(pci: PciDevices, kernel: FakeKernel) -> None:
    kernel.device("0000:05:00.0", group=30, driver="e1000e", vfs=4)
    kernel.set(network={**EMPTY, "routes": '[{"dst": "default", "dev": "eth3"}]', "addresses": addresses(eth3="10.0.0.1")})
    (function,) = pci.set_virtual_functions("0000:05:00.0", 1)
    assert pci.refusal(function) is None
    assert pci.bind(function, "vfio-pci").physical_function == "0000:05:00.0"


def test_a_device_with_virtual_functions_keeps_its_driver(pci: PciDevices, kernel: FakeKernel) -> None:
    kernel.device("0000:05:00.0", group=30, driver="e1000e", vfs=4)
    pci.set_virtual_functions("0000:05:00.0", 2)
    with pytest.raises(TestbedError, match="it has 2 virtual functions, which would go with its driver"):
        pci.bind("0000:05:00.0", "vfio-pci", allowed=["0000:05:00.0"])


class InNamespace(FakeMachine):
    """The same machine, in a network namespace with other interfaces."""

    def __init__(self, kernel: FakeKernel, inside: FakeKernel) -> None:
        super().__init__(inside)
        self._machine = FakeMachine(kernel)

    @property
    def outside(self) -> FakeMachine:
        return self._machine

    def _execute(self, command: Sequence[str], *rest: Any) -> Result:
        inside = json.dumps({**json.loads(command[3]), "root": str(self.kernel.root)})
        argv = [*rest[0][:-1], inside]
        return super()._execute([*command[:3], inside], argv, *rest[1:])


def test_a_nic_whose_interface_is_in_the_servers_own_namespace_stays_there(kernel: FakeKernel, tmp_path: Path) -> None:
    inside = FakeKernel(tmp_path / "inside").create()
    inside.module("e1000e", net=True)
    inside.set(names={NIC: "moved"})
    inside.device(NIC, driver="e1000e")
    (kernel.net / "eth1").unlink()
    pci = PciDevices(InNamespace(kernel, inside), root=str(kernel.root))
    with pytest.raises(TestbedError, match="its interface moved is in the network namespace that the configuration names"):
        pci.bind(NIC, "vfio-pci", allowed=[NIC])
    assert kernel.driver_of(NIC) == "e1000e"
    assert pci.bind(OTHER, "vfio-pci").driver == "vfio-pci"


# -- the IOMMU ---------------------------------------------------------------------------------------------


def test_a_group_is_bound_as_a_whole_or_not_at_all(pci: PciDevices, kernel: FakeKernel, notes: list[Any]) -> None:
    kernel.device("0000:06:00.0", group=40, driver="e1000e")
    kernel.device("0000:06:00.1", group=40, driver="e1000e")
    kernel.device("0000:00:1c.0", group=40, driver="pcieport", code="0x060400")
    with pytest.raises(TestbedError) as raised:
        pci.bind("0000:06:00.0", "vfio-pci")
    assert "the kernel uses 0000:06:00.1 (e1000e): take the driver away" in str(raised.value) and notes == []
    assert "all its members are 0000:00:1c.0 (pcieport), 0000:06:00.0 (e1000e), 0000:06:00.1 (e1000e)" in str(raised.value)
    assert pci.bind("0000:06:00.0", "igb_uio").driver == "igb_uio"
    kernel.takes(str(kernel.pci / "devices/0000:06:00.1/driver/unbind"), "0000:06:00.1")
    assert pci.group_problem("0000:06:00.0") is None
    assert pci.bind("0000:06:00.0", "vfio-pci").driver == "vfio-pci"
    assert pci.bind("0000:06:00.1", "vfio-pci").driver == "vfio-pci"


def test_half_a_group_is_told_also_where_the_device_is_bound_already(pci: PciDevices, kernel: FakeKernel) -> None:
    kernel.device("0000:06:00.0", group=40, driver="e1000e")
    kernel.device("0000:06:00.1", group=40)
    pci.bind("0000:06:00.1", "e1000e")
    kernel.takes(str(kernel.pci / "devices/0000:06:00.1/driver/unbind"), "0000:06:00.1")
    pci.bind("0000:06:00.0", "vfio-pci")
    kernel.attach("0000:06:00.1", "e1000e")
    with pytest.raises(TestbedError, match=r"can only be given away as a whole, but the kernel uses 0000:06:00.1 \(e1000e\)"):
        pci.bind("0000:06:00.0", "vfio-pci")


def test_without_an_iommu_the_remedy_is_told_in_one_line_and_uio_still_works(tmp_path: Path) -> None:
    kernel = FakeKernel(tmp_path / "plain").create()
    kernel.module("e1000e", takes="8086:10d3", net=True)
    kernel.module("uio_pci_generic", loaded=False)
    kernel.device(NIC, driver="e1000e")
    pci = PciDevices(FakeMachine(kernel), root=str(kernel.root))
    with pytest.raises(TestbedError) as raised:
        pci.bind(NIC, "vfio-pci")
    assert "there is no IOMMU" in str(raised.value) and "intel_iommu=on" in str(raised.value) and "\n" not in str(raised.value)
    assert pci.bind(NIC, "uio_pci_generic").driver == "uio_pci_generic"
    with pytest.raises(TestbedError, match="there is no IOMMU"):
        pci.bind(NIC, "e1000e", needs_iommu=True)


# -- this machine ------------------------------------------------------------------------------------------


def test_the_devices_of_this_machine_are_understood(tmp_path: Path) -> None:
    pci = PciDevices(LocalTransport("here"))
    for device in pci.devices():
        assert pci.show(device.address) == device and device.is_network
        folder = Path("/sys/bus/pci/devices", device.address)
        assert int((folder / "vendor").read_text(), 16) == device.vendor
        assert (device.driver is not None) == (folder / "driver").is_symlink()
        for name, mac in device.interfaces.items():
            assert Path("/sys/class/net", name, "address").read_text().strip() == mac
    assert pci.show("ffff:ff:1f.7") is None


def test_the_nic_of_this_machine_that_its_default_route_goes_over_is_refused(netns: str) -> None:
    pci = PciDevices(LocalTransport("here"))
    routes = json.loads(LocalTransport("here").run(["ip", "-json", "route", "show", "default"]).stdout)
    over = {route.get("dev") for route in routes}
    for device in pci.devices():
        if over & set(device.interfaces):
            assert "carries the default route" in str(pci.refusal(device.address))
    inside = PciDevices(LocalTransport("here", netns))
    assert [device.address for device in inside.devices()] == [device.address for device in pci.devices()]
