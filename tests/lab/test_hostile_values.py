"""What the lab writes for ssh, sshd and mmdebstrap says just what the configuration says; and it removes only what is its own."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from examples import examples
from hostile import HOSTILE, recorded, recorder, texts
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from autotest.config.testbed import (
    GuestConfig,
    HostConfig,
    LabConfig,
    LoadGenConfig,
    Testbed,
)
from autotest.errors import TestbedError
from autotest.lab import ssh
from autotest.lab.guest import build
from autotest.lab.guest.recipe import GuestImage, Recipe
from autotest.lab.lab import Lab
from autotest.remote.ssh_config import resolve

FIXTURES = [HealthCheck.function_scoped_fixture]


def an_image(folder: Path) -> GuestImage:
    folder.mkdir(parents=True)
    image = GuestImage(folder, "d")
    image.known_hosts.write_text("autotest-guest ssh-ed25519 AAAA\n")
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(image.identity)], check=True)
    return image


def a_testbed(lab: LabConfig, host: str = "h", guest: str = "g", loadgen: str = "l", socket: str = "at-hostile") -> Testbed:
    configs = (
        HostConfig(fqdn=host, tmux_socket=socket),
        GuestConfig(fqdn=guest),
        LoadGenConfig(fqdn=loadgen, tmux_socket=socket),
    )
    return Testbed(Path("t"), *configs, lab=lab)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> GuestImage:
    return an_image(tmp_path_factory.mktemp("cache") / "a 'b' $(c)\n%h")


@settings(max_examples=examples(250), suppress_health_check=FIXTURES)
@given(st.integers(0, 5), st.one_of(texts, st.from_regex(r"[\w./:@+-]{1,6}", fullmatch=True)))
def test_what_the_configuration_says_is_what_ssh_reads_or_it_is_refused(
    image: GuestImage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: int, value: str
) -> None:
    values = ["h", "g", "l", "ns1", "ns2", "10.0.0.9"]
    values[place] = value
    host, guest, loadgen, netns, other, address = values
    monkeypatch.setattr(ssh, "_host_key", lambda directory, image: "ssh-ed25519 BBBB\n")
    lab = LabConfig(directory=str(tmp_path), host_netns=netns, loadgen_netns=other, guest_address=f"{address}/24", sshd=True)
    address = address.partition("/")[0]
    try:
        ssh.write_client_files(a_testbed(lab, host, guest, loadgen), lab, tmp_path, image)
    except TestbedError as error:
        assert "cannot be written into the lab's SSH configuration" in str(error)
        event("refused")
        return
    finally:
        written = {name: (tmp_path / name).read_text() for name in os.listdir(tmp_path)}
        for name in written:
            (tmp_path / name).unlink()
    assert [line.split()[0] for line in written["known_hosts"].splitlines()] == ["autotest-guest", host, loadgen]
    lines = written["ssh_config"].splitlines()
    hosts = [line.split()[1:] for line in lines if line.startswith("Host ")]
    guests = hosts[-3]  # all that the network has room for share one block, after one with the address of each
    assert hosts == [*([each] for each in guests), guests, [host], [loadgen]]
    assert guests[0] == guest
    proxies = [line.split()[1:6] for line in lines if "ProxyCommand" in line]
    assert proxies == [["ip", "netns", "exec", netns, "socat"], ["ip", "netns", "exec", other, "socat"]]
    addresses = [line.split()[1:] for line in lines if line.startswith("  HostName ")]
    assert addresses[0] == [address] and len(addresses) == len(guests)
    assert not set("".join(lines)) & set("'\"`$\\;&|<>(){}[]*?~#!%")


def test_ssh_and_sshd_read_the_files_of_a_lab(image: GuestImage, tmp_path: Path) -> None:
    lab = LabConfig(directory=str(tmp_path), host_netns="a.b_1", loadgen_netns="c", guest_address="10.0.0.9/24", sshd=True)
    (tmp_path / "image").symlink_to(image.directory)
    ssh.write_client_files(a_testbed(lab, "host-1", "guest.example", "loadgen"), lab, tmp_path, image)
    for file in ("ssh_config", "known_hosts", "a.b_1/host_key", "a.b_1/authorized_keys", "a.b_1/sshd_config"):
        assert (tmp_path / file).stat().st_mode & 0o777 == 0o600, file
    assert (tmp_path / "a.b_1").stat().st_mode & 0o777 == 0o700
    os.makedirs("/run/sshd", mode=0o755, exist_ok=True)
    subprocess.run(["/usr/sbin/sshd", "-t", "-f", str(tmp_path / "a.b_1/sshd_config")], check=True)
    for fqdn, expected in (
        ("guest.example", {"hostname": "10.0.0.9", "proxyjump": "host-1", "hostkeyalias": "autotest-guest"}),
        ("host-1", {"proxycommand": "ip netns exec a.b_1 socat - TCP:127.0.0.1:22,nodelay", "hostkeyalias": "host-1"}),
    ):
        command = ["ssh", "-G", "-F", str(tmp_path / "ssh_config"), fqdn]
        shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        known = dict(line.partition(" ")[::2] for line in shown.splitlines())
        expected |= {
            "identityfile": f"{tmp_path}/image/identity",
            "userknownhostsfile": f"{tmp_path}/known_hosts",
            "user": "root",
        }
        assert {key: known[key] for key in expected} == expected
        ours = resolve(fqdn, str(tmp_path / "ssh_config"))
        assert ours.key_files == (f"{tmp_path}/image/identity",) and ours.known_hosts[0] == f"{tmp_path}/known_hosts"
    assert (tmp_path / "image/identity").is_file()


# -- what is removed ---------------------------------------------------------------------------------------


def own(directory: Path) -> None:
    Lab(a_testbed(LabConfig(directory=str(directory))))._require_own_directory()


def test_a_folder_of_somebody_else_is_neither_used_nor_removed(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "thesis.tex").write_text("years")
    lab = LabConfig(directory=str(folder), host_netns="at-hostile-no", loadgen_netns="at-hostile-none")
    with pytest.raises(TestbedError, match="it is not the lab's"):
        Lab(a_testbed(lab, socket=f"at-hostile-{os.getpid()}")).down()
    assert (folder / "thesis.tex").read_text() == "years"


def test_a_folder_is_the_labs_only_when_nobody_else_can_write_there(tmp_path: Path) -> None:
    folder = tmp_path / "lab"
    folder.mkdir(mode=0o700)
    own(folder)
    (folder / "ssh_config").write_text("")
    (folder / "autotest-host").mkdir()
    own(folder)  # what an interrupted removal left
    (folder / "image").symlink_to("/nowhere")
    (folder / "more").write_text("")
    own(folder)
    for mode in (0o770, 0o707):
        folder.chmod(mode)
        with pytest.raises(TestbedError, match="it is not the lab's"):
            own(folder)
    folder.chmod(0o700)
    (tmp_path / "link").symlink_to(folder)
    with pytest.raises(TestbedError, match="it is not the lab's"):
        own(tmp_path / "link")
    os.chown(folder, 65534, 65534)
    with pytest.raises(TestbedError, match="it is not the lab's"):
        own(folder)


# -- the guest's image -------------------------------------------------------------------------------------


def test_the_hook_of_mmdebstrap_gets_just_its_arguments_whatever_folder_the_recipe_is_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[list[str]] = []
    monkeypatch.setattr(build, "run", lambda command, **options: commands.append([str(word) for word in command]) or b"")
    for name in (name.replace("/", "-") for name in HOSTILE if 0 < len(name) < 100 and "\udcff" not in name):
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        (folder / "packages.txt").write_text("one\n")
        Path(recorder(tmp_path)).rename(folder / "fetch.sh")
        build.install_debian(Recipe(files=folder, kernel=name), tmp_path / "root", folder / "downloads")
        (hook,) = (word.partition("=")[2] for word in commands[-1] if word.startswith("--customize-hook="))
        ended = subprocess.run(["sh", "-c", hook], capture_output=True, check=True, cwd=tmp_path)
        assert recorded(ended.stdout.decode()) == [str(folder / "downloads"), name, "busybox-static"]
    assert not (tmp_path / "pwned").exists()


@pytest.mark.parametrize(
    "listed",
    [
        "",
        "\n\n",
        " ",
        "Debian",
        "Debian a b",
        "Debian [trusted=yes] deb http://x bookworm main",
        "\x00",
        "Debian x bookworm main x",
    ],
)
def test_what_apt_does_not_list_is_no_source(listed: str) -> None:
    assert build.parse_targets(listed, "bookworm") == []
