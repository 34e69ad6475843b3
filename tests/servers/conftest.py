"""A host on which a real QEMU runs guests that boot nothing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotest.config.testbed import GuestConfig, HostConfig, LoadGenConfig, Testbed
from autotest.network.links import Links
from autotest.remote.local import LocalTransport
from autotest.servers.host import Host


@pytest.fixture
def host(netns: str, tmux_socket: str, tmp_path: Path) -> Iterator[Host]:
    """A host in a namespace of its own, with a veth as NIC and an empty disk."""
    here = LocalTransport("here")
    here.run(["ip", "-n", netns, "link", "add", "nic", "type", "veth", "peer", "name", "peer"])
    Links(LocalTransport("here", netns)).up("peer")
    disk = tmp_path / "root.img"
    disk.write_bytes(b"\0" * 65536)
    config = HostConfig(
        fqdn="localhost", netns=netns, tmux_socket=f"{tmux_socket}-{os.getpid()}", test_iface="nic", test_bridge="br",
        test_tap="tap", test_macvtap="mvt", admin_bridge="adm", admin_tap="admtap", accelerator="tcg",
        admin_bridge_ip_net="10.9.0.1/24", root_disk_file=str(disk), root_disk_snapshot=True,
    )  # fmt: skip
    guest = GuestConfig(
        fqdn="10.9.0.2", netns=netns, vcpus=1, memory=32, admin_iface_mac="52:54:00:fa:00:5f",
        test_iface_mac="52:54:00:fa:00:60", boot_timeout=1,
    )  # fmt: skip
    host = Host(Testbed(tmp_path / "c", config, guest, LoadGenConfig(fqdn="localhost")))
    yield host
    host.kill_guest()
    here.run(["tmux", "-S", config.tmux_socket, "kill-server"], check=False)
    shutil.rmtree(host.state_dir)
