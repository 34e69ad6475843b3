"""Guests are counted up from the first; where that ends, or meets something else, is known before anything is touched."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import Any

import pytest

from autotest.config.guest_limits import Own, limits, problems
from autotest.config.guests import (
    link_of,
    mac_plus,
    name_of,
    nth_guest,
    number_of,
)
from autotest.config.testbed import (
    GuestConfig,
    HostConfig,
    LabConfig,
    LoadGenConfig,
    Testbed,
    load_testbed,
)
from autotest.errors import ConfigError

HOST: dict[str, Any] = {
    "fqdn": "host.example", "test_iface": "eth1", "test_iface_mac": "b4:96:91:00:00:01", "admin_bridge": "adm",
    "admin_bridge_ip_net": "10.9.0.1/16", "admin_tap": "tapa", "test_bridge": "br", "test_tap": "tapt", "test_macvtap": "mvt",
}  # fmt: skip
GUEST: dict[str, Any] = {
    "fqdn": "vm.example",
    "admin_iface_mac": "52:54:00:fb:00:60",
    "test_iface_mac": "52:54:00:fa:00:60",
}
BRIDGE = Own("bridge", links=("test_tap",))
MACVTAP = Own("macvtap", links=("test_macvtap",))
VHOST_USER = Own("vhost-user", nic_link=True, socket="vhost_user_socket_path")
VFIO = Own("vfio", nic=True)
FUNCTIONS = Own("vfio", nic=True, functions=True)
MANY = 100_000


def bed_of(host: dict[str, Any] | None = None, guest: dict[str, Any] | None = None, **others: Any) -> Testbed:
    loadgen = others.pop("loadgen", {"fqdn": "loadgen.example", "test_iface": "eth1", "test_iface_mac": "b4:96:91:00:00:02"})
    sections = HostConfig(**{**HOST, **(host or {})}), GuestConfig(**{**GUEST, **(guest or {})}), LoadGenConfig(**loadgen)
    return Testbed(Path("autotest.conf"), *sections, **others)


def told(bed: Testbed, count: int, own: Own = BRIDGE) -> dict[str, str]:
    """What is wrong with so many guests, by key."""
    found = {f"[{problem.section}] {problem.key}": problem.message for problem in problems(bed, own, count)}
    assert len(found) == len(problems(bed, own, count))
    return found


# -- counting up -------------------------------------------------------------------------------------------


def test_the_first_guest_is_the_configurations_own_and_the_others_are_counted_up() -> None:
    bed = bed_of({"vhost_user_socket_path": "/run/vhost.sock", "vmux_socket_path": "/run/vmux"}, {"fqdn": "root@vm.example.org"})
    assert nth_guest(bed, 1) is bed
    second, third = nth_guest(bed, 2), nth_guest(bed, 3)
    assert (second.host.admin_tap, second.host.test_tap, second.host.test_macvtap) == ("tapa-2", "tapt-2", "mvt-2")
    assert (third.host.vhost_user_socket_path, third.host.vmux_socket_path) == ("/run/vhost-3.sock", "/run/vmux-3")
    assert (third.guest.admin_iface_mac, third.guest.test_iface_mac) == ("52:54:00:fb:00:62", "52:54:00:fa:00:62")
    assert second.guest.fqdn == "root@vm2.example.org" and third.loadgen == bed.loadgen
    assert (second.host.admin_bridge, second.host.test_bridge, second.host.test_iface) == ("adm", "br", "eth1")


@pytest.mark.parametrize(
    ("fqdn", "number", "expected"),
    [
        ("vm", 2, "vm2"),
        ("me@vm.example.org", 12, "me@vm12.example.org"),
        ("vm.example.org:2222", 2, "vm2.example.org:2222"),
        ("10.9.0.255", 2, "10.9.1.0"),
        ("root@10.9.0.2:2222", 4, "root@10.9.0.5:2222"),
        ("fe80::ff", 2, "fe80::100"),
        ("fe80::ff%br-admin", 2, "fe80::100%br-admin"),
        ("[fd00::1]:22", 10, "[fd00::a]:22"),
    ],
)
def test_a_name_gets_the_number_behind_its_first_label_and_an_address_is_counted_up(
    fqdn: str, number: int, expected: str
) -> None:
    assert nth_guest(bed_of(guest={"fqdn": fqdn}), number).guest.fqdn == expected


def test_what_looks_like_an_address_and_is_none_is_not_counted_up() -> None:
    with pytest.raises(ValueError, match=r"^\[guest\] fqdn: 10\.9\.300\.1 is neither a name nor an address"):
        nth_guest(bed_of(guest={"fqdn": "10.9.300.1"}), 2)


def test_the_kernels_arguments_name_each_guests_own_addresses() -> None:
    arguments = "ip=10.9.0.20::10.9.0.1:255.255.0.0 a=52:54:00:FB:00:60,10.9.0.20/16 not=10.9.0.200 t=52:54:00:fa:00:60"
    bed = bed_of(guest={"fqdn": "10.9.0.20", "kernel": "/k", "kernel_args": arguments})
    assert nth_guest(bed, 3).guest.kernel_args == (
        "ip=10.9.0.22::10.9.0.1:255.255.0.0 a=52:54:00:fb:00:62,10.9.0.22/16 not=10.9.0.200 t=52:54:00:fa:00:62"
    )


def test_further_guests_have_the_nics_of_the_list_and_those_behind_its_end_none() -> None:
    bed = bed_of(
        {"test_iface_addr": "0000:51:00.0", "guest_nics": (("0000:52:00.0", "b4:96:91:00:00:03"),)},
        {"kernel": "/k", "kernel_args": "nic=b4:96:91:00:00:01"},
    )
    second, third = nth_guest(bed, 2), nth_guest(bed, 3)
    assert (second.host.test_iface_addr, second.host.test_iface_mac) == ("0000:52:00.0", "b4:96:91:00:00:03")
    assert second.guest.kernel_args == "nic=b4:96:91:00:00:03"
    assert third.host.test_iface_addr is third.host.test_iface_mac is None


def test_a_name_that_is_too_long_is_missing_only_where_a_guest_needs_it() -> None:
    bed = bed_of({"test_macvtap": "macvtap-test"})
    assert nth_guest(bed, 99).host.test_macvtap == "macvtap-test-99" and nth_guest(bed, 100).host.test_macvtap is None
    assert told(bed, 100) == {} and list(told(bed, 100, MACVTAP)) == ["[host] test_macvtap"]


def test_names_and_numbers_belong_together() -> None:
    assert [number_of(name_of(number)) for number in (1, 2, 17, 1000)] == [1, 2, 17, 1000]
    assert [number_of(name) for name in ("guest1", "guest0", "guest02", "guests", "host", "guest2x")] == [None] * 6


def test_mac_addresses_end_with_their_vendors() -> None:
    assert mac_plus("52:54:00:fa:ff:ff", 1) == "52:54:00:fb:00:00"
    with pytest.raises(ValueError, match="leaves room for 2 guests"):
        mac_plus("52:54:00:ff:ff:fe", 2)
    with pytest.raises(ValueError, match="at most 15"):
        link_of("macvtap-test", 100)


# -- how far that goes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("own", [BRIDGE, MACVTAP, VHOST_USER], ids=lambda own: own.interface)
def test_a_thousand_guests_fit_where_names_are_short_and_the_network_is_large(own: Own) -> None:
    assert told(bed_of(guest={"fqdn": "10.9.0.2"}), 1000, own) == {}


@pytest.mark.parametrize(
    ("host", "guest", "own", "key", "most", "says"),
    [
        ({"admin_tap": "tap-of-admins"}, {}, BRIDGE, "[host] admin_tap", 9,
         "guest 10 would have the link tap-of-admins-10, and an interface name has at most 15 characters"),
        ({"test_tap": "tap-test-01"}, {}, BRIDGE, "[host] test_tap", 999, "the link tap-test-01-1000"),
        ({"test_tap": "abcdefghijklmno"}, {}, BRIDGE, "[host] test_tap", 1, "the link abcdefghijklmno-2"),
        ({"test_macvtap": "macvtap-test"}, {}, MACVTAP, "[host] test_macvtap", 99, "the link macvtap-test-100"),
        ({"test_iface": "enp129s0f0np0"}, {}, VHOST_USER, "[host] test_iface", 9, "the link enp129s0f0np0-10"),
        ({"test_iface": "enp129s0f0np01"}, {}, VHOST_USER, "[host] test_iface", 1, "the link enp129s0f0np01-2"),
        ({"test_bridge": "tapt-4"}, {}, BRIDGE, "[host] test_tap", 3, "the link tapt-4, which is [host] test_bridge"),
        ({"admin_bridge": "tapa-2"}, {}, MACVTAP, "[host] admin_tap", 1, "the link tapa-2, which is [host] admin_bridge"),
        ({"test_bridge": "eth1-7"}, {}, VHOST_USER, "[host] test_iface", 6, "the link eth1-7, which is [host] test_bridge"),
        ({"test_bridge": "eth1-1"}, {}, VHOST_USER, "[host] test_iface", 1, "guest 1 would have the link eth1-1"),
        ({"vhost_user_socket_path": f"/run/{'s' * 95}.sock"}, {}, VHOST_USER, "[host] vhost_user_socket_path", 9,
         "and a socket's path has at most 107 bytes"),
        ({}, {"test_iface_mac": "52:54:00:ff:ff:fe"}, BRIDGE, "[guest] test_iface_mac", 2,
         "guest 3 would get no MAC address behind 52:54:00:ff:ff:fe, those of 52:54:00 end before"),
        ({}, {"admin_iface_mac": "52:54:00:fa:00:5f"}, BRIDGE, "[guest] admin_iface_mac", 1,
         "guest 2 would get 52:54:00:fa:00:60, which is test_iface_mac of the first guest"),
        ({"test_iface_mac": "52:54:00:fa:00:64"}, {}, BRIDGE, "[guest] test_iface_mac", 4,
         "guest 5 would get 52:54:00:fa:00:64, which is [host] test_iface_mac"),
        ({"guest_nics": (("0000:52:00.0", "52:54:00:fb:00:61"),)}, {}, BRIDGE, "[guest] admin_iface_mac", 1,
         "guest 2 would get 52:54:00:fb:00:61, which is in [host] guest_nics"),
        ({"admin_bridge_ip_net": "10.9.0.1/24"}, {"fqdn": "10.9.0.250"}, BRIDGE, "[guest] fqdn", 5,
         "guest 6 would get no address of 10.9.0.0/24 behind 10.9.0.250, where 10.9.0.255 is the broadcast address"),
        ({"admin_bridge_ip_net": "10.9.0.0/31"}, {"fqdn": "10.9.0.1"}, BRIDGE, "[guest] fqdn", 1, "behind 10.9.0.1"),
        ({"admin_bridge_ip_net": "fd00::1/120"}, {"fqdn": "fd00::f0"}, BRIDGE, "[guest] fqdn", 16, "no address of fd00::/120"),
        ({"admin_bridge_ip_net": "10.9.0.9/24"}, {"fqdn": "root@10.9.0.2"}, BRIDGE, "[guest] fqdn", 7,
         "guest 8 would get 10.9.0.9, which is [host] admin_bridge_ip_net"),
        ({"test_bridge_ip_net": "10.9.0.4/24"}, {"fqdn": "10.9.0.2"}, BRIDGE, "[guest] fqdn", 2, "is [host] test_bridge_ip_net"),
        ({"fqdn": "10.8.0.5"}, {"fqdn": "10.8.0.2"}, BRIDGE, "[guest] fqdn", 3,
         "guest 4 would get 10.8.0.5, which is [host] fqdn"),
        ({}, {"fqdn": "255.255.255.250"}, BRIDGE, "[guest] fqdn", 6, "guest 7 would get no address behind"),
        ({"fqdn": "me@VM12.example"}, {}, BRIDGE, "[guest] fqdn", 11,
         "guest 12 would be called VM12.example, which is [host] fqdn"),
        ({}, {"fqdn": f"{'v' * 200}.{'example.org.' * 4}museum"}, BRIDGE, "[guest] fqdn", 1, "more than 255 bytes"),
        ({}, {}, VFIO, "[host] guest_nics", 1, "each guest gets a NIC of its own, and test_iface_addr and guest_nics name 1"),
        ({"guest_nics": (("0000:52:00.0", "b4:96:91:00:00:03"), ("0000:53:00.0", "b4:96:91:00:00:04"))}, {}, VFIO,
         "[host] guest_nics", 3, "name 3"),
        ({"test_iface_vfs": 8}, {}, FUNCTIONS, "[host] test_iface_vfs", 8, "each guest gets a virtual function, and there are 8"),
    ],
)  # fmt: skip
def test_what_ends_is_named_with_the_largest_number_that_works(
    host: dict[str, Any], guest: dict[str, Any], own: Own, key: str, most: int, says: str
) -> None:
    bed = bed_of(host, guest)
    found = told(bed, most + 1, own)
    assert list(found) == [key] and says in found[key], found
    guests = "1 guest" if most == 1 else f"{most} guests"
    assert found[key].endswith(f": room for at most {guests} with interface {own.interface}, not {most + 1}")
    assert told(bed, most, own) == {}


@pytest.mark.parametrize(
    ("host", "guest", "own"),
    [
        ({"test_tap": "abcdefghijklmno", "test_iface": "abcdefghijklmnp"}, {}, MACVTAP),
        ({"vmux_socket_path": f"/run/{'s' * 101}"}, {}, BRIDGE),
        ({"test_bridge": "tapt-04"}, {}, BRIDGE),
        ({"test_bridge": "tapt-4x"}, {}, BRIDGE),
        ({"fqdn": "vm02.example"}, {}, BRIDGE),
        ({"fqdn": "vm2.example.org"}, {}, BRIDGE),
        ({"fqdn": "vm1.example"}, {}, BRIDGE),
        ({"fqdn": "vm2.example", "netns": "elsewhere"}, {}, BRIDGE),
        ({"fqdn": "vm2.example", "ssh_config": "/other"}, {}, BRIDGE),
        ({"test_iface_mac": "52:54:00:fa:00:5f"}, {}, BRIDGE),
        ({}, {"fqdn": "10.7.255.254"}, BRIDGE),
    ],
)
def test_what_a_guest_does_not_meet_is_no_limit(host: dict[str, Any], guest: dict[str, Any], own: Own) -> None:
    assert told(bed_of(host, guest), 900, own) == {}


def test_loadgens_name_interface_and_mac_are_not_given_to_a_guest() -> None:
    bed = bed_of(loadgen={"fqdn": "vm3.example", "test_iface_mac": "52:54:00:fa:00:61", "test_iface": "tapt-2"})
    assert told(bed, 4) == {
        "[guest] test_iface_mac": "guest 2 would get 52:54:00:fa:00:61, which is [loadgen] test_iface_mac: "
        "room for at most 1 guest with interface bridge, not 4",
        "[guest] fqdn": "guest 3 would be called vm3.example, which is [loadgen] fqdn: "
        "room for at most 2 guests with interface bridge, not 4",
    }
    same_machine = bed_of({"fqdn": "localhost"}, loadgen={"fqdn": "localhost", "test_iface": "tapt-2"})
    assert "which is [loadgen] test_iface" in told(same_machine, 2)["[host] test_tap"]


def test_a_labs_addresses_are_counted_as_well() -> None:
    lab = LabConfig(guest_address="10.9.0.10/24", emulated_host=True, emulated_host_address="10.9.0.40/24")
    bed = bed_of({"admin_bridge_ip_net": "10.9.0.1/24"}, {"fqdn": "autotest-guest"}, lab=lab)
    assert list(told(bed, 30)) == [] and "is [lab] emulated_host_address" in told(bed, 31)["[lab] guest_address"]
    bed = dataclasses.replace(bed, lab=dataclasses.replace(lab, emulated_host=False))
    assert told(bed, 245) == {} and "10.9.0.255 is the broadcast address" in told(bed, 246)["[lab] guest_address"]


def test_a_key_is_named_once_with_the_least_that_it_allows() -> None:
    bed = bed_of({"test_tap": "tap-of-guests", "test_bridge": "tap-of-guests-3"})
    (message,) = told(bed, 2000).values()
    assert "room for at most 2 guests" in message


def test_a_virtual_function_that_no_guest_has_needs_no_mac_address() -> None:
    bed = bed_of({"test_iface_vfs": 8}, {"test_iface_mac": "52:54:00:ff:ff:fc"})
    assert told(bed, 1, FUNCTIONS) == told(bed, 4, FUNCTIONS) == {}
    (message,) = told(bed, 5, FUNCTIONS).values()
    assert "guest 5 would get no MAC address" in message
    assert message.endswith(": room for at most 4 guests with interface vfio, not 5")


def test_no_more_guests_than_the_limits_allow_can_be_counted_up() -> None:
    """The limits are computed: counting up must come to the same end."""
    for bed in (bed_of({"admin_tap": "tap-of-admin"}), bed_of(guest={"test_iface_mac": "52:54:00:ff:ff:f0"})):
        most = min(limit.most for limit in limits(bed, BRIDGE))
        nth_guest(bed, most)
        with pytest.raises(ValueError, match=r"^\[(host|guest)\] (admin_tap|test_iface_mac): "):
            nth_guest(bed, most + 1)


def test_looking_takes_no_longer_for_more_guests() -> None:
    start = time.perf_counter()
    for _ in range(100):
        problems(bed_of(), BRIDGE, MANY)
    assert time.perf_counter() - start < 2


# -- as the file has it ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nics", "says"),
    [
        ("51:00.0 b4:96:91:00:00:03", "0000:51:00.0 is already [host] test_iface_addr"),
        ("51:00.1 b4:96:91:00:00:01", "b4:96:91:00:00:01 is already [host] test_iface_mac"),
        ("51:00.1 B4:96:91:00:00:02", "b4:96:91:00:00:02 is already [loadgen] test_iface_mac"),
        ("51:00.1 52:54:00:fa:00:60", "52:54:00:fa:00:60 is already [guest] test_iface_mac"),
        ("51:00.1 52:54:00:fb:00:60", "52:54:00:fb:00:60 is already [guest] admin_iface_mac"),
        ("51:00.1 b4:96:91:00:00:03, 51:00.1 b4:96:91:00:00:04", "has the PCI address 0000:51:00.1 twice"),
        ("51:00.1", "is not a NIC: expected PCI address and MAC address"),
    ],
)
def test_a_nic_that_is_somebody_elses_already_is_refused(tmp_path: Path, nics: str, says: str) -> None:
    file = tmp_path / "autotest.conf"
    file.write_text(
        f"[host]\nfqdn=h\ntest_iface_addr=0000:51:00.0\ntest_iface_mac=b4:96:91:00:00:01\nguest_nics={nics}\n"
        "[guest]\nfqdn=g\ntest_iface_mac=52:54:00:fa:00:60\nadmin_iface_mac=52:54:00:fb:00:60\n"
        "[loadgen]\nfqdn=l\ntest_iface_mac=b4:96:91:00:00:02\n"
    )
    with pytest.raises(ConfigError) as caught:
        load_testbed(file, tmp_path)
    (problem,) = caught.value.problems
    assert (problem.section, problem.key) == ("host", "guest_nics") and says in problem.message


@pytest.mark.parametrize("name", ["autotest.conf", "configs/lab-ssh.conf", "configs/lab-iommu.conf", "configs/real-testbed.conf"])
def test_the_examples_have_room_for_many_guests(repository: Path, name: str) -> None:
    bed = load_testbed(repository / name, repository)
    for own in (BRIDGE, MACVTAP, VHOST_USER):
        assert told(bed, 40, own) == {}
