"""The test NIC: the right one, alone with its MAC address, linked, and as a PCI device where it is given away."""

from __future__ import annotations

from typing import Any

import pytest
from fake_kernel import EMPTY, FakeKernel
from preflight_bed import HOST_MAC, LOADGEN_MAC, Bed, ip

from autotest.errors import TestbedError
from autotest.interfaces import INTERFACE_KINDS, InterfaceOptions
from autotest.measurements.needs import requirements
from autotest.plan.parameters import Case
from autotest.preflight.needs import needs_of_interface
from autotest.preflight.nics import (
    FrameRoom,
    GivenAwayNic,
    IommuGroup,
    KernelDriver,
    KernelNic,
    with_mac,
)
from autotest.preflight.requirement import Finding, Requirement, Status
from autotest.preflight.survey import Survey

NIC, ADMIN, DISK, PF = "0000:01:00.0", "0000:00:02.0", "0000:04:00.0", "0000:05:00.0"
VFS = ("0000:05:00.1", "0000:05:00.2")
PCI_MAC = "52:54:00:00:01:00"
HOST_NIC = KernelNic("host")


def failing(finding: Finding) -> str:
    assert finding.status is Status.FAIL, finding
    assert finding.remedy
    return finding.detail


def test_a_nic_that_is_up_with_its_mac_and_carrier_passes(bed: Bed) -> None:
    assert bed.look(HOST_NIC).status is bed.look(KernelNic("loadgen")).status is Status.PASS


def test_frames_that_the_mtu_has_no_room_for_are_refused(bed: Bed) -> None:
    ip(bed.host, "link", "set", "dev", "nic", "mtu", "1000")
    assert bed.look(FrameRoom("host", 1014)).status is bed.look(FrameRoom("loadgen", 1514)).status is Status.PASS
    finding = bed.look(FrameRoom("host", 1015))
    assert failing(finding) == "nic has an MTU of 1000 bytes, for frames of up to 1014: the tests have some of 1015"
    assert finding.remedy == "ip link set dev nic mtu 1001, or no sizes above 1014"


def test_a_nic_is_known_by_any_of_its_names(bed: Bed) -> None:
    ip(bed.host, "link", "property", "add", "dev", "nic", "altname", "enp1s0")
    bed.change(host={"test_iface": "enp1s0"})
    assert bed.look(HOST_NIC).status is Status.PASS


def test_a_name_that_is_wrong_is_named_with_the_one_that_has_the_mac(bed: Bed) -> None:
    bed.change(host={"test_iface": "eth9"})
    assert failing(bed.look(HOST_NIC)) == f"there is no network interface eth9, but nic has the MAC address {HOST_MAC}"
    bed.change(host={"test_iface_mac": "52:54:00:00:00:01"})
    assert failing(bed.look(HOST_NIC)) == "there is no network interface eth9"


def test_another_mac_than_the_configured_one_is_another_nic(bed: Bed) -> None:
    ip(bed.host, "link", "add", "other", "type", "veth", "peer", "name", "otherpeer")
    ip(bed.host, "link", "set", "dev", "other", "address", "52:54:00:00:00:77")
    bed.change(host={"test_iface_mac": "52:54:00:00:00:77"})
    assert failing(bed.look(HOST_NIC)) == f"nic has the MAC address {HOST_MAC}, not 52:54:00:00:00:77; other has it"


def test_an_interface_has_the_mac_of_the_one_that_it_stands_on(bed: Bed) -> None:
    ip(bed.host, "link", "add", "link", "nic", "name", "above", "type", "macvlan", "mode", "passthru")
    ip(bed.host, "link", "set", "dev", "above", "up")
    bed.change(host={"test_iface": "above"})
    assert bed.look(HOST_NIC).status is Status.PASS


def test_two_nics_with_one_mac_cannot_be_told_apart(bed: Bed) -> None:
    ip(bed.host, "link", "add", "other", "address", HOST_MAC, "type", "veth", "peer", "name", "otherpeer")
    assert failing(bed.look(HOST_NIC)).startswith(f"{HOST_MAC} is the MAC address of nic and of other")
    assert bed.look(KernelNic("loadgen")).status is Status.PASS


@pytest.mark.parametrize("kind", ["bridge", "macvlan", "macvtap"])
def test_links_that_have_the_nics_mac_because_they_are_on_it_are_no_second_nic(bed: Bed, kind: str) -> None:
    if kind == "bridge":
        ip(bed.host, "link", "add", "name", "br", "address", HOST_MAC, "type", "bridge")
        ip(bed.host, "link", "set", "nic", "master", "br")
    else:
        ip(bed.host, "link", "add", "link", "nic", "name", "upper", "address", HOST_MAC, "type", kind, "mode", "passthru")
    assert bed.look(HOST_NIC).status is Status.PASS


@pytest.mark.parametrize(
    ("info", "is_a_nic"),
    [({}, True), ({"info_kind": "veth"}, True), ({"info_kind": "tun"}, True), ({"info_kind": "vlan"}, False),
     ({"info_kind": "bond"}, False), ({"info_kind": "ipvlan"}, False), ({"info_slave_kind": "bond"}, False),
     ({"info_slave_kind": "bridge"}, True), ({"info_kind": "veth", "info_slave_kind": "bridge"}, True)],
)  # fmt: skip
def test_nics_are_links_with_a_mac_of_their_own(info: dict[str, str], is_a_nic: bool) -> None:
    link = {"ifname": "eth7", "address": HOST_MAC.upper(), "linkinfo": info}
    assert with_mac([link, {"ifname": "lo", "address": "00:00:00:00:00:00"}, {"ifname": "raw"}], HOST_MAC) == ["eth7"] * is_a_nic


def test_a_nic_that_is_a_port_of_another_bridge_gets_no_frames(bed: Bed) -> None:
    ip(bed.host, "link", "add", "docker0", "type", "bridge")
    ip(bed.host, "link", "set", "nic", "master", "docker0")
    assert failing(bed.look(HOST_NIC)) == "nic is a port of docker0, which takes its frames"


def test_a_nic_that_is_down_is_brought_up_later_and_nothing_does_so_now(bed: Bed) -> None:
    ip(bed.host, "link", "set", "nic", "down")
    finding = bed.look(HOST_NIC)
    assert finding.status is Status.PASS and "down: it is brought up for the test" in finding.detail
    other = bed.look(KernelNic("loadgen"))
    assert other.status is Status.PASS and "no carrier yet: the other end is down" in other.detail
    assert "UP" not in (bed.servers.host.links.show("nic") or {})["flags"]


def test_two_nics_that_are_up_without_a_carrier_have_no_cable_between_them(bed: Bed) -> None:
    ip(bed.host, "link", "add", "lone", "address", "52:54:00:00:00:01", "type", "veth", "peer", "name", "lonepeer")
    ip(bed.host, "link", "set", "lone", "up")
    bed.change(host={"test_iface": "lone", "test_iface_mac": "52:54:00:00:00:01"})
    assert failing(bed.look(HOST_NIC)) == "lone is up, but has no carrier"


def test_a_nic_without_an_interface_is_bound_again_where_address_and_driver_are_configured(bed: Bed, kernel: FakeKernel) -> None:
    kernel.register("vfio-pci")
    kernel._unbind(NIC)
    kernel.attach(NIC, "vfio-pci")
    bed.change(host={"test_iface": "eth9", "test_iface_addr": NIC, "test_iface_mac": PCI_MAC})
    assert "has no driver of the kernel" in failing(bed.look(HOST_NIC))
    bed.change(host={"test_iface_driv": "e1000e"})
    finding = bed.look(HOST_NIC)
    assert finding.status is Status.PASS and "bound to e1000e for the test" in finding.detail


def test_a_driver_that_is_not_the_configured_one_is_named(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    from autotest.preflight import survey
    from autotest.servers.facts import MachineFacts, Nic

    monkeypatch.setattr(survey, "read_facts", lambda server: MachineFacts(nic=Nic(driver="i40e")))
    bed.change(host={"test_iface_driv": "ixgbe"})
    assert failing(bed.look(KernelDriver("host"))) == "nic has the driver i40e, not ixgbe"
    bed.change(host={"test_iface_driv": "i40e"})
    assert bed.look(KernelDriver("host")).status is Status.PASS
    bed.change(host={"test_iface_driv": "ixgbe", "test_iface_vfio_driv": "i40e"})
    assert bed.look(KernelDriver("host")).status is Status.PASS  # given away now, and given back for the test


@pytest.mark.parametrize(
    ("iface", "driver"), [("nic", "vfio-pci"), ("nic", "uio_pci_generic"), ("gone", "i40e"), ("gone", "vfio-pci"), ("nic", None)]
)
def test_a_nic_that_is_bound_to_the_kernels_driver_for_the_test_may_have_any_driver_now(
    bed: Bed, monkeypatch: pytest.MonkeyPatch, iface: str, driver: str | None
) -> None:
    from autotest.preflight import survey
    from autotest.servers.facts import MachineFacts, Nic

    monkeypatch.setattr(survey, "read_facts", lambda server: MachineFacts(nic=Nic(driver=driver)))
    bed.change(host={"test_iface": iface, "test_iface_driv": "ixgbe", "test_iface_dpdk_driv": "igb_uio"})
    finding = bed.look(KernelDriver("host"))
    assert finding.status is Status.PASS and "ixgbe for the test" in finding.detail


def host_needs(bed: Bed, interface: str, reflector: str = "moongen") -> list[Requirement]:
    """What a case with the host's own interface, or else a guest's interface, needs of NICs on the host."""
    kind = INTERFACE_KINDS[interface]
    if kind.nic is not None:
        found = list(needs_of_interface(bed.testbed, kind, guest=True))
    else:
        case = Case(("machine", "interface", "reflector"), ("host", interface, reflector))
        found = list(requirements(bed.testbed, case))
    return [each for each in found if each.server == "host" and type(each).__module__ == KernelNic.__module__]


def test_a_nic_that_the_user_has_bound_to_dpdk_for_good_is_one_that_moongen_reflects_on(bed: Bed, kernel: FakeKernel) -> None:
    kernel.module("igb_uio")
    kernel._unbind(NIC)
    kernel.attach(NIC, "igb_uio")
    bed.change(host={"test_iface": "eth9", "test_iface_addr": NIC, "test_iface_mac": PCI_MAC, "test_iface_dpdk_driv": "igb_uio"})
    found = {type(each): bed.look(each).status for each in host_needs(bed, "pnic")}
    assert found == {KernelNic: Status.PASS, GivenAwayNic: Status.PASS}
    for needed in (host_needs(bed, "pnic", "xdp"), host_needs(bed, "bridge")):  # which want an interface of the kernel
        assert any("has no driver of the kernel" in bed.look(each).detail for each in needed)


# -- given away ------------------------------------------------------------------------------------------------


def given_away(bed: Bed, address: str, driver: str = "vfio-pci", mac: str | None = None) -> Finding:
    bed.change(host={"test_iface": "eth9", "test_iface_addr": address, "test_iface_mac": mac})
    try:
        return bed.look(GivenAwayNic("host", address, driver))
    except TestbedError as error:  # a failed requirement with that text
        return Finding(Status.FAIL, str(error), "in the text")


def test_a_nic_that_may_be_given_away_passes_and_is_left_as_it_is(bed: Bed, kernel: FakeKernel) -> None:
    before = kernel.state()
    finding = given_away(bed, NIC, mac=PCI_MAC)
    assert finding.status is Status.PASS and "bound to vfio-pci for the test" in finding.detail
    assert kernel.state() == before


def test_an_address_that_is_absent_is_named_with_those_that_are_there(bed: Bed, kernel: FakeKernel) -> None:
    assert f"there is no PCI device 0000:07:00.0; its network devices are {NIC}" in failing(given_away(bed, "0000:07:00.0"))


def test_an_address_of_another_nic_or_of_no_nic_is_refused(bed: Bed, kernel: FakeKernel) -> None:
    assert "is not the NIC with 52:54:00:aa:00:01" in failing(given_away(bed, NIC, mac=HOST_MAC))
    assert "is no network device" in failing(given_away(bed, DISK))


def test_a_nic_that_the_machine_needs_is_somebody_elses(bed: Bed, kernel: FakeKernel) -> None:
    kernel.set(network={**EMPTY, "routes": '[{"dst": "default", "dev": "eth0"}]'})
    assert "somebody else's: it carries the default route" in failing(given_away(bed, ADMIN))
    assert given_away(bed, NIC).status is Status.PASS


@pytest.mark.parametrize("functions", [0, 2])
@pytest.mark.parametrize(
    ("driver", "opened"), [("vfio-pci", "/dev/vfio/17"), ("vfio-pci", "anon_inode:[vfio-device]"), ("igb_uio", "/dev/uio0")]
)
def test_a_nic_that_a_process_has_open_is_in_use_whatever_it_is_bound_to_next(
    bed: Bed, kernel: FakeKernel, driver: str, opened: str, functions: int
) -> None:
    kernel.module(driver)
    kernel._unbind(NIC)
    kernel.attach(NIC, driver)
    kernel.process(4711, "MoonGen l2-load-latency.lua", opened)
    bed.change(host={"test_iface": "eth9", "test_iface_addr": NIC, "test_iface_mac": None})
    for wanted in ("vfio-pci", "igb_uio"):
        finding = bed.look(GivenAwayNic("host", NIC, wanted, functions))
        assert failing(finding) == f"{NIC} is in use: process 4711, MoonGen l2-load-latency.lua, has {opened} open"


def test_a_guest_that_was_started_by_hand_may_have_the_nic_because_it_is_ended_before_a_run(
    bed: Bed, kernel: FakeKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel.register("vfio-pci")
    kernel._unbind(NIC)
    kernel.attach(NIC, "vfio-pci")
    kernel.process(4711, "qemu-system-x86_64", "/dev/vfio/17")
    bed.change(host={"test_iface": "eth9", "test_iface_addr": NIC, "test_iface_mac": None})
    servers = bed.servers
    monkeypatch.setattr(servers.host, "guest_is_running", lambda: True)
    finding = GivenAwayNic("host", NIC, "vfio-pci").look(Survey(servers))
    assert finding.status is Status.WARN and "process 4711" in finding.detail and "autotest kill-guest" in finding.remedy


def test_virtual_functions_need_room_and_none_of_somebody_elses(bed: Bed, kernel: FakeKernel) -> None:
    kernel.device(PF, group=30, driver="e1000e", vfs=4)
    bed.change(host={"test_iface": "eth9", "test_iface_addr": PF, "test_iface_mac": None})
    assert bed.look(GivenAwayNic("host", PF, "vfio-pci", 4)).status is Status.PASS
    assert failing(bed.look(GivenAwayNic("host", PF, "vfio-pci", 5))).endswith("can have 4 virtual functions, not 5")
    assert failing(bed.look(GivenAwayNic("host", NIC, "vfio-pci", 1))).endswith("can have 0 virtual functions, not 1")
    kernel.takes(str(kernel.pci / f"devices/{PF}/sriov_numvfs"), "2")
    finding = bed.look(GivenAwayNic("host", PF, "vfio-pci", 2))
    assert "has 2 virtual functions already" in failing(finding) and f"{PF}/sriov_numvfs" in finding.remedy


def test_virtual_functions_of_one_set_up_are_gone_before_the_next_and_those_of_somebody_else_are_never_used(
    bed: Bed, kernel: FakeKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel.register("vfio-pci")
    kernel.device(PF, group=30, driver="e1000e", vfs=2)
    kernel.set(macs={"0": "00:00:00:00:00:00", "1": "00:00:00:00:00:00"})
    bed.change(host={"test_iface_addr": PF, "test_iface_vfio_driv": "vfio-pci", "test_iface_vfs": 2})
    host, vfio = bed.servers.host, INTERFACE_KINDS["vfio"]
    for what in ("test_nic", "wait_for_carrier"):
        monkeypatch.setattr(host, what, lambda *_: "eth2")
    monkeypatch.setattr(host.links, "up", lambda name: None)
    before = kernel.state()
    for _ in range(2):
        with host.test_network(vfio, guest=True):
            for number in (1, 2):
                vfio.attach(host.machine(number), InterfaceOptions())
            assert host.functions == VFS and {kernel.driver_of(function) for function in VFS} == {"vfio-pci"}
            assert kernel.known["macs"] == {"0": "52:54:00:fa:00:60", "1": "52:54:00:fa:00:61"}
        assert kernel.state() == before and host.functions == ()
    kernel.takes(str(kernel.pci / f"devices/{PF}/sriov_numvfs"), "2")
    theirs, macs = kernel.state(), kernel.known["macs"]
    with pytest.raises(TestbedError, match="has 2 virtual functions already"), host.test_network(vfio, guest=True):
        raise AssertionError("it was set up")
    assert kernel.state() == theirs and kernel.known["macs"] == macs


def test_a_virtual_function_that_no_guest_has_keeps_its_mac_address_and_has_no_driver(
    bed: Bed, kernel: FakeKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel.register("vfio-pci")
    kernel.device(PF, group=30, driver="e1000e", vfs=2)
    kernel.set(macs={"0": "00:00:00:00:00:00", "1": "00:00:00:00:00:00"})
    bed.change(host={"test_iface_addr": PF, "test_iface_vfio_driv": "vfio-pci", "test_iface_vfs": 2})
    host, vfio = bed.servers.host, INTERFACE_KINDS["vfio"]
    for what in ("test_nic", "wait_for_carrier"):
        monkeypatch.setattr(host, what, lambda *_: "eth2")
    monkeypatch.setattr(host.links, "up", lambda name: None)
    with host.test_network(vfio, guest=True):
        vfio.attach(host.machine(1), InterfaceOptions())
        assert kernel.known["macs"] == {"0": "52:54:00:fa:00:60", "1": "00:00:00:00:00:00"}
        assert kernel.driver_of(VFS[0]) == "vfio-pci" != kernel.driver_of(VFS[1])


def test_an_interface_at_another_address_than_the_configured_one_is_another_nic(bed: Bed, kernel: FakeKernel) -> None:
    bed.change(host={"test_iface_addr": NIC, "test_iface_mac": None})
    finding = bed.look(GivenAwayNic("host", NIC, "vfio-pci"))
    assert failing(finding) == f"nic is no PCI device, not test_iface_addr {NIC}"


def test_without_an_address_the_nic_is_found_by_its_interface_or_mac_and_must_be_the_only_one(
    bed: Bed, kernel: FakeKernel
) -> None:
    without_address = GivenAwayNic("loadgen", None, "vfio-pci")
    bed.change(loadgen={"test_iface": "eth9"})
    assert failing(bed.look(without_address)) == "no PCI device has the interface eth9 or its MAC address"
    bed.change(loadgen={"test_iface": "eth1", "test_iface_mac": None})
    assert f"{NIC} (e1000e, eth1)" in bed.look(without_address).detail
    bed.change(loadgen={"test_iface": "eth9", "test_iface_mac": PCI_MAC.upper()})
    assert f"{NIC} (e1000e, eth1)" in bed.look(without_address).detail
    (kernel.net / "eth0/address").write_text(PCI_MAC)
    assert bed.look(without_address).status is Status.FAIL


def test_without_an_iommu_nothing_can_be_given_away(bed: Bed, kernel: FakeKernel) -> None:
    assert bed.look(IommuGroup("host", NIC)).status is Status.PASS
    kernel.device("0000:05:00.0", driver="e1000e")
    assert "no IOMMU group" in failing(bed.look(IommuGroup("host", "0000:05:00.0")))


def test_a_virtual_function_needs_an_iommu_but_not_its_nics_whole_group(bed: Bed, kernel: FakeKernel) -> None:
    kernel.device("0000:01:00.1", group=17, driver="e1000e")
    kernel.device("0000:05:00.0", driver="e1000e")
    bed.change(host={"test_iface_addr": NIC, "test_iface_vfio_driv": "vfio-pci"})
    (whole,) = [each for each in host_needs(bed, "vfio") if isinstance(each, IommuGroup)]
    assert bed.look(whole).status is Status.FAIL
    bed.change(host={"test_iface_vfs": 2})
    (of_function,) = [each for each in host_needs(bed, "vfio") if isinstance(each, IommuGroup)]
    assert bed.look(of_function).status is Status.PASS
    assert "no IOMMU group" in failing(bed.look(IommuGroup("host", "0000:05:00.0", of_function=True)))


@pytest.mark.parametrize(("says", "is_enough"), [("Y", True), ("N", False)])
def test_for_dpdk_vfio_that_goes_without_an_iommu_needs_none(
    bed: Bed, kernel: FakeKernel, monkeypatch: pytest.MonkeyPatch, says: str, is_enough: bool
) -> None:
    kernel.device("0000:05:00.0", driver="e1000e")
    bed.change(host={"test_iface_addr": "0000:05:00.0", "test_iface_dpdk_driv": "vfio-pci"})
    (needed,) = [each for each in host_needs(bed, "pnic") if isinstance(each, IommuGroup)]
    servers = bed.servers
    run = servers.host.run

    def answer(command: list[str], **options: Any) -> Any:
        asked = command == ["cat", "/sys/module/vfio/parameters/enable_unsafe_noiommu_mode"]
        return run(["echo", says]) if asked else run(command, **options)

    monkeypatch.setattr(servers.host, "run", answer)
    assert needed.look(Survey(servers)).status is (Status.PASS if is_enough else Status.FAIL)


def test_a_group_with_a_device_that_the_kernel_uses_cannot_be_given_away(bed: Bed, kernel: FakeKernel) -> None:
    kernel.device("0000:01:00.1", group=17, driver="e1000e")
    finding = bed.look(IommuGroup("host", NIC))
    assert failing(finding).startswith("IOMMU group 17 can only be given away as a whole, but the kernel uses 0000:01:00.1")


def test_looking_at_nics_changes_none(bed: Bed) -> None:
    before = bed.links()
    for requirement in (HOST_NIC, KernelNic("loadgen")):
        bed.look(requirement)
    assert bed.links() == before and LOADGEN_MAC != HOST_MAC
