"""A host in a namespace of its own, and programs that stand for testpmd and vMux."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from autotest.config.testbed import GuestConfig, HostConfig, LoadGenConfig, Testbed
from autotest.network.links import Links
from autotest.remote.local import LocalTransport
from autotest.servers.host import Host

MakeHost = Callable[..., Host]


@pytest.fixture
def make_host(netns: str, tmux_socket: str, tmp_path: Path) -> Iterator[MakeHost]:
    """Makes a host with a veth as test NIC, ``peer`` at its other end; it is given values of section ``host``."""
    subprocess.run(["ip", "-n", netns, "link", "add", "nic", "type", "veth", "peer", "name", "peer"], check=True)
    Links(LocalTransport("here", netns)).up("peer")
    made: list[Host] = []

    def make(**values: object) -> Host:
        config = HostConfig(
            fqdn="localhost", netns=netns, tmux_socket=f"{tmux_socket}-{os.getpid()}", test_iface="nic", test_bridge="br",
            test_tap="tap", **values,  # type: ignore[arg-type]
        )  # fmt: skip
        guest = GuestConfig(fqdn="10.9.0.2", netns=netns, test_iface_mac="52:54:00:fa:00:60")
        made.append(Host(Testbed(tmp_path / "c", config, guest, LoadGenConfig(fqdn="localhost"))))
        return made[-1]

    yield make
    for host in made:
        subprocess.run(["tmux", "-S", host.config.tmux_socket, "kill-server"], check=False, capture_output=True)
        shutil.rmtree(host.state_dir, ignore_errors=True)  # two hosts may have one


@pytest.fixture
def program(tmp_path: Path) -> Callable[[str], str]:
    """Makes a program of Python lines, in which ``value(option)`` is what follows an option; returns its path."""

    def make(lines: str) -> str:
        path = tmp_path / "program"
        head = "import signal, socket, sys, time\ndef value(option): return sys.argv[sys.argv.index(option) + 1]\n"
        path.write_text(f"#!/usr/bin/python3\n{head}{lines}\n")
        path.chmod(0o755)
        return str(path)

    return make
