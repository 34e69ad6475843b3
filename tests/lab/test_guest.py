"""run-guest, kill-guest, networks and the shell, on real guests."""

import json
import re
import signal
import subprocess

import pytest
from labtest import NAME, LabCommand


def _in_host(command: list[str]) -> str:
    return subprocess.run(
        ["ip", "netns", "exec", f"{NAME}-host", *command], capture_output=True, text=True, check=True, timeout=10
    ).stdout


def _links() -> set[str]:
    return {link["ifname"] for link in json.loads(_in_host(["ip", "-json", "link"]))}


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
