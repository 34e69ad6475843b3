"""The test NIC: the right one, alone with its MAC address, linked, and as a PCI device where it is given away."""

from __future__ import annotations

import pytest
from fake_kernel import EMPTY, FakeKernel
from preflight_bed import HOST_MAC, LOADGEN_MAC, Bed, ip

from autotest.errors import TestbedError
from autotest.preflight.nics import (
    GivenAwayNic,
    IommuGroup,
    KernelDriver,
    KernelNic,
    with_mac,
)
from autotest.preflight.requirement import Finding, Status

NIC, ADMIN, DISK = "0000:01:00.0", "0000:00:02.0", "0000:04:00.0"
PCI_MAC = "52:54:00:00:01:00"
HOST_NIC = KernelNic("host")


def failing(finding: Finding) -> str:
    assert finding.status is Status.FAIL, finding
    assert finding.remedy
    return finding.detail


def test_a_nic_that_is_up_with_its_mac_and_carrier_passes(bed: Bed) -> None:
    assert bed.look(HOST_NIC).status is bed.look(KernelNic("loadgen")).status is Status.PASS


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


def test_a_group_with_a_device_that_the_kernel_uses_cannot_be_given_away(bed: Bed, kernel: FakeKernel) -> None:
    kernel.device("0000:01:00.1", group=17, driver="e1000e")
    finding = bed.look(IommuGroup("host", NIC))
    assert failing(finding).startswith("IOMMU group 17 can only be given away as a whole, but the kernel uses 0000:01:00.1")


def test_looking_at_nics_changes_none(bed: Bed) -> None:
    before = bed.links()
    for requirement in (HOST_NIC, KernelNic("loadgen")):
        bed.look(requirement)
    assert bed.links() == before and LOADGEN_MAC != HOST_MAC
