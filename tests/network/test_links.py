"""Real links in a namespace: idempotent, never somebody else's."""

from __future__ import annotations

import dataclasses
import json
import os
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hostile import FakeMachine

from autotest.config.testbed import GuestConfig, HostConfig, LoadGenConfig, Testbed
from autotest.errors import TestbedError, WaitTimeout
from autotest.interfaces import INTERFACE_KINDS, InterfaceOptions, kernel
from autotest.network.links import Links
from autotest.remote.local import LocalTransport

MAC = "52:54:00:fa:00:60"


def ip(netns: str, *arguments: str) -> str:
    return subprocess.run(["ip", "-n", netns, *arguments], check=True, capture_output=True, text=True).stdout


@pytest.fixture
def links(netns: str) -> Links:
    """The links of a namespace that has a veth pair: nic, with its other end peer."""
    ip(netns, "link", "add", "nic", "type", "veth", "peer", "name", "peer")
    ip(netns, "link", "set", "peer", "up")
    return Links(LocalTransport("host", netns))


@pytest.fixture
def testbed(netns: str) -> Testbed:
    host = HostConfig(
        fqdn="localhost", netns=netns, test_iface="nic", test_bridge="br", test_tap="tap", test_macvtap="mvt",
        test_iface_mac="52:54:00:aa:00:01", admin_bridge="adm", admin_tap="admtap", admin_bridge_ip_net="10.9.0.1/24",
    )  # fmt: skip
    return Testbed(Path("t"), host, GuestConfig(fqdn="10.9.0.2", test_iface_mac=MAC), LoadGenConfig(fqdn="l"))


def names(netns: str) -> set[str]:
    return {link["ifname"] for link in json.loads(ip(netns, "-json", "link", "show"))}


def info(links: Links, name: str) -> dict[str, Any]:
    link = links.show(name)
    assert link
    return link


def test_what_is_not_there_is_none_and_requiring_it_is_an_error(links: Links) -> None:
    assert links.show("nothing") is None
    with pytest.raises(TestbedError, match="host: there is no network interface nothing"):
        links.require("nothing")


def test_the_frames_that_a_link_sent_and_received_are_counted(links: Links, netns: str) -> None:
    for name, address in (("nic", "10.7.0.1/24"), ("peer", "10.7.0.2/24")):
        ip(netns, "address", "add", address, "dev", name)
        ip(netns, "link", "set", name, "up", "arp", "off")
    before = links.frames("nic")
    send = "import socket; s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW); s.bind(('nic', 0)); [s.send(b'\\2' * 60) for _ in range(100)]"
    subprocess.run(["ip", "netns", "exec", netns, sys.executable, "-c", send], check=True)
    after = links.frames("nic")
    assert before and after
    assert 100 <= after[0] - before[0] < 110 and after[1] - before[1] < 10  # IPv6 says hello, too
    assert links.frames("nothing") is None


@pytest.mark.parametrize("answer", ["", "[]", "[{}]", "[5]", '[{"stats64": null}]', '[{"stats64": {"tx": {"packets": "9"}, "rx": {"packets": 1}}}]',
                                    '[{"stats64": {"tx": [], "rx": 3}}]', '[{"stats64": {"tx": {"packets": true}, "rx": {"packets": true}}}]'])  # fmt: skip
def test_counts_that_are_none_are_unknown_or_an_error(answer: str) -> None:
    links = Links(FakeMachine(lambda command: answer))
    try:
        assert links.frames("nic") is None
    except TestbedError as error:
        assert "what iproute2 does not" in str(error)


def test_a_bridge_forwards_at_once_and_is_silent_and_has_its_address(links: Links, netns: str) -> None:
    for _ in range(2):
        links.add_bridge("br", "10.0.0.1/24")
    data = info(links, "br")["linkinfo"]["info_data"]
    assert data["forward_delay"] == 0 and data["mcast_snooping"] == 0
    assert "UP" in info(links, "br")["flags"]
    assert ip(netns, "-4", "-brief", "address", "show", "br").split()[2:] == ["10.0.0.1/24"]


def test_tap_and_nic_become_ports_and_twice_is_fine(links: Links) -> None:
    links.add_bridge("br")
    for _ in range(2):
        links.add_port("br", "nic")
        links.add_tap("tap", "br")
    assert info(links, "nic")["master"] == info(links, "tap")["master"] == "br"
    assert info(links, "tap")["linkinfo"]["info_data"]["type"] == "tap"


def test_the_port_of_another_bridge_is_refused(links: Links) -> None:
    links.add_bridge("br")
    links.add_bridge("other")
    links.add_port("other", "nic")
    with pytest.raises(TestbedError, match="already a port of other"):
        links.add_port("br", "nic")
    links.release_port("br", "nic")
    assert info(links, "nic")["master"] == "other"
    for _ in range(2):
        links.release_port("other", "nic")
    assert "master" not in info(links, "nic")


@pytest.mark.parametrize("kind", ["bridge", "tap", "macvtap"])
def test_a_link_of_another_kind_under_our_name_is_refused(links: Links, netns: str, kind: str) -> None:
    ip(netns, "link", "add", "name", "mine", "type", "veth", "peer", "name", "minepeer")
    links.add_bridge("br")
    make: dict[str, Callable[[], None]] = {
        "bridge": lambda: links.add_bridge("mine"),
        "tap": lambda: links.add_tap("mine", "br"),
        "macvtap": lambda: links.add_macvtap("mine", "nic", MAC),
    }
    with pytest.raises(TestbedError, match="mine is veth, not"):
        make[kind]()


def test_a_tun_is_no_tap(links: Links, netns: str) -> None:
    ip(netns, "tuntap", "add", "dev", "tap", "mode", "tun")
    links.add_bridge("br")
    with pytest.raises(TestbedError, match="tap is"):
        links.add_tap("tap", "br")


def test_a_macvtap_has_the_mac_of_its_guest_and_a_device(links: Links) -> None:
    for _ in range(2):
        links.add_macvtap("mvt", "nic", MAC)
        assert info(links, "mvt")["address"] == MAC
    with pytest.raises(TestbedError, match="mvt has the address"):
        links.add_macvtap("mvt", "nic", "52:54:00:fa:00:61")
    assert info(links, "mvt")["linkinfo"]["info_data"]["mode"] == "bridge"
    path, major, minor = links.macvtap_device("mvt")
    assert path == f"/dev/tap{info(links, 'mvt')['ifindex']}"
    if os.path.exists(path):  # the kernel makes the node, but not at once
        device = os.stat(path)
        assert stat.S_ISCHR(device.st_mode)
    assert major > 0 and minor > 0


def test_a_macvtap_on_another_nic_is_refused(links: Links, netns: str) -> None:
    ip(netns, "link", "add", "other", "type", "veth", "peer", "name", "otherpeer")
    links.add_macvtap("mvt", "other", MAC)
    with pytest.raises(TestbedError, match="mvt.*other"):
        links.add_macvtap("mvt", "nic", MAC)


def test_a_nic_that_is_not_there_is_an_error_that_names_it(links: Links) -> None:
    links.add_bridge("br")
    with pytest.raises(TestbedError, match="no network interface eth9"):
        links.add_port("br", "eth9")
    with pytest.raises(TestbedError, match="no network interface eth9"):
        links.add_macvtap("mvt", "eth9", MAC)


def test_carrier_is_waited_for_and_its_absence_has_a_deadline(links: Links, netns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    links.up("nic")
    links.wait_for_carrier("nic")
    ip(netns, "link", "set", "peer", "down")
    monkeypatch.setattr("autotest.network.links._CARRIER_TIMEOUT", 0.2)
    start = time.monotonic()
    with pytest.raises(WaitTimeout, match="host: carrier of nic"):
        links.wait_for_carrier("nic")
    assert time.monotonic() - start < 2


# -- interface kinds ---------------------------------------------------------------------------------------


def state(netns: str) -> dict[str, tuple[Any, ...]]:
    """What of the links of a namespace must be as it was found."""
    shown = json.loads(ip(netns, "-json", "-details", "address", "show"))
    return {
        link["ifname"]: (
            "UP" in link["flags"],
            link.get("master"),
            # a bridge takes the address of one of its ports by itself
            link.get("address") if link.get("linkinfo", {}).get("info_kind") != "bridge" else None,
            link.get("mtu"),
            [info["local"] for info in link["addr_info"] if info["family"] == "inet"],
        )
        for link in shown
    }


@pytest.mark.parametrize("was_up", [True, False])
@pytest.mark.parametrize("guest", [True, False])
@pytest.mark.parametrize("name", [kind.name for kind in kernel.KINDS])
def test_each_kind_is_set_up_twice_and_undone_to_what_it_was(
    links: Links, netns: str, testbed: Testbed, name: str, guest: bool, was_up: bool
) -> None:
    from autotest.servers.host import Host

    kind = INTERFACE_KINDS[name]
    if was_up:
        links.up("nic")
    before = state(netns)
    host = Host(testbed)
    with host.test_network(kind, guest):
        kind.set_up(host, guest)
        if guest and kind.nic:
            kind.attach(host.machine(1), InterfaceOptions())
        assert "UP" in info(links, kind.dut_iface(testbed.host) or "nic")["flags"]
        assert ("tap" in names(netns)) == (name.startswith("bridge") and guest)
    assert state(netns) == before
    assert not host.journal.standing


def test_a_bridge_that_the_user_has_already_is_used_and_stays_as_it_was(netns: str, links: Links, testbed: Testbed) -> None:
    from autotest.servers.host import Host

    for bridge in ("br", "adm"):
        ip(netns, "link", "add", "name", bridge, "type", "bridge")
    ip(netns, "address", "add", "10.1.2.3/24", "dev", "adm")
    ip(netns, "link", "set", "nic", "master", "br")
    before = state(netns)
    host = Host(testbed)
    with host.admin_network(), host.test_network(INTERFACE_KINDS["bridge"], guest=True):
        INTERFACE_KINDS["bridge"].attach(host.machine(1), InterfaceOptions())
        assert state(netns)["adm"][4] == ["10.1.2.3", "10.9.0.1"]
        assert "tap" in names(netns)
    assert state(netns) == before


@pytest.mark.parametrize(("name", "link"), [("bridge", "br"), ("bridge", "tap"), ("macvtap", "mvt")])
def test_a_foreign_link_under_our_name_survives_the_refused_set_up_and_its_undoing(
    links: Links, netns: str, testbed: Testbed, name: str, link: str
) -> None:
    from autotest.servers.host import Host

    ip(netns, "link", "add", "name", link, "type", "veth", "peer", "name", "minepeer")
    host = Host(testbed)
    with pytest.raises(TestbedError):
        with host.test_network(INTERFACE_KINDS[name], guest=True):
            INTERFACE_KINDS[name].attach(host.machine(1), InterfaceOptions())
            raise AssertionError("it was set up")
    assert info(links, link)["linkinfo"]["info_kind"] == "veth"


@pytest.mark.parametrize("before", ["", "52:54:00:00:00:99", "52:54:00:fa:00:5f"])
def test_a_neighbour_entry_is_as_it_was_afterwards(links: Links, netns: str, testbed: Testbed, before: str) -> None:
    from autotest.servers.guest import GuestSettings
    from autotest.servers.host import Host

    ip(netns, "link", "add", "name", "adm", "type", "bridge")
    ip(netns, "link", "set", "adm", "up")
    ip(netns, "address", "add", "10.9.0.1/24", "dev", "adm")
    if before:
        ip(netns, "neighbour", "add", "10.9.0.2", "lladdr", before, "dev", "adm", "nud", "permanent")
    guest = dataclasses.replace(testbed.guest, admin_iface_mac="52:54:00:fa:00:5f")
    host = Host(dataclasses.replace(testbed, guest=guest))
    with host.admin_network():
        host.networks_up(GuestSettings("pcvm", INTERFACE_KINDS["bridge"], ""))
        assert "52:54:00:fa:00:5f PERMANENT" in ip(netns, "neighbour", "show", "to", "10.9.0.2")
    assert f"lladdr {before} PERMANENT" in ip(netns, "neighbour", "show", "to", "10.9.0.2") or not before
    assert before or "PERMANENT" not in ip(netns, "neighbour", "show", "to", "10.9.0.2")


def test_the_admin_network_goes_up_and_down_and_spares_foreign_links(links: Links, netns: str, testbed: Testbed) -> None:
    from autotest.servers.guest import GuestSettings
    from autotest.servers.host import Host

    host = Host(testbed)
    with host.admin_network():
        host.networks_up(GuestSettings("pcvm", INTERFACE_KINDS["bridge"], ""))
        assert names(netns) >= {"adm", "admtap"}
        host.admin_network_up()
    assert not names(netns) & {"adm", "admtap"}
    ip(netns, "link", "add", "name", "adm", "type", "veth", "peer", "name", "minepeer")
    with pytest.raises(TestbedError), host.admin_network():
        raise AssertionError("it was set up")
    assert "adm" in names(netns)


@pytest.mark.parametrize(
    ("interface", "machine", "mac"),
    [
        ("pnic", "host", "52:54:00:aa:00:01"),
        ("bridge", "host", "52:54:00:aa:00:01"),
        ("macvtap", "host", MAC),
        ("bridge", "pcvm", MAC),
        ("macvtap", "microvm", MAC),
    ],
)
def test_the_load_is_sent_to_the_mac_of_the_device_under_test(testbed: Testbed, interface: str, machine: str, mac: str) -> None:
    assert INTERFACE_KINDS[interface].dut_mac(machine, testbed) == mac
