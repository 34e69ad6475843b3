"""A server of this machine with a stand-in for MoonGen, and one with NICs that exist only in the test."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_nics import NIC, NIC_MAC, OTHER, OTHER_MAC, FakePci, device, hugepages

from autotest.config.testbed import GuestConfig, ServerConfig
from autotest.network.pci_device import PciDevice
from autotest.servers.hugepages import Hugepages
from autotest.servers.server import Server

MakeServer = Callable[..., Server]

STAND_IN = """\
#!/bin/sh
# prints its arguments; does what the file beside the program says
printf '%s\\n' "$@"
. "$1"
"""


@pytest.fixture
def make_server(tmp_path: Path, tmux_socket: str) -> Iterator[MakeServer]:
    """Makes a server on this machine with a stand-in for MoonGen, whose programs are shell scripts."""
    made: list[Server] = []

    def make(binary: str = "bin/MoonGen", kind: type[ServerConfig] = ServerConfig, **more: Any) -> Server:
        path = tmp_path / "moongen" / binary
        path.parent.mkdir(parents=True)
        path.write_text(STAND_IN)
        path.chmod(0o755)
        config = kind(
            fqdn="localhost", tmux_socket=f"{tmux_socket}-{os.getpid()}", moongen_dir=str(tmp_path / "moongen"),
            moonprogs_dir=str(tmp_path), **({"test_iface": "lo"} | more),
        )  # fmt: skip
        made.append(Server("guest" if kind is GuestConfig else "loadgen", config))
        return made[-1]

    yield make
    for server in made:
        server.run(["tmux", "-S", server.config.tmux_socket, "kill-server"], check=False)
        shutil.rmtree(server.state_dir)


@pytest.fixture
def make_nics(make_server: MakeServer, tmp_path: Path) -> Callable[..., tuple[Server, FakePci]]:
    """Makes a server that has two NICs of the same model, of which the second one is under test, and no huge pages yet."""

    def make(*devices: PciDevice, **more: Any) -> tuple[Server, FakePci]:
        keys: dict[str, Any] = {
            "test_iface": "eth1", "test_iface_addr": NIC, "test_iface_mac": NIC_MAC, "test_iface_driv": "ixgbe",
            "test_iface_dpdk_driv": "igb_uio",
        }  # fmt: skip
        server = make_server("build/MoonGen", **(keys | more))
        both = (device(OTHER, "eth0", OTHER_MAC), device(NIC, "eth1", NIC_MAC))
        pci = FakePci(server.note, *(devices or both))
        server.__dict__["pci"] = pci
        if not (tmp_path / "sys").exists():
            hugepages(tmp_path)
        server.__dict__["hugepages"] = Hugepages(server.transport, server.note, str(tmp_path))
        return server, pci

    return make
