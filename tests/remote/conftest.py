"""A real SSH server on the loopback, with keys and client files of its own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from autotest.remote.local import LocalTransport
from autotest.remote.ssh import SshTransport
from autotest.remote.transport import Transport


def make_key(path: Path) -> Path:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)
    return path


@dataclass
class SshServer:
    """An sshd, and what a client needs for it: ``ssh_config`` has an alias ``server`` that works."""

    folder: Path
    port: int = 0
    process: subprocess.Popen[bytes] | None = None
    transports: list[SshTransport] = field(default_factory=list)

    def start(self) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        public = make_key(self.folder / "login").with_suffix(".pub").read_text()
        make_key(self.folder / "host_key")
        (self.folder / "authorized_keys").write_text(public)
        options = {
            "Port": self.port,
            "ListenAddress": "127.0.0.1",
            "HostKey": self.folder / "host_key",
            "AuthorizedKeysFile": self.folder / "authorized_keys",
            "PidFile": "none",
            "StrictModes": "no",
            "UsePAM": "no",
            "PasswordAuthentication": "no",
            "PermitRootLogin": "prohibit-password",
            "SetEnv": f"HOME={self.folder}",
            "Subsystem": "sftp internal-sftp",
        }
        config = self.folder / "sshd_config"
        config.write_text("".join(f"{key} {value}\n" for key, value in options.items()))
        os.makedirs("/run/sshd", mode=0o755, exist_ok=True)  # where every sshd wants its privilege separation
        with open(self.folder / "sshd.log", "wb") as log:
            self.process = subprocess.Popen(["/usr/sbin/sshd", "-D", "-e", "-f", str(config)], stderr=log)
        deadline = time.monotonic() + 5
        while "listening" not in (self.folder / "sshd.log").read_text().lower():
            assert time.monotonic() < deadline and self.process.poll() is None, (self.folder / "sshd.log").read_text()
            time.sleep(0.01)

    def stop(self) -> None:
        if self.process:
            for pid in self.sessions():
                os.kill(pid, signal.SIGKILL)
            self.process.kill()
            self.process.wait()

    def sessions(self) -> list[int]:
        """The processes that serve one connection each."""
        assert self.process
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(pid) for pid in children.read_text().split()]

    def known_hosts(self, *names: str, key: str = "host_key") -> Path:
        """A file that knows the server's key under these names."""
        public = " ".join((self.folder / f"{key}.pub").read_text().split()[:2])
        file = self.folder / f"known_hosts.{len(list(self.folder.glob('known_hosts.*')))}"
        file.write_text("".join(f"{name} {public}\n" for name in names))
        return file

    def config(self, *blocks: str, known: Path | None = None) -> str:
        """An ssh_config: the given blocks, then what all of them have in common."""
        known = known or self.known_hosts(f"[127.0.0.1]:{self.port}")
        common = [
            f"Host *\n  User root\n  IdentityFile {self.folder}/login\n  IdentitiesOnly yes",
            f"  UserKnownHostsFile {known}\n  GlobalKnownHostsFile /dev/null\n  ConnectTimeout 5",
        ]
        server = f"Host server\n  HostName 127.0.0.1\n  Port {self.port}"
        file = self.folder / f"ssh_config.{len(list(self.folder.glob('ssh_config.*')))}"
        file.write_text("\n".join([*blocks, server, *common]) + "\n")
        return str(file)

    def transport(self, config: str | None = None, destination: str = "server") -> SshTransport:
        transport = SshTransport("far", destination, config or self.config())
        self.transports.append(transport)
        return transport


@pytest.fixture(scope="session")
def session_sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    server = SshServer(tmp_path_factory.mktemp("sshd"))
    try:
        server.start()
        yield server
    finally:
        server.stop()


@pytest.fixture
def sshd(session_sshd: SshServer) -> Iterator[SshServer]:
    """The server; the connections that a test made are closed after it."""
    yield session_sshd
    while session_sshd.transports:
        session_sshd.transports.pop().close()
    deadline = time.monotonic() + 3
    while session_sshd.sessions():
        assert time.monotonic() < deadline, "a connection outlived its close"
        time.sleep(0.005)


@pytest.fixture(scope="module")
def shared_ssh(session_sshd: SshServer) -> Iterator[SshTransport]:
    """One connection for all tests of a file."""
    transport = SshTransport("far", "server", session_sshd.config())
    yield transport
    transport.close()


@pytest.fixture(params=["local", *(pytest.param(way, marks=pytest.mark.default) for way in ("netns", "ssh"))])
def transport(request: pytest.FixtureRequest) -> Transport:
    """Each way to a machine in turn."""
    if request.param == "local":
        return LocalTransport("near")
    if request.param == "netns":
        return LocalTransport("inside", request.getfixturevalue("shared_netns"))
    return request.getfixturevalue("shared_ssh")


@pytest.fixture
def wait_until() -> Callable[[Callable[[], object]], None]:
    def wait(condition: Callable[[], object], seconds: float = 3.0) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, "the condition did not come true"
            time.sleep(0.01)

    return wait
