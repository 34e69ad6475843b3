"""SSH in the lab: the client's files for reaching the guest, and a server in a namespace where one is asked for."""

from __future__ import annotations

import ipaddress
import os
import re
from contextlib import suppress
from pathlib import Path

from autotest.config.guests import nth_guest
from autotest.config.testbed import LabConfig, Testbed
from autotest.errors import TestbedError
from autotest.lab.emulated.host import NAME as EMULATED_HOST
from autotest.lab.image import GuestImage
from autotest.remote.local import LocalTransport
from autotest.remote.wait import wait_for

_PORT = 22
_SERVER = "/usr/sbin/sshd"
_START_TIMEOUT = 5.0  # seconds
_MOST_GUESTS = 250
_CONNECT_TIMEOUT = 3  # seconds
_SLOW_TIMEOUT = 300  # seconds; with TCG in TCG, to start a program in the guest takes seconds, and a login more than 10
_PLAIN = re.compile(r"[\w./:@+][\w./:@+-]*")


def write_client_files(
    testbed: Testbed,
    lab: LabConfig,
    directory: Path,
    image: GuestImage,
    host_image: GuestImage | None = None,
    host_address: str | None = None,
) -> None:
    """``ssh_config`` and ``known_hosts`` in the lab's directory, so that the servers are reached as real ones are.

    The namespaces' own servers use the guest's key pair: one login for the whole lab, made with each image. An emulated host has
    an image of its own, and an address in the host's namespace.
    """
    known_hosts = directory / "known_hosts"
    lines = [image.known_hosts.read_text()]
    timeout = _SLOW_TIMEOUT if host_image else _CONNECT_TIMEOUT
    common = _common(directory / "image", image, known_hosts, timeout)
    addresses = _guests(testbed)
    blocks = [f"Host {fqdn}\n  HostName {address}\n" for fqdn, address in addresses.items()]
    blocks.append(f"Host {' '.join(addresses)}\n  HostKeyAlias autotest-guest\n")
    of_guests = len(blocks)  # where what leads to them is put
    blocks += common
    if lab.sshd:
        blocks.insert(of_guests, f"  ProxyJump {_plain(testbed.host.fqdn)}\n")
        for netns, server in ((lab.host_netns, testbed.host), (lab.loadgen_netns, testbed.loadgen)):
            fqdn = _plain(server.fqdn)
            proxy = f"ip netns exec {_plain(netns)} socat - TCP:127.0.0.1:{_PORT},nodelay"
            key = _host_key(directory / netns, image)
            lines.append(f"{fqdn} {key}")
            blocks += [f"Host {fqdn}\n  HostKeyAlias {fqdn}\n  ProxyCommand {proxy}\n", *common]
    if host_image and host_address:
        fqdn = _plain(testbed.host.fqdn)
        blocks.insert(of_guests, f"  ProxyJump {fqdn}\n")
        reached = f"TCP:{host_address}:{_PORT},nodelay,connect-timeout={_CONNECT_TIMEOUT}"
        proxy = f"ip netns exec {_plain(lab.host_netns)} socat - {reached}"
        lines.append(host_image.known_hosts.read_text())
        blocks.append(f"Host {fqdn}\n  HostKeyAlias {EMULATED_HOST}\n  ProxyCommand {proxy}\n")
        blocks += _common(directory / "host-image", host_image, known_hosts, timeout)
    here = LocalTransport("lab")
    here.write(str(known_hosts), "".join(lines), 0o600)
    here.write(str(directory / "ssh_config"), "".join(blocks), 0o600)


def _guests(testbed: Testbed) -> dict[str, str]:
    """The names of all guests that the network has room for, with their addresses.

    Raises:
        TestbedError: that of the first cannot be written there, or is no address.
    """
    assert testbed.lab
    written = testbed.lab.guest_address
    first = _plain(written.partition("/")[0])
    try:
        network = ipaddress.ip_interface(written).network
    except ValueError:
        raise TestbedError(f"{written!r} cannot be written into the lab's SSH configuration: it is no address") from None
    found = {_plain(testbed.guest.fqdn): first}
    for number in range(2, _MOST_GUESTS + 1):
        try:
            of_guest = nth_guest(testbed, number)
        except ValueError:
            break
        assert of_guest.lab
        address = ipaddress.ip_interface(of_guest.lab.guest_address).ip
        if address not in network or address == network.broadcast_address:
            break
        found[_plain(of_guest.guest.fqdn)] = _plain(str(address))
    return found


def _common(folder: Path, image: GuestImage, known_hosts: Path, timeout: int) -> list[str]:
    """What every server's block ends with. ``folder`` leads to the image: its cache may be anywhere, and have any name."""
    identity = _plain(str(folder / image.identity.name))
    return [
        f"  User root\n  IdentityFile {identity}\n  IdentitiesOnly yes\n  UserKnownHostsFile {known_hosts}\n",
        "  GlobalKnownHostsFile /dev/null\n  KexAlgorithms curve25519-sha256@libssh.org\n",
        f"  Ciphers aes128-gcm@openssh.com\n  ConnectTimeout {timeout}\n",
    ]


def _plain(value: str) -> str:
    """The value, for files of ssh's and for the shell that runs a ProxyCommand: to all of them it is one plain word.

    Raises:
        TestbedError: it holds what ends a word or a line there, or stands for something else.
    """
    if not _PLAIN.fullmatch(value):
        allowed = "use letters, digits and _ . : @ + / -"
        raise TestbedError(f"{value!r} cannot be written into the lab's SSH configuration: {allowed}")
    return value


def _host_key(directory: Path, image: GuestImage) -> str:
    """The public host key of a namespace's SSH server; the key pair and the server's files are made with it."""
    directory.mkdir(mode=0o700, exist_ok=True)
    private = directory / "host_key"
    here = LocalTransport("lab")
    if not private.exists():
        here.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", directory.name, "-f", str(private)])
    login = here.run(["ssh-keygen", "-y", "-f", str(image.identity)]).stdout
    here.write(str(directory / "authorized_keys"), login, 0o600)
    options = {
        "Port": str(_PORT),
        "ListenAddress": "127.0.0.1",
        "HostKey": str(private),
        "PidFile": str(directory / "sshd.pid"),
        "AuthorizedKeysFile": str(directory / "authorized_keys"),
        "PermitRootLogin": "prohibit-password",
        "PasswordAuthentication": "no",
        "KbdInteractiveAuthentication": "no",
        "UsePAM": "no",
        "AllowTcpForwarding": "yes",
        "PrintMotd": "no",
        # Not the user's own home: what their shell does at each start would slow down every command.
        "SetEnv": f"HOME={directory}",
        "Subsystem": "sftp internal-sftp",
    }
    here.write(str(directory / "sshd_config"), "".join(f"{key} {value}\n" for key, value in options.items()), 0o600)
    return (directory / "host_key.pub").read_text()


def start_server(inside: LocalTransport, directory: Path) -> None:
    """An SSH server on the namespace's loopback; nothing if it runs already."""
    if server_pid(directory) is not None:
        return
    os.makedirs("/run/sshd", mode=0o755, exist_ok=True)  # where sshd wants its privilege separation
    inside.run([_SERVER, "-f", str(directory / "sshd_config")])
    wait_for(lambda: server_pid(directory), f"{inside.name}: sshd", _START_TIMEOUT)


def stop_server(here: LocalTransport, directory: Path) -> None:
    """End the server, and its connections: one that hangs would keep the namespace. Nothing if there is none."""
    pid = server_pid(directory)
    if pid is not None:
        connections = _children(pid)
        here.run(["kill", str(pid)], check=False)
        wait_for(lambda: server_pid(directory) is None, f"the end of sshd {pid}", _START_TIMEOUT)
        if connections:
            here.run(["kill", "-9", *map(str, connections)], check=False)


def _children(pid: int) -> list[int]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if int((process / "stat").read_text(errors="replace").rpartition(")")[2].split()[1]) == pid:
                found.append(int(process.name))
    return found


def server_pid(directory: Path) -> int | None:
    """The process of the server that uses this directory, None when none runs."""
    try:
        pid = int((directory / "sshd.pid").read_text())
        command = Path("/proc", str(pid), "cmdline").read_bytes()
    except (OSError, ValueError):
        return None
    return pid if str(directory).encode() in command else None
