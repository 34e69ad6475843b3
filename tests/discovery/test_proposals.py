"""What is proposed: names and addresses that collide with nothing, ends of one wire, tests that can be measured."""

from __future__ import annotations

import json
from dataclasses import replace
from ipaddress import ip_network
from pathlib import Path

import pytest
from looked_at import LOADGEN_MAC, bare, machine, nic, plan

from autotest.config import values
from autotest.discovery.looking import _neighbours
from autotest.discovery.machine import other_ends, wired_together
from autotest.discovery.proposals import (
    admin_network,
    free_name,
    guest_address,
    guest_macs,
    values_of_testbed,
    values_of_tests,
    warnings,
)

RECORDED = Path(__file__).parent / "recorded"


def names(nics) -> list[str]:
    return [nic.name for nic in nics]


# -- the wire ----------------------------------------------------------------------------------------------


def test_lldp_tells_which_nics_are_wired_together() -> None:
    """As lldpd 1.0.16 heard it over two crossed wires: the first port of each is at the second one of the other."""
    heard = {role: _neighbours((RECORDED / f"lldpctl-{role}.json").read_text()) for role in ("host", "loadgen")}
    assert heard["host"] == {"enp81s0f0": "b4:96:91:00:00:02", "enp81s0f1": "b4:96:91:00:00:04"}
    host = machine("host", *(nic(name, mac, neighbour=heard["host"][name]) for name, mac in (
        ("enp81s0f0", "b4:96:91:00:00:01"), ("enp81s0f1", "b4:96:91:00:00:03"))))  # fmt: skip
    loadgen = machine("loadgen", nic("enp1s0f0", "b4:96:91:00:00:04"), nic("enp1s0f1", "b4:96:91:00:00:02"))
    here, there, why = wired_together(host, loadgen)
    assert (names(here), names(there), why) == (["enp81s0f0"], ["enp1s0f1"], "wired together, as LLDP tells")
    assert names(other_ends(host.nics[1], loadgen)) == ["enp1s0f0"]
    # One daemon is enough, on either side.
    deaf = machine("host", *(replace(each, neighbour=None) for each in host.nics))
    hearing = machine("loadgen", *(replace(each, neighbour=heard["loadgen"].get(each.name)) for each in loadgen.nics))
    assert names(wired_together(deaf, hearing)[1]) == ["enp1s0f1"]


@pytest.mark.parametrize("text", ["", "{}", '{"lldp": [{}]}', "no JSON", '{"lldp": [{"interface": [{"name": "a"}]}]}', "[]"])
def test_without_a_daemon_nothing_is_known_of_neighbours(text: str) -> None:
    assert _neighbours(text) == {}


def test_a_link_of_the_same_speed_tells_who_is_at_the_other_end() -> None:
    host = machine("host", nic("slow", speed=1000), nic("fast"), nic("dark", has_carrier=False, speed=None))
    loadgen = machine("loadgen", nic("far", LOADGEN_MAC))
    here, there, why = wired_together(host, loadgen)
    assert (names(here), names(there), why) == (["fast"], ["far"], "the only ones with a link")


def test_where_several_may_be_none_is_chosen() -> None:
    here, there, _ = wired_together(machine("host", nic("a"), nic("b")), machine("loadgen", nic("c", LOADGEN_MAC)))
    assert (names(here), names(there)) == (["a", "b"], ["c"])


def test_without_any_link_the_only_nic_is_it() -> None:
    dark = nic(has_carrier=False, is_up=False, speed=None)
    here, there, why = wired_together(machine("host", dark), machine("loadgen", replace(dark, mac=LOADGEN_MAC)))
    assert (len(here), len(there), why) == (1, 1, "the only ones")


def test_two_ports_of_one_machine_are_the_two_ends() -> None:
    both = (nic("a"), nic("b", LOADGEN_MAC))
    here, there, _ = wired_together(machine("host", *both, boot="x"), machine("loadgen", *both, boot="x"))
    assert (names(here), names(there)) == (["a"], ["b"])


def test_what_is_most_likely_comes_first_and_what_the_machine_needs_not_at_all() -> None:
    there = (
        nic("virtual", is_veth=True), nic("down", is_up=False, has_carrier=False, speed=None), nic("slow", speed=1000),
        nic("fast"),
        nic("admin", unfit="carries the default route (admin)"),
    )  # fmt: skip
    assert names(machine("host", *there).candidates) == ["fast", "slow", "down", "virtual"]


# -- names and addresses -----------------------------------------------------------------------------------


def test_the_admin_network_is_one_that_neither_machine_knows() -> None:
    assert admin_network([machine()]) == "192.168.56.1/24"
    known = tuple(map(ip_network, ("192.168.56.0/23", "0.0.0.0/0")))
    assert admin_network([machine(), machine("loadgen", networks=known)]) == "192.168.58.1/24"
    assert admin_network([machine(networks=(ip_network("192.168.0.0/16"),))]) == "172.31.0.1/24"
    assert admin_network([machine(networks=tuple(map(ip_network, ("192.168.0.0/16", "172.16.0.0/12", "10.0.0.0/8"))))]) is None


@pytest.mark.parametrize(
    ("net", "guest"), [("10.1.2.10/24", "10.1.2.11"), ("10.1.2.1/28", "10.1.2.10"), ("fd00::1/64", "fd00::a")]
)
def test_the_guest_has_an_address_of_its_own_in_it(net: str, guest: str) -> None:
    assert guest_address(net) == f"root@{guest}"
    assert values.machine(guest_address(net))


def test_names_of_links_are_free_and_short_enough() -> None:
    assert free_name("br-test", frozenset()) == "br-test"
    taken = {"macvtap-test", *(f"macvtap-test{number}" for number in range(2, 1000))}
    assert values.iface(free_name("macvtap-test", taken)) not in taken


def test_mac_addresses_are_the_same_each_time_local_and_not_in_use() -> None:
    first = guest_macs(nic(), ())
    assert first == guest_macs(nic(), ()) != guest_macs(nic(mac=LOADGEN_MAC), ())
    second = guest_macs(nic(), first)
    for pair in (first, second):
        assert len(set(pair)) == 2
        for mac in pair:
            assert values.mac(mac) == mac and int(mac[:2], 16) & 2
    assert not set(first) & set(second)
    numbers = [int(mac.replace(":", ""), 16) for mac in first]
    assert abs(numbers[0] - numbers[1]) > 1000  # several guests count up from both


def test_links_and_addresses_of_the_host_are_avoided() -> None:
    host = machine("host", links=frozenset(("lo", "enp81s0f0", "br-test", "br-test2", "tap-admin")))
    found = values_of_testbed(plan(host))["host"]
    assert (found["test_bridge"], found["admin_tap"], found["test_tap"]) == ("br-test3", "tap-admin2", "tap-test")


def test_two_namespaces_of_one_machine_have_a_tmux_server_each() -> None:
    shared = plan(bare("host", boot="x", namespace="1"), bare("loadgen", boot="x", namespace="2"))
    found = values_of_testbed(shared)
    assert found["host"]["tmux_socket"] != found["loadgen"]["tmux_socket"]
    assert len({keys["tmux_socket"] for name, keys in values_of_testbed(plan()).items() if name in ("host", "loadgen")}) == 1


# -- what fits ---------------------------------------------------------------------------------------------


def test_moongen_gets_the_nic_only_where_both_are_there() -> None:
    assert values_of_testbed(plan())["loadgen"]["test_iface_dpdk_driv"] == "vfio-pci"
    assert values_of_testbed(plan(loadgen=machine("loadgen", moongens=())))["loadgen"]["test_iface_dpdk_driv"] is None
    ungrouped = nic(mac=LOADGEN_MAC, has_group=False)
    found = plan(loadgen=machine("loadgen", ungrouped))
    assert values_of_testbed(found)["loadgen"]["test_iface_dpdk_driv"] is None
    assert any("IOMMU" in warning for warning in warnings(found))


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (plan(), {"machines": "host, pcvm", "interfaces": "pnic, bridge, macvtap, vhost-user, vfio", "vhosts": "no, yes",
                  "reflectors": "moongen, xdp"}),
        (plan(has_kernel=True), {"machines": "host, pcvm, microvm"}),
        (plan(reflector_dir=None, has_kernel=True), {"machines": "host, pcvm", "reflectors": "moongen"}),
        (plan(image=None), {"machines": "host", "interfaces": "pnic", "vhosts": "no"}),
        (plan(bare("host", images=("/x.qcow2",))), {"interfaces": "pnic, bridge, macvtap", "vhosts": "no", "rates": "100, 1000"}),
        (plan(loadgen=bare("loadgen")), {"rates": "10, 50"}),
    ],
)  # fmt: skip
def test_the_first_matrix_fits_what_was_found(found, expected: dict[str, str]) -> None:
    section = values_of_tests(found)["load-latency"]
    assert {key: section[key] for key in expected} == expected


def test_what_is_missing_is_named_with_its_remedy_and_nothing_else() -> None:
    assert list(warnings(plan())) == []
    missing = " ".join(warnings(plan(bare("host", images=("/x.qcow2",)), bare("loadgen"))))
    for what in ("no tmux", "luajit", "qemu-system-x86_64", "/dev/kvm", "modprobe vhost_net", "reflector.bpf.o"):
        assert what in missing
    source = next(word for word in missing.split() if word.endswith("reflector.bpf.c"))
    assert Path(source).is_file()
    assert "kvm" not in " ".join(warnings(plan(bare("host"), image=None)))


def test_recorded_output_is_of_two_machines() -> None:
    heard = json.loads((RECORDED / "lldpctl-host.json").read_text())["lldp"][0]["interface"]
    assert {interface["chassis"][0]["name"][0]["value"] for interface in heard} == {"lb"}
