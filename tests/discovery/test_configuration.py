"""The two files for a plan: they load, hold what was decided, and explain every key as the examples do."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from looked_at import LOADGEN_MAC, bare, machine, nic, plan

from autotest.config.testbed import Testbed, load_testbed
from autotest.config.tests import load_sections
from autotest.discovery.configuration import (
    TESTBED_TEMPLATE,
    TESTS_TEMPLATE,
    contents_of,
    parse_given,
)
from autotest.discovery.proposals import Plan
from autotest.errors import ConfigError, UsageError
from autotest.measurements.load_latency import KIND
from autotest.measurements.load_matrix import PARAMETERS, RULES, SETTINGS
from autotest.plan.parameters import Section
from autotest.plan.tree import Tree
from autotest.resources import PROJECT_DIRECTORY

PLANS = {
    "all": plan(),
    "nothing": plan(bare("host"), bare("loadgen"), image=None),
    "bare with guests": plan(bare("host", images=("/x.qcow2",)), bare("loadgen"), qemu="/opt/qemu/bin"),
    "localhost": plan(host_name="localhost", loadgen_name="user@lake", ssh_config="/home/a b/ssh_config"),
    "strange": plan(machine("host", images=("/srv/$HOME/${x}/a;b=c.qcow2",)), has_kernel=True),
}


def written(found: Plan, folder: Path, given: Mapping[str, str] | None = None) -> tuple[Testbed, list[Section]]:
    for name, text in contents_of(found, given or {}, folder).items():
        (folder / name).write_text(text)
    testbed = load_testbed(folder / "autotest.conf", PROJECT_DIRECTORY)
    return testbed, load_sections(folder / "tests.conf", PROJECT_DIRECTORY, PARAMETERS, SETTINGS)


@pytest.mark.parametrize("name", PLANS)
def test_what_is_written_loads_and_holds_what_was_decided(tmp_path: Path, name: str) -> None:
    found = PLANS[name]
    testbed, sections = written(found, tmp_path)
    for server, its_name, its_nic, moongen in (
        (testbed.host, found.host_name, found.host_nic, found.host_moongen),
        (testbed.loadgen, found.loadgen_name, found.loadgen_nic, found.loadgen_moongen),
    ):
        assert (server.fqdn, server.test_iface, server.test_iface_mac) == (its_name, its_nic.name, its_nic.mac)
        assert (server.test_iface_addr, server.test_iface_driv) == (its_nic.pci, its_nic.driver)
        assert server.moongen_dir == (moongen or f"{server.moonprogs_dir}/softmoon")
        assert server.ssh_config == testbed.guest.ssh_config == found.ssh_config
    assert testbed.host.root_disk_file == found.image
    assert testbed.host.admin_bridge_ip_net == found.admin_net
    assert testbed.host.qemu_path == found.qemu
    assert testbed.guest.fqdn == (found.guest_address if found.image else "localhost")
    assert testbed.lab is None and [section.name for section in sections] == ["load-latency"]


@pytest.mark.parametrize("name", PLANS)
def test_the_tests_find_every_key_that_they_need(tmp_path: Path, name: str) -> None:
    testbed, sections = written(PLANS[name], tmp_path)
    cases = list(Tree(PARAMETERS, RULES, sections[0]).leaves())
    assert cases and KIND.missing(testbed, cases) == []


def comments(text: str) -> list[str]:
    """The lines that explain something: not those that are a key with a # in front."""
    return [line for line in text.splitlines() if line.startswith("#") and not re.match(r"# [a-z_]+ =", line)]


def test_all_explanations_of_the_examples_are_kept(tmp_path: Path) -> None:
    contents = contents_of(plan(), {}, tmp_path)
    assert comments(contents["tests.conf"]) == comments(TESTS_TEMPLATE.read_text())
    example = comments(TESTBED_TEMPLATE.read_text())
    assert comments(contents["autotest.conf"])[2:] == example[2:] and len(example) > 50
    assert "river" in contents["autotest.conf"].splitlines()[0]


def test_keys_that_get_no_value_stay_as_comments(tmp_path: Path) -> None:
    text = contents_of(PLANS["nothing"], {}, tmp_path)["autotest.conf"]
    for key in ("test_iface_addr = 0000:51:00.0", "root_disk_file = ${common:data}/guest.qcow2", "cpus_vcpus = 2-5", "kernel ="):
        assert f"\n# {key}" in text


def test_what_the_user_gave_counts_before_what_is_proposed(tmp_path: Path) -> None:
    guest = {"guest.kernel": "/x/vmlinuz", "guest.kernel_args": "root=/dev/vda1 a=$b", "guest.vcpus": "7"}
    testbed, _ = written(plan(), tmp_path, {"host.accelerator": "auto"} | guest)
    assert (testbed.host.accelerator, testbed.guest.kernel, testbed.guest.vcpus) == ("auto", "/x/vmlinuz", 7)
    assert testbed.guest.kernel_args == "root=/dev/vda1 a=$b"


def test_values_that_do_not_fit_together_are_named_as_if_they_were_written(tmp_path: Path) -> None:
    found = replace(plan(), guest_address="river")
    with pytest.raises(ConfigError, match=rf"{tmp_path}/autotest.conf \[guest\] fqdn: river is already \[host\] fqdn"):
        contents_of(found, {}, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("host.tst_iface=x", r"unknown key 'tst_iface' of \[host\] \(did you mean 'test_iface'\?\)"),
        ("hst.fqdn=x", "sections are host, guest, loadgen, local"),
        ("fqdn=x", "SECTION.KEY"),
        ("host.fqdn", "expected SECTION.KEY=VALUE"),
        ("guest.vcpus=many", "not a whole number"),
        ("host.qemu_path=/a #b", "begins a comment"),
        ("guest.test_iface_mac=01:00:00:00:00:00", "multicast"),
    ],
)
def test_what_cannot_be_set_is_refused_with_what_would_be_right(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=rf"--set .*{message}"):
        parse_given([text])


def test_values_may_hold_equals_signs() -> None:
    assert parse_given(["guest.kernel_args = root=/dev/vda1 rw"]) == {"guest.kernel_args": "root=/dev/vda1 rw"}


def test_a_nic_without_a_driver_of_its_own_has_no_keys_of_pci(tmp_path: Path) -> None:
    virtual = nic("wire", LOADGEN_MAC, pci=None, driver=None, has_group=False)
    testbed, _ = written(plan(loadgen=machine("loadgen", virtual)), tmp_path)
    assert (testbed.loadgen.test_iface_addr, testbed.loadgen.test_iface_dpdk_driv) == (None, None)
