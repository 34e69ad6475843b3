"""The lab with an emulated host, without starting one: its configuration, its files, its devices, and its end."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from labtest import PROJECT

from autotest.config.testbed import Testbed, load_testbed
from autotest.errors import ConfigError, ImageError
from autotest.lab import ssh
from autotest.lab.emulated import host as emulated
from autotest.lab.guest.build import read_list
from autotest.lab.guest.recipe import GuestImage, Recipe
from autotest.lab.lab import Lab, LabStatus
from autotest.remote.local import LocalTransport
from autotest.remote.ssh import SshTransport
from autotest.remote.ssh_config import resolve
from autotest.run.journal import Change
from autotest.servers.testbed import Servers

CONFIGURATION = PROJECT / "configs/lab-iommu.conf"


def configured(folder: Path, *changes: tuple[str, str]) -> Testbed:
    """configs/lab-iommu.conf as a lab of this test's own, changed."""
    text = CONFIGURATION.read_text()
    own = ("/run/autotest-lab-iommu", str(folder / "lab")), ("autotest-iommu", "at-emulated")
    for old, new in (*own, *changes):
        assert old in text, old
        text = text.replace(old, new)
    file = folder / "autotest.conf"
    file.write_text(text)
    return load_testbed(file, PROJECT)


@pytest.fixture
def testbed(tmp_path: Path) -> Testbed:
    return configured(tmp_path)


def image_in(folder: Path, recipe: Recipe) -> GuestImage:
    """What of an image the files for ssh are made of."""
    folder.mkdir()
    image = GuestImage(folder, "d")
    image.known_hosts.write_text(f"{recipe.name} ssh-ed25519 AAAA\n")
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(image.identity)], check=True)
    return image


# -- the image -----------------------------------------------------------------------------------------


def test_its_image_is_another_than_the_guests_and_has_what_a_host_needs() -> None:
    recipe = emulated.recipe()
    assert recipe.digest() != Recipe().digest() and recipe.name != Recipe().name
    packages = read_list((recipe.own_files / "packages.txt").read_text())
    assert {"qemu-system-x86", "udev", "tmux", "socat", "python3", "openssh-server", "kmod"} <= {*packages}
    assert recipe.boot is not None
    subprocess.run(["sh", "-n", str(recipe.boot)], check=True)


def test_the_default_lab_builds_no_image_of_an_emulated_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def build(cache: Path, recipe: Recipe | None = None) -> GuestImage:
        asked.append((recipe or Recipe()).name)
        raise ImageError("asked")

    monkeypatch.setattr("autotest.lab.image.build", build)
    with pytest.raises(ImageError, match="asked"):
        Lab(load_testbed(PROJECT / "autotest.conf", PROJECT))._make_directory()
    assert asked == ["autotest-guest"]


# -- the configuration ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("emulated_host = yes", "emulated_host = yes\nsshd = yes", "[lab] sshd: must be no with emulated_host"),
        ("fqdn = autotest-host", "fqdn = localhost", "[host] fqdn: must be a name for the emulated host"),
        ("fqdn = autotest-host", "fqdn = h\nnetns = n", "[host] fqdn: must be a name for the emulated host"),
        ("fqdn = autotest-guest", "fqdn = localhost", "[guest] netns: must be at-emulated-host"),
        ("netns = ${lab:loadgen_netns}", "", "[loadgen] netns: must be at-emulated-loadgen"),
        (
            "emulated_host_address = 192.168.57.10/24", "emulated_host_address = 192.168.56.1/24",
            "[lab] emulated_host_address: 192.168.56.1 is already [host] admin_bridge_ip_net",
        ),
    ],
)  # fmt: skip
def test_a_configuration_that_would_not_lead_into_the_emulated_host_is_refused(
    tmp_path: Path, old: str, new: str, problem: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        configured(tmp_path, (old, new))
    assert problem in str(caught.value)


def test_the_nic_that_is_not_on_the_wire_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    lab = Lab(configured(tmp_path, ("test_iface_addr = 0000:01:00.0", "test_iface_addr = 0000:02:00.0")))
    with pytest.raises(ConfigError, match=r"\[host\] test_iface_addr: must be 0000:01:00.0"):
        lab.up()
    assert not lab.directory.exists() and not any(lab.status().namespaces.values())


# -- the way there -------------------------------------------------------------------------------------


def test_ssh_reaches_it_through_its_namespace_and_the_guest_through_it(tmp_path: Path, testbed: Testbed) -> None:
    assert testbed.lab
    directory = tmp_path / "lab"
    directory.mkdir()
    guest, host = image_in(directory / "image", Recipe()), image_in(directory / "host-image", emulated.recipe())
    ssh.write_client_files(testbed, testbed.lab, directory, guest, host, "192.168.57.10")
    file = str(directory / "ssh_config")
    found = resolve(testbed.host.fqdn, file)
    assert found.proxy_command == "ip netns exec at-emulated-host socat - TCP:192.168.57.10:22,nodelay,connect-timeout=3"
    assert found.key_files == (str(host.identity),)
    beyond = resolve(testbed.guest.fqdn, file)
    assert beyond.jumps and beyond.host == "192.168.56.10" and beyond.key_files == (str(guest.identity),)
    assert found.connect_timeout == beyond.connect_timeout == 300
    names = [line.split()[0] for line in (directory / "known_hosts").read_text().splitlines()]
    assert names == ["autotest-guest", "autotest-emulated-host"]
    for fqdn, alias in ((testbed.host.fqdn, names[1]), (testbed.guest.fqdn, names[0])):
        shown = subprocess.run(["ssh", "-G", "-F", file, fqdn], capture_output=True, text=True, check=True).stdout
        assert f"hostkeyalias {alias}\n" in shown


@pytest.mark.parametrize(("line", "seconds"), [("ConnectTimeout 120", 120), ("ConnectTimeout 10", 30), ("", 30)])
def test_commands_on_a_machine_that_is_slow_to_connect_to_get_as_long(tmp_path: Path, line: str, seconds: float) -> None:
    (tmp_path / "ssh_config").write_text(f"Host slow\n  {line}\n")
    transport = SshTransport("slow", "slow", str(tmp_path / "ssh_config"))
    assert transport._patient(30) == seconds
    assert transport._patient(500) == 500


def test_a_command_is_given_its_own_time_where_the_ssh_configuration_cannot_be_read(tmp_path: Path) -> None:
    assert SshTransport("slow", "slow", str(tmp_path / "missing"))._patient(30) == 30


# -- the machine ---------------------------------------------------------------------------------------


def test_qemu_has_every_device_that_it_is_asked_for(tmp_path: Path, testbed: Testbed, netns: str) -> None:
    """QEMU itself makes all of them; only the images and the taps are others, and nothing is run."""
    image = GuestImage(tmp_path / "image", "d")
    image.directory.mkdir()
    image.initrd.touch()
    image.kernel.write_bytes(bytes(4096))
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", str(image.disk), "1M"], check=True)
    for tap in ("tap-emulated", "wire-loadgen"):
        subprocess.run(["ip", "-n", netns, "tuntap", "add", "dev", tap, "mode", "tap"], check=True)
    machine = emulated.EmulatedHost(testbed, tmp_path)
    words = machine.command_line(image, tmp_path)
    text = " ".join(words)
    assert "nvme,serial=autotest" in text and "sriov_max_vfs=2" in text
    # Its devices are made before its kernel is looked at, which is none.
    asked = [word for word in words if word != "-daemonize"]
    ended = LocalTransport("here", netns).run([*asked, "-S"], check=False)
    assert ended.code == 1
    complaints = [line for line in ended.stderr.splitlines() if "warning" not in line]
    assert len(complaints) == 1 and "kernel" in complaints[0], ended.stderr


def test_its_own_address_and_that_of_the_namespace_are_different_ones_of_one_network(tmp_path: Path) -> None:
    change = ("emulated_host_address = 192.168.57.10/24", "emulated_host_address = 10.0.0.1/30")
    machine = emulated.EmulatedHost(configured(tmp_path, change), tmp_path)
    assert (machine.address, machine._own_end) == ("10.0.0.1", "10.0.0.2/30")
    change = ("emulated_host_address = 192.168.57.10/24", "emulated_host_address = 10.0.0.1/32")
    with pytest.raises(ConfigError, match=r"\[lab\] emulated_host_address: 10\.0\.0\.1/32 has no room"):
        Lab(configured(tmp_path, change))


# -- its end -------------------------------------------------------------------------------------------


def test_what_was_changed_in_it_ended_with_it_and_what_was_changed_elsewhere_did_not(testbed: Testbed) -> None:
    ways = Lab(testbed).transports()
    assert ways["host"].is_gone and not ways["loadgen"].is_gone
    with Servers(testbed, transports=ways) as servers:
        for server in ("host", "guest"):
            for kind, details in (("file", {"path": "/etc/hostname"}), ("driver", {"name": "0000:01:00.0"})):
                assert servers.undo(Change(1, server, kind, details, "boot", "")) is None
        assert Path("/etc/hostname").exists()
        file = testbed.file.parent / "left"
        file.touch()
        assert servers.undo(Change(1, "loadgen", "file", {"path": str(file)}, "", "")) is not None
        assert not file.exists()


def test_a_process_that_took_its_number_is_not_taken_for_it(tmp_path: Path, testbed: Testbed) -> None:
    machine = emulated.EmulatedHost(testbed, tmp_path)
    with subprocess.Popen(["sleep", "60"]) as other:
        (tmp_path / "qemu.pid").write_text(f"{other.pid}\n")
        assert machine.pid() is None
        machine.stop()
        assert other.poll() is None
        other.kill()


def test_a_lab_is_not_up_while_its_emulated_host_does_not_run(testbed: Testbed, tmp_path: Path) -> None:
    assert "emulated host" in "\n".join(Lab(testbed).status().lines())
    whole = LabStatus({"a": True}, True, tmp_path, False)
    assert whole.is_up and "emulated host" not in "\n".join(whole.lines())
    assert LabStatus({"a": True}, True, tmp_path, False, True).is_up
    assert not LabStatus({"a": True}, True, tmp_path, False, False).is_up
