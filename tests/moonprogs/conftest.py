"""Fixtures: two network namespaces joined by a veth pair.

Everything needs root and says so by failing, not by skipping: a lab that cannot send frames proves nothing.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

# test modules are imported by path: their folder is not otherwise on it
sys.path.insert(0, str(Path(__file__).parent))

from moonwire import DUT_MAC, LOADGEN_MAC, Machine, Wire, run

_numbers = itertools.count()


@pytest.fixture(scope="session")
def dpdk_config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("softmoon") / "dpdk-conf.lua"
    path.write_text(
        'DPDKConfig { cli = { "--no-huge", "-m", "256", "--no-pci", "--file-prefix", "test", '
        '"--vdev", "net_af_packet0,iface=veth0,qpairs=2" } }\n'
    )
    return path


@pytest.fixture
def wire(dpdk_config: Path) -> Iterator[Wire]:
    """Two machines joined by a veth pair, for one test."""
    assert os.geteuid() == 0, "these tests send real frames in network namespaces and need root"
    prefix = f"at-moon-{os.getpid()}-{next(_numbers)}"
    loadgen, dut = (Machine(f"{prefix}-{end}", dpdk_config) for end in "ab")
    created: list[Machine] = []
    try:
        for machine in (loadgen, dut):
            run("ip", "netns", "add", machine.namespace)
            created.append(machine)
            # no neighbour discovery: every frame on the wire is the test's
            run("ip", "netns", "exec", machine.namespace, "sysctl", "-qw", "net.ipv6.conf.default.disable_ipv6=1")
        loadgen.ip(
            "link",
            "add",
            "veth0",
            "address",
            LOADGEN_MAC,
            "type",
            "veth",
            "peer",
            "name",
            "veth0",
            "netns",
            dut.namespace,
            "address",
            DUT_MAC,
        )
        for machine in (loadgen, dut):
            machine.ip("link", "set", "veth0", "up")
        yield Wire(loadgen, dut)
    finally:
        for machine in created:
            machine.end_processes()
            run("ip", "netns", "del", machine.namespace, check=False)


@pytest.fixture
def program(tmp_path: Path) -> Callable[[str], Path]:
    """Write a MoonGen program of the given text."""

    def write(text: str) -> Path:
        path = tmp_path / "program.lua"
        path.write_text(text)
        return path

    return write
