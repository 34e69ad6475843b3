"""``autotest init`` for the lab's two machines over real SSH: what it writes passes the check and measures."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from labtest import LabCommand
from traces import NAME

from autotest.config.testbed import Testbed, load_testbed
from autotest.resources import PROJECT_DIRECTORY

_RUN = Path("/run") / f"{NAME}-lab-ssh"


@pytest.fixture
def ssh_machines(ssh_lab: LabCommand) -> Iterator[LabCommand]:
    """The lab, without what autotest remembers of its machines under the names of another testbed."""
    yield ssh_lab
    for folder in Path("/run/autotest").glob(f"{NAME}-init-*"):
        shutil.rmtree(folder)


def machines(ssh_lab: LabCommand) -> Testbed:
    """The lab as it describes itself; it is up then."""
    ssh_lab.run("lab", "up")
    return load_testbed(ssh_lab.config, PROJECT_DIRECTORY)


def options(lab: Testbed, folder: Path) -> list[str]:
    given = [f"{server}.tmux_socket={NAME}-init-{server}" for server in ("host", "loadgen")]
    given += [f"{server}.moonprogs_dir={folder}/{server}-moonprogs" for server in ("host", "loadgen")]
    named = ["--host", lab.host.fqdn, "--loadgen", lab.loadgen.fqdn, "--ssh-config", str(lab.host.ssh_config)]
    return ["init", *named, "-o", str(folder / "new"), *(word for text in given for word in ("--set", text))]


def state(lab: Testbed) -> list[str]:
    """The links, addresses and files of both machines, as far as init might touch them."""
    assert lab.lab
    return [
        subprocess.run(["ip", "-n", netns, "-details", "address"], check=True, capture_output=True, text=True).stdout
        for netns in (lab.lab.host_netns, lab.lab.loadgen_netns)
    ] + sorted(map(str, _RUN.rglob("*")))


def without(ssh_lab: LabCommand) -> LabCommand:
    """A command that names no configuration: the default one."""
    return LabCommand(Path("autotest.conf"), ssh_lab.before)


def test_what_it_writes_for_the_labs_machines_passes_the_check_and_measures(ssh_machines: LabCommand, tmp_path: Path) -> None:
    lab = machines(ssh_machines)
    before = state(lab)
    reflector = f"host.xdp_reflector_dir={lab.host.xdp_reflector_dir}"
    output = without(ssh_machines).run(*options(lab, tmp_path), "--guest-image", "none", "--set", reflector)
    assert " 0 failed; 8 trials can be measured" in output and output.count("over SSH in") == 2
    assert state(lab) == before
    made = LabCommand(tmp_path / "new/autotest.conf", ssh_machines.before)
    tests = str(tmp_path / "new/tests.conf")
    found = load_testbed(made.config, PROJECT_DIRECTORY)
    for section in ("host", "loadgen"):
        mine, theirs = getattr(found, section), getattr(lab, section)
        for key in ("fqdn", "ssh_config", "test_iface", "test_iface_mac"):
            assert getattr(mine, key) == getattr(theirs, key), key
    assert found.host.admin_bridge_ip_net == lab.host.admin_bridge_ip_net  # the lab's is free as long as no guest runs
    assert made.run("ping", code=3).count("reached over SSH") == 2  # there is no guest
    made.run("test-load-lat-file", tests, "--select", "rate=10", "--limit", "2")
    trials = sorted((tmp_path / "new/results").glob("trial_*.json"))
    assert len(trials) == 2
    assert {json.loads(trial.read_text())["verdict"] for trial in trials} <= {"valid", "under-sent", "disturbed"}


@pytest.mark.all
def test_a_guest_of_the_labs_measures_with_what_it_writes(ssh_machines: LabCommand, tmp_path: Path) -> None:
    lab = machines(ssh_machines)
    given = {
        "host": ("accelerator", "xdp_reflector_dir"),
        "guest": (
            "fqdn", "vcpus", "memory", "cpu_model", "kernel", "initrd", "kernel_args", "admin_iface_mac", "test_iface_mac",
            "moongen_dir", "moonprogs_dir", "xdp_reflector_dir",
        ),
    }  # fmt: skip
    values = [f"{section}.{key}={getattr(getattr(lab, section), key)}" for section, keys in given.items() for key in keys]
    words = [word for text in values for word in ("--set", text)]
    output = without(ssh_machines).run(*options(lab, tmp_path), "--guest-image", str(lab.host.root_disk_file), *words)
    assert " 0 failed; " in output and "ProxyJump" not in output  # the lab's SSH configuration has it
    made = LabCommand(tmp_path / "new/autotest.conf", ssh_machines.before)
    selection = "machine=microvm interface=macvtap reflector=xdp rate=10"
    log = made.run("test-load-lat-file", str(tmp_path / "new/tests.conf"), "--select", selection, "--limit", "1")
    assert "1 trial done, 0 failed" in log
    (trial,) = (tmp_path / "new/results").glob("trial_microvm_macvtap_*_xdp_10kpps_60B_5s_rep0.json")
    assert json.loads(trial.read_text())["figures"]


@pytest.mark.parametrize(("known", "message"), [("", "host key is unknown: check it and accept it by hand once"), (None, "")])
def test_a_machine_that_is_not_trusted_or_trusts_nobody_is_one_line_with_the_remedy(
    ssh_machines: LabCommand, tmp_path: Path, known: str | None, message: str
) -> None:
    lab = machines(ssh_machines)
    text = Path(str(lab.host.ssh_config)).read_text()
    other = tmp_path / "ssh_config"
    if known is None:
        key = tmp_path / "key"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
        text = text.replace(f"IdentityFile {_RUN}/image/identity", f"IdentityFile {key}")
        message = f"put a key of yours into its authorized_keys, so that `ssh -F {other} {lab.host.fqdn}` needs no password"
    else:
        text = text.replace(f"UserKnownHostsFile {_RUN}/known_hosts", f"UserKnownHostsFile {tmp_path}/known_hosts")
        (tmp_path / "known_hosts").write_text(known)
    other.write_text(text)
    words = options(lab, tmp_path)
    words[words.index("--ssh-config") + 1] = str(other)
    log = without(ssh_machines).run(*words, "--yes", code=3)
    assert message in " ".join(log.split())
    assert "Traceback" not in log and not (tmp_path / "new").exists()
