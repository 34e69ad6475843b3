"""run-guest, kill-guest, networks and the shell, on real guests."""

import json
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


@pytest.mark.parametrize(
    ("machine", "interface"), [pytest.param("pcvm", "macvtap", marks=pytest.mark.all), ("microvm", "bridge")]
)
def test_a_guest_runs_until_it_is_killed(lab: LabCommand, machine: str, interface: str):
    printed = lab.run("run-guest", "-m", machine, "-i", interface, "-C", "1", "-M", "384", "-r", "512")
    assert "guest takes logins" in printed
    reached = lab.run("ping")
    assert reached.count("reached") == 3 and "not reached" not in reached
    assert "running" in lab.run("run-guest", code=2)
    shell = lab.run("shell", input='print(guest.run(["cat", "/proc/meminfo"]).stdout.split()[1])\n')
    assert 250_000 < int(next(word for word in shell.split() if word.isdigit() and len(word) > 5)) < 384 * 1024
    assert "guest ended" in lab.run("kill-guest")
    assert "no guest" in lab.run("kill-guest")
    assert "not reached" in lab.run("ping", code=3)


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


def test_the_guest_reaches_nothing_outside_the_lab(lab: LabCommand):
    lab.run("run-guest")
    ask = 'print(guest.run(["ip", "route"]).stdout, guest.run(["ip", "route", "get", "192.0.2.1"], check=False).stderr)\n'
    said = lab.run("shell", input=ask)  # the banner goes to stderr, which comes last
    assert "192.168.56.0/24" in said and "default" not in said and "Network is unreachable" in said
    assert _in_host(["ip", "route"]).count("default") == 0
    assert {link["ifname"] for link in json.loads(_in_host(["ip", "-json", "link"]))} >= {"lo", "wire-host"}
