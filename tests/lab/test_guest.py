"""run-guest, kill-guest, networks and the shell, on real guests."""

import json
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from labtest import NAME, LabCommand, lab_command


def _in_host(command: list[str]) -> str:
    return subprocess.run(
        ["ip", "netns", "exec", f"{NAME}-host", *command], capture_output=True, text=True, check=True, timeout=10
    ).stdout


def _links() -> set[str]:
    return {link["ifname"] for link in json.loads(_in_host(["ip", "-json", "link"]))}


@pytest.fixture(scope="module")
def running(config: Path) -> Iterator[LabCommand]:
    """The lab with one guest that all tests of it share: two vCPUs, two queues and other sizes than the configuration says."""
    with contextmanager(lab_command)(config) as lab:
        options = ("-m", "microvm", "-i", "bridge", "-C", "2", "-M", "384", "-Q", "2", "-r", "1024")
        assert "guest takes logins" in lab.run("run-guest", *options)
        yield lab
        assert "guest ended" in lab.run("kill-guest")
        assert "no guest" in lab.run("kill-guest")
        assert "not reached" in lab.run("ping", code=3)


def test_a_guest_that_runs_is_reached_and_none_is_started_beside_it(running: LabCommand):
    reached = running.run("ping")
    assert reached.count("reached") == 3 and "not reached" not in reached
    assert "running" in running.run("run-guest", code=2)


def test_the_guest_has_the_memory_queues_and_rings_of_the_options(running: LabCommand):
    asked = (["cat", "/proc/meminfo"], ["ethtool", "-l", "test"], ["ethtool", "-g", "test"])
    said = running.run("shell", input="".join(f"print(guest.run({command}).stdout)\n" for command in asked))
    assert 250_000 < int(re.findall(r"MemTotal: +(\d+) kB", said)[0]) < 384 * 1024
    assert re.findall(r"Combined:\s+(\d+)", said) == ["2", "2"]
    assert re.findall(r"RX:\s+(\d+)", said)[-1] == "1024"


def test_the_guest_reaches_nothing_outside_the_lab(running: LabCommand):
    ask = 'print(guest.run(["ip", "route"]).stdout, guest.run(["ip", "route", "get", "192.0.2.1"], check=False).stderr)\n'
    said = running.run("shell", input=ask)  # the banner goes to stderr, which comes last
    assert "192.168.56.0/24" in said and "default" not in said and "Network is unreachable" in said
    assert _in_host(["ip", "route"]).count("default") == 0
    assert {link["ifname"] for link in json.loads(_in_host(["ip", "-json", "link"]))} >= {"lo", "wire-host"}


@pytest.mark.all
def test_a_guest_over_macvtap_runs_until_it_is_killed(lab: LabCommand):
    assert "guest takes logins" in lab.run("run-guest", "-m", "pcvm", "-i", "macvtap", "-C", "2", "-Q", "2", "-r", "1024")
    assert lab.run("ping").count("reached") == 3
    said = lab.run("shell", input='print(guest.run(["ethtool", "-l", "test"]).stdout)\n')
    assert re.findall(r"Combined:\s+(\d+)", said) == ["2", "2"]
    assert "guest ended" in lab.run("kill-guest")


def test_networks_go_up_and_down_and_both_may_be_repeated(lab: LabCommand):
    for _ in range(2):
        lab.run("setup-network", "-i", "bridge")
    assert {"br-admin", "tap-admin", "br-test", "tap-test", "wire-host"} <= _links()
    lab.run("setup-network", "-i", "macvtap")
    assert "macvtap-test" in _links() and "br-test" not in _links()
    for _ in range(2):
        lab.run("teardown-network")
    assert _links() == {"lo", "wire-host"}


def test_the_shell_offers_the_servers_that_are_not_left_out(lab: LabCommand):
    printed = lab.run("shell", "-G", input='print(host.run(["id", "-u"]).stdout)\nprint("guest" in globals())\n')
    assert "host: <Host host at localhost>" in printed and "guest: <" not in printed
    assert "0\n" in printed and "False" in printed


def test_what_a_killed_shell_set_up_is_undone_by_recover(lab: LabCommand):
    process = lab.start("shell")
    process.communicate("import os; host.links.add_bridge('br-shell'); os.kill(os.getpid(), 9)\n", timeout=60)
    assert process.returncode == -signal.SIGKILL and "br-shell" in _links()
    assert "host: link br-shell: deleted" in lab.run("recover")
    assert _links() == {"lo", "wire-host"}


@pytest.mark.all
def test_programs_are_uploaded_where_they_differ(ssh_lab: LabCommand):
    ssh_lab.run("run-guest")
    first, second = ssh_lab.run("upload-moonprogs"), ssh_lab.run("upload-moonprogs")
    assert "guest" in first and " 0 files" not in first
    assert second.count(" 0 files copied") == 3


def test_a_guest_that_cannot_boot_is_an_error_with_its_console(lab: LabCommand, tmp_path):
    disk = tmp_path / "empty.raw"
    disk.write_bytes(bytes(1 << 20))
    printed = lab.run("run-guest", "-D", str(disk), code=1)
    assert "the guest's kernel gave up: Kernel panic - not syncing: " in printed
    assert "autotest-init: cannot mount /dev/vda" in printed  # what led there
