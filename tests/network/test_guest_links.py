"""What keeps the frames of several guests apart: entries of a bridge, links on one NIC, a bridge that keeps its address."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from autotest.config.testbed import GuestConfig, HostConfig, LoadGenConfig, Testbed
from autotest.errors import TestbedError
from autotest.interfaces import INTERFACE_KINDS
from autotest.network.links import Links
from autotest.remote.local import LocalTransport
from autotest.run.journal import Change
from autotest.servers.guest import GuestSettings
from autotest.servers.host import Host
from autotest.servers.server import Server
from autotest.servers.undoing import undo

MAC, OTHER_MAC = "52:54:00:fa:00:60", "52:54:00:fa:00:61"


def ip(netns: str, *arguments: str) -> str:
    return subprocess.run(["ip", "-n", netns, *arguments], check=True, capture_output=True, text=True).stdout


@pytest.fixture
def server(netns: str) -> Server:
    """A server in a namespace with a veth pair: nic, with its other end peer, which is up."""
    ip(netns, "link", "add", "nic", "type", "veth", "peer", "name", "peer")
    ip(netns, "link", "set", "peer", "up")
    return Server("host", HostConfig(fqdn="localhost", netns=netns))


@pytest.fixture
def links(server: Server) -> Links:
    return server.links


def entries(netns: str, port: str, mac: str) -> list[tuple[str, str]]:
    """Master and state of the bridge's entries for the address at that port."""
    command = ["bridge", "-n", netns, "-json", "fdb", "show", "dev", port]
    shown = subprocess.run(command, check=True, capture_output=True, text=True)
    return [(entry.get("master", ""), entry.get("state", "")) for entry in json.loads(shown.stdout) if entry["mac"] == mac]


def address(links: Links, name: str) -> str:
    return str(links.require(name)["address"])


def kinds(server: Server) -> list[str]:
    return [change.kind for change in server.journal.standing]


# -- forwarding ---------------------------------------------------------------------------------------------


@pytest.fixture
def with_tap(links: Links) -> Links:
    """A bridge with a tap that is its port."""
    links.add_bridge("br")
    links.add_tap("tap", "br")
    return links


def test_a_bridge_is_told_once_where_an_address_is_and_does_not_forget_it(with_tap: Links, server: Server, netns: str) -> None:
    for _ in range(2):
        with_tap.add_forwarding("tap", MAC)
    assert entries(netns, "tap", MAC) == [("br", "static")]
    assert kinds(server).count("forwarding") == 1
    assert dict(server.journal.standing[-1].details) == {"name": "tap", "mac": MAC}


def test_an_address_is_the_same_whatever_its_letters(with_tap: Links, server: Server, netns: str) -> None:
    with_tap.add_forwarding("tap", MAC.upper())
    with_tap.add_forwarding("tap", MAC)
    assert entries(netns, "tap", MAC) == [("br", "static")] and kinds(server).count("forwarding") == 1
    assert with_tap.remove_forwarding("tap", MAC.upper()) is True


def test_what_a_bridge_was_told_is_gone_when_it_is_undone_and_to_undo_it_again_does_no_harm(
    with_tap: Links, server: Server, netns: str
) -> None:
    with_tap.add_forwarding("tap", MAC)
    with_tap.add_forwarding("tap", OTHER_MAC)
    change = Change(9, "host", "forwarding", {"name": "tap", "mac": MAC})
    assert undo(server, change) == "host: forwarding tap: removed"
    assert entries(netns, "tap", MAC) == [] and entries(netns, "tap", OTHER_MAC) == [("br", "static")]
    assert undo(server, change) is None
    server.links.delete("tap", "tap")
    assert undo(server, change) is None and with_tap.remove_forwarding("tap", OTHER_MAC) is False
    server.journal.undo()
    assert server.links.show("br") is None


def test_an_address_that_the_bridge_learned_at_another_port_becomes_the_guests_for_good(
    with_tap: Links, server: Server, netns: str
) -> None:
    with_tap.add_port("br", "nic")
    subprocess.run(["bridge", "-n", netns, "fdb", "replace", MAC, "dev", "nic", "master", "dynamic"], check=True)
    with_tap.add_forwarding("tap", MAC)
    assert entries(netns, "tap", MAC) == [("br", "static")] and entries(netns, "nic", MAC) == []


def test_an_entry_that_the_bridge_only_learned_is_not_taken_for_one_that_it_was_told(with_tap: Links, netns: str) -> None:
    with_tap.add_port("br", "nic")
    subprocess.run(["bridge", "-n", netns, "fdb", "replace", MAC, "dev", "nic", "master", "dynamic"], check=True)
    assert entries(netns, "nic", MAC) == [("br", "")]
    assert with_tap.remove_forwarding("nic", MAC) is False
    with_tap.add_forwarding("nic", MAC)
    assert entries(netns, "nic", MAC) == [("br", "static")]


def test_guests_in_a_bridge_have_an_entry_each_at_their_own_tap(netns: str, server: Server, tmp_path: Path) -> None:
    host = Host(a_testbed(netns))
    settings = GuestSettings("pcvm", INTERFACE_KINDS["bridge"], "")
    with host.journal.scope():
        host.networks_up(settings, 3)
        for number, port in ((1, "tap"), (2, "tap-2"), (3, "tap-3")):
            mac = str(host.machine(number).testbed.guest.test_iface_mac)
            assert {each: entries(netns, each, mac) for each in ("tap", "tap-2", "tap-3")} == {
                "tap": [], "tap-2": [], "tap-3": [], port: [("br", "static")],
            }  # fmt: skip
            assert host.links.require(port)["master"] == "br"
            assert host.links.require(port.replace("tap", "admtap"))["master"] == "adm"
        neighbours = ip(netns, "neighbour", "show", "dev", "adm", "nud", "permanent")
        for number in (1, 2, 3):
            assert f"10.9.0.{number + 1} lladdr 52:54:00:fa:01:0{number} PERMANENT" in neighbours
    assert {link["ifname"] for link in host.links.all()} == {"lo", "nic", "peer"}


def a_testbed(netns: str) -> Testbed:
    host = HostConfig(
        fqdn="localhost", netns=netns, test_iface="nic", test_bridge="br", test_tap="tap", test_macvtap="mvt",
        admin_bridge="adm", admin_tap="admtap", admin_bridge_ip_net="10.9.0.1/24",
    )  # fmt: skip
    guest = GuestConfig(fqdn="10.9.0.2", test_iface_mac=MAC, admin_iface_mac="52:54:00:fa:01:01")
    return Testbed(Path("t"), host, guest, LoadGenConfig(fqdn="l"))


# -- links on the NIC ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["macvlan", "macvtap"])
def test_a_link_on_the_nic_has_its_guests_address_and_is_made_once(links: Links, server: Server, netns: str, kind: str) -> None:
    add = getattr(links, f"add_{kind}")
    for _ in range(2):
        add("nic-2", "nic", MAC)
    link = links.require("nic-2")
    assert (link["linkinfo"]["info_kind"], link["linkinfo"]["info_data"]["mode"]) == (kind, "bridge")
    assert (link["link"], link["address"]) == ("nic", MAC) and "UP" in link["flags"]
    assert kinds(server) == ["up", "link"]
    server.journal.undo()
    assert links.show("nic-2") is None and "UP" not in links.require("nic")["flags"]


@pytest.mark.parametrize("kind", ["macvlan", "macvtap"])
def test_a_link_on_the_nic_with_another_address_or_of_another_kind_is_refused(links: Links, netns: str, kind: str) -> None:
    add = getattr(links, f"add_{kind}")
    ip(netns, "link", "add", "link", "nic", "name", "theirs", "address", OTHER_MAC, "type", kind, "mode", "bridge")
    with pytest.raises(TestbedError, match=f"^host: theirs has the address {OTHER_MAC}, not {MAC}: delete it first$"):
        add("theirs", "nic", MAC)
    with pytest.raises(TestbedError, match="^host: theirs is on nic, not peer: delete it first$"):
        add("theirs", "peer", OTHER_MAC)
    other = "macvtap" if kind == "macvlan" else "macvlan"
    with pytest.raises(TestbedError, match=f"^host: theirs is {kind}, not {other}"):
        getattr(links, f"add_{other}")("theirs", "nic", OTHER_MAC)


def test_guests_that_share_a_nic_have_a_macvtap_each(netns: str, server: Server) -> None:
    host = Host(a_testbed(netns))
    with host.journal.scope():
        host.networks_up(GuestSettings("pcvm", INTERFACE_KINDS["macvtap"], ""), 2)
        found = {name: address(host.links, name) for name in ("mvt", "mvt-2")}
        assert found == {"mvt": MAC, "mvt-2": OTHER_MAC}
    assert {link["ifname"] for link in host.links.all()} == {"lo", "nic", "peer"}


# -- the bridge's own address --------------------------------------------------------------------------------


@pytest.fixture
def low(netns: str, server: Server) -> Iterator[str]:
    """A link with a lower MAC address than any bridge gets by chance."""
    ip(netns, "link", "add", "low", "address", "02:00:00:00:00:01", "type", "veth", "peer", "name", "lowpeer")
    return "low"


@pytest.mark.parametrize("keeps_mac", [True, False])
def test_a_bridge_keeps_its_address_when_a_port_has_a_lower_one_where_that_was_asked_for(
    links: Links, low: str, keeps_mac: bool
) -> None:
    links.add_bridge("br", "10.1.0.1/24", keeps_mac=keeps_mac)
    before = address(links, "br")
    links.add_port("br", low)
    assert address(links, "br") == (before if keeps_mac else "02:00:00:00:00:01")
    assert before != "02:00:00:00:00:01"


def test_what_is_known_of_a_guest_on_the_admin_bridge_stays_when_the_next_one_comes(netns: str, server: Server) -> None:
    host = Host(a_testbed(netns))
    settings = GuestSettings("pcvm", INTERFACE_KINDS["macvtap"], "")
    with host.journal.scope():
        host.networks_up(settings)
        before = address(host.links, "adm")
        ip(netns, "link", "add", "low", "address", "02:00:00:00:00:01", "type", "veth", "peer", "name", "lowpeer")
        host.links.add_port("adm", "low")
        assert address(host.links, "adm") == before
        assert "10.9.0.2 lladdr 52:54:00:fa:01:01" in ip(netns, "neighbour", "show", "dev", "adm", "nud", "permanent")


def test_a_bridge_of_the_user_keeps_the_address_that_the_kernel_gives_it(links: Links, netns: str, low: str) -> None:
    ip(netns, "link", "add", "name", "br", "type", "bridge")
    links.add_bridge("br", keeps_mac=True)
    links.add_port("br", low)
    assert address(links, "br") == "02:00:00:00:00:01"


@pytest.mark.parametrize("answer", ["5", "[5]", "{}", "no JSON"])
def test_an_answer_of_the_bridge_program_that_is_none_is_an_error_of_ours(answer: str) -> None:
    from hostile import FakeMachine, link_answer

    def said(command: Any) -> str:
        return answer if command[0] == "bridge" else link_answer("tap")

    links = Server("far", HostConfig(fqdn="far"), FakeMachine(said)).links
    for use in (lambda: links.add_forwarding("tap", MAC), lambda: links.remove_forwarding("tap", MAC)):
        with pytest.raises(TestbedError, match="^far: ip answers what iproute2 does not"):
            use()


def test_a_local_transport_runs_the_bridge_program_in_the_namespace(netns: str, with_tap: Links) -> None:
    """The entries of the machine itself are somebody else's."""
    with_tap.add_forwarding("tap", MAC)
    outside = LocalTransport("here").run(["bridge", "-json", "fdb", "show"]).stdout
    assert MAC not in outside


def test_the_bridge_program_is_run_as_root_since_others_may_not_find_it() -> None:
    """Debian has it in /sbin, where a user who logs in over SSH does not look."""
    from hostile import FakeMachine, link_answer

    asked: list[tuple[str, bool]] = []

    class Machine(FakeMachine):
        def argv(self, command: Sequence[str], *, sudo: bool = False, **options: Any) -> list[str]:
            asked.append((command[0], sudo))
            return super().argv(command, sudo=sudo, **options)

    machine = Machine(lambda command: "[]" if command[0] == "bridge" else link_answer("tap"))
    links = Server("far", HostConfig(fqdn="far"), machine).links
    links.add_forwarding("tap", MAC)
    links.remove_forwarding("tap", MAC)
    assert [is_root for program, is_root in asked if program == "bridge"] == [True] * 3
