"""A testbed for preflights: two namespaces that a veth pair joins, files that stand for an image, a kernel with PCI devices."""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
from pathlib import Path
from typing import Any

from fake_kernel import FakeKernel, FakeMachine

from autotest.config.testbed import GuestConfig, HostConfig, LoadGenConfig, Testbed
from autotest.network.pci import PciDevices
from autotest.preflight.requirement import Finding, Requirement
from autotest.preflight.survey import Survey
from autotest.resources import PROJECT_DIRECTORY
from autotest.servers.testbed import Servers

HOST_MAC, LOADGEN_MAC, GUEST_MAC = "52:54:00:aa:00:01", "52:54:00:aa:00:02", "52:54:00:fa:00:60"


def ip(netns: str, *arguments: str) -> None:
    subprocess.run(["ip", "-n", netns, *arguments], check=True)


class Bed:
    """The testbed and its servers; ``change`` makes another one of it."""

    def __init__(self, testbed: Testbed, root: Path) -> None:
        self.root = root
        self._servers: list[Servers] = []
        self.testbed = testbed

    @property
    def host(self) -> str:
        """The namespace of the host."""
        return str(self.testbed.host.netns)

    @property
    def loadgen(self) -> str:
        return str(self.testbed.loadgen.netns)

    def change(self, **sections: dict[str, Any]) -> None:
        """Other values for keys, by section."""
        changed = {name: dataclasses.replace(getattr(self.testbed, name), **values) for name, values in sections.items()}
        self.testbed = dataclasses.replace(self.testbed, **changed)

    @property
    def servers(self) -> Servers:
        """Servers with the PCI devices of the kernel in ``root``."""
        servers = Servers(self.testbed)
        kernel = FakeKernel(self.root)
        for server in (servers.host, servers.loadgen):
            server.__dict__["pci"] = PciDevices(FakeMachine(kernel), server.note, root=str(self.root))
        self._servers.append(servers)
        return servers

    def links(self) -> list[tuple[str, str, str | None, bool]]:
        """What there is of links in both namespaces: without what the kernel itself changes a moment later."""
        servers = self.servers
        found = [(server.name, link) for server in (servers.host, servers.loadgen) for link in server.links.all()]
        return [(name, link["ifname"], link.get("master"), "UP" in link["flags"]) for name, link in found]

    def look(self, requirement: Requirement) -> Finding:
        return requirement.look(Survey(self.servers, [requirement]))

    def close(self) -> None:
        for servers in self._servers:
            servers.__exit__(None, None, None)
            socket = servers.host.config.tmux_socket
            subprocess.run(["tmux", "-S", socket, "kill-server"], check=False, capture_output=True)
            if "state_dir" in servers.host.__dict__:
                shutil.rmtree(servers.host.state_dir, ignore_errors=True)


def make_bed(host: str, loadgen: str, folder: Path, tmux_socket: str) -> Bed:
    """The testbed of two namespaces that exist; its files are made in the folder."""
    ip(
        host,
        "link",
        "add",
        "nic",
        "address",
        HOST_MAC,
        "type",
        "veth",
        "peer",
        "name",
        "nic",
        "address",
        LOADGEN_MAC,
        "netns",
        loadgen,
    )
    for netns in (host, loadgen):
        ip(netns, "link", "set", "nic", "up")
    disk = folder / "root.img"
    disk.write_bytes(bytes(65536))
    (folder / "reflector.bpf.o").touch()
    common: dict[str, Any] = {
        "fqdn": "localhost", "test_iface": "nic", "tmux_socket": tmux_socket, "xdp_reflector_dir": str(folder),
        "moongen_dir": str(PROJECT_DIRECTORY / "moonprogs/softmoon"), "moonprogs_dir": str(folder / "moonprogs"),
    }  # fmt: skip
    testbed = Testbed(
        folder / "autotest.conf",
        HostConfig(
            **common, netns=host, test_iface_mac=HOST_MAC, test_bridge="br", test_tap="tap", test_macvtap="mvt",
            admin_bridge="adm", admin_tap="admtap", admin_bridge_ip_net="10.9.0.1/24", accelerator="tcg",
            root_disk_file=str(disk), root_disk_snapshot=True,
        ),
        GuestConfig(
            fqdn="10.9.0.2", netns=host, vcpus=1, memory=32, admin_iface_mac="52:54:00:fa:00:5f", test_iface_mac=GUEST_MAC,
            xdp_reflector_dir="/opt/xdp", moongen_dir="/opt/moongen", moonprogs_dir="/opt/moonprogs", test_iface="test",
        ),
        LoadGenConfig(**common, netns=loadgen, test_iface_mac=LOADGEN_MAC),
    )  # fmt: skip
    return Bed(testbed, folder / "machine")
