"""To iproute2 a name is only a name: it stands behind the keyword that says so. And what iproute2 says may be anything."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Callable, Sequence

import pytest
from examples import examples
from hostile import FakeMachine, answers, json_values, link_answer, texts
from hypothesis import given, settings
from hypothesis import strategies as st

from autotest.errors import AutotestError, CommandError, TestbedError
from autotest.network.links import Links
from autotest.remote.local import LocalTransport

#: Behind these iproute2 takes one argument as it is: ip-link(8), ip-address(8), ip-neighbour(8), ip-tuntap(8).
KEYWORDS = {"dev", "name", "link", "master", "address", "lladdr", "local", "to", "obj", "sec"}

MAC = "52:54:00:fa:00:60"
NET = "10.0.0.1/24"

MARK = "\N{END OF PROOF}"  # tells a hostile value from what is ours

Use = Callable[[Links, str], object]
USES: dict[str, Use] = {
    "bridge": lambda links, name: links.add_bridge(name, NET),
    "no address": lambda links, name: links.remove_address(name, NET),
    "tap": lambda links, name: links.add_tap(name, "br"),
    "tap of": lambda links, name: links.add_tap("tap", name),
    "port": lambda links, name: links.add_port("br", name),
    "port of": lambda links, name: links.add_port(name, "nic"),
    "no port": lambda links, name: links.release_port("br", name),
    "macvtap": lambda links, name: links.add_macvtap(name, "nic", MAC),
    "macvtap on": lambda links, name: links.add_macvtap("mvt", name, MAC),
    "macvtap with": lambda links, name: links.add_macvtap("mvt", "nic", name),
    "up": lambda links, name: links.up(name),
    "down": lambda links, name: links.down(name),
    "carrier": lambda links, name: links.require_carrier(name),
    "delete": lambda links, name: links.delete(name, "bridge"),
    "neighbour": lambda links, name: links.set_neighbour(name, "10.0.0.2", MAC),
    "neighbour with": lambda links, name: links.set_neighbour("nic", name, name),
    "no neighbour": lambda links, name: links.restore_neighbour(name, "10.0.0.2", MAC, ""),
    "no neighbour of": lambda links, name: links.restore_neighbour("nic", name, MAC, MAC),
    "xdp": lambda links, name: links.attach_xdp(name, "xdpgeneric", "/x.o", "xdp"),
    "xdp of": lambda links, name: links.attach_xdp("nic", "xdpgeneric", name, name),
    "no xdp": lambda links, name: links.detach_xdp(name, "xdpgeneric"),
    "has xdp": lambda links, name: links.has_xdp(name),
    "device": lambda links, name: links.macvtap_device(name),
}


def named(command: Sequence[str]) -> str:
    """The link that a command is about."""
    return command[command.index("dev") + 1]


@settings(max_examples=examples(12))
@given(texts, st.sampled_from([None, "bridge", "tun", "macvtap"]), st.booleans())
@pytest.mark.parametrize("use", USES)
def test_a_hostile_name_is_one_argument_behind_its_keyword(use: str, name: str, kind: str | None, up: bool) -> None:
    name += MARK

    def answer(command: Sequence[str]) -> str | int:
        if "link" in command and "show" in command:
            if kind is None and named(command) == name:
                return 1
            of = named(command)
            data = {"info_kind": kind, "info_data": {"type": "tap"}} if kind else {}
            return link_answer(of, flags=["UP"] if up else [], linkinfo=data, xdp={"mode": 2, "prog": {"id": 1}}, link="nic")
        if "neighbour" in command:
            return '[{"dst": "10.0.0.2"}]'
        return '[{"addr_info": [{"local": "10.0.0.1", "prefixlen": 24}]}]' if "-json" in command else ""

    machine = FakeMachine(answer)
    with contextlib.suppress(AutotestError):
        USES[use](Links(machine), name)
    assert machine.commands
    for command in machine.commands:
        if command[0] == "ip":
            positions = [index for index, word in enumerate(command) if MARK in word]
            assert all(command[index] == name and command[index - 1] in KEYWORDS for index in positions), command
        else:
            assert command[1] == "--" and all(path.startswith("/sys/class/net/") for path in command[2:])


@pytest.mark.parametrize("name", ["-x", "--help", "dev", "up", "help", "if1", "a b", "$(x)", ""])
def test_a_real_ip_takes_a_hostile_name_for_a_link_that_is_not_there(shared_netns: str, name: str) -> None:
    links = Links(LocalTransport("host", shared_netns))
    before = links.show("lo")
    assert links.show(name) is None
    assert links.delete(name, "bridge") is links.down(name) is links.release_port("br", name) is False
    for use in (links.up, links.require_carrier):
        with pytest.raises(TestbedError, match="there is no network interface"):
            use(name)
    assert links.show("lo") == before


@pytest.mark.parametrize("name", ["dev", "up", "address", "$(reboot)", "-x", "a;b"])
def test_a_link_can_have_a_hostile_name(netns: str, name: str) -> None:
    links = Links(LocalTransport("host", netns))
    links.add_bridge(name, NET)
    links.add_tap("tap", name)
    links.set_neighbour(name, "10.0.0.2", MAC)
    assert links.require("tap")["master"] == name
    assert links.restore_neighbour(name, "10.0.0.2", MAC, "") and links.remove_address(name, NET)
    assert links.release_port(name, "tap") and links.delete("tap", "tap") and links.delete(name, "bridge")
    left = json.loads(subprocess.run(["ip", "-n", netns, "-json", "link"], capture_output=True, check=True).stdout)
    assert [link["ifname"] for link in left] == ["lo"]


def test_an_address_that_is_a_keyword_is_no_keyword(shared_netns: str) -> None:
    links = Links(LocalTransport("host", shared_netns))
    with pytest.raises(CommandError, match='expected rather than "dev"'):
        links.set_neighbour("lo", "dev", MAC)


#: JSON of the right shape in the main, with values that are not.
link_json = st.lists(
    st.dictionaries(
        st.sampled_from(["ifname", "altnames", "flags", "master", "link", "address", "linkinfo", "xdp", "addr_info"]),
        st.one_of(
            json_values,
            st.dictionaries(st.sampled_from(["info_kind", "info_data", "mode", "prog", "attached"]), json_values, max_size=3),
            st.lists(st.dictionaries(st.sampled_from(["local", "prefixlen", "mode", "prog"]), json_values, max_size=2), max_size=2),
        ),
        max_size=5,
    ).map(lambda link: {"ifname": "nic"} | link),
    max_size=2,
)  # fmt: skip


@settings(max_examples=examples(400))
@given(st.sampled_from(sorted(USES)), st.one_of(answers, json_values.map(json.dumps), link_json.map(json.dumps)))
def test_an_answer_that_iproute2_does_not_give_is_an_error_of_ours(use: str, answer: str) -> None:
    machine = FakeMachine(lambda command: answer)
    with contextlib.suppress(AutotestError):
        USES[use](Links(machine), "nic")


@pytest.mark.parametrize("answer", ["", "[]", "[{}]", "[{},{}]"])
def test_no_link_in_the_answer_is_no_link(answer: str) -> None:
    assert Links(FakeMachine(lambda command: answer)).show("nic") is None


def test_an_answer_about_another_link_is_not_believed() -> None:
    with pytest.raises(TestbedError, match="far: ip answers what iproute2 does not: .*eth0"):
        Links(FakeMachine(lambda command: link_answer("eth0"))).show("nic")
    assert Links(FakeMachine(lambda command: link_answer("eth0", altnames=["nic"]))).show("nic")


@pytest.mark.parametrize(
    ("listed", "number"),
    [
        ("", ""),
        ("tap1\ntap2", "1:2"),
        ("../../etc", "1:2"),
        ("tap1", ""),
        ("tap1", "1"),
        ("tap1", "1:2:3"),
        ("tap1", "-1:2"),
        ("x", "1:2"),
    ],
)
def test_a_macvtap_without_a_device_is_an_error_of_ours(listed: str, number: str) -> None:
    machine = FakeMachine(lambda command: listed if command[0] == "ls" else number)
    with pytest.raises(TestbedError, match="names no device of a macvtap|holds no device number"):
        Links(machine).macvtap_device("mvt")


@pytest.mark.parametrize(
    "xdp",
    [
        {"mode": 9, "prog": {}},
        {"mode": 2},
        {"mode": 2, "prog": None},
        {"mode": [], "prog": {}},
        {"attached": 5},
        {"attached": [3]},
    ],
)
def test_an_xdp_program_that_iproute2_does_not_tell_of_is_an_error_of_ours(xdp: object) -> None:
    with pytest.raises(TestbedError, match="ip answers what iproute2 does not"):
        Links(FakeMachine(lambda command: link_answer("nic", xdp=xdp))).has_xdp("nic")


@pytest.mark.parametrize(
    "addresses", [5, None, [5], [{}], [{"local": "x", "prefixlen": 1}], [{"local": "10.0.0.1", "prefixlen": 99}]]
)
def test_an_address_that_is_none_is_an_error_of_ours(addresses: object) -> None:
    machine = FakeMachine(lambda command: link_answer("nic", addr_info=addresses))
    with pytest.raises(TestbedError, match="ip answers what iproute2 does not"):
        Links(machine).remove_address("nic", NET)
