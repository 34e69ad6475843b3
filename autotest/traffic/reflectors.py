"""Reflectors: what swaps the MAC addresses of test frames on the DuT and sends them back."""

from __future__ import annotations

import logging
import posixpath
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from autotest.errors import CommandError, TrafficError
from autotest.results.identity import checksum
from autotest.servers.checksums import (
    file_checksum,
    generator_checksum,
    program_checksum,
)
from autotest.servers.server import Server
from autotest.traffic import dpdk, moongen
from autotest.traffic.moongen import MoonGen

log = logging.getLogger(__name__)

XDP_OBJECT = "reflector.bpf.o"
_XDP_SECTION = "xdp"
_PROGRAM, _READY = "reflector.lua", "reflector ready"
_READY_TIMEOUT = 30.0  # seconds; MoonGen initialises DPDK first


@dataclass(frozen=True)
class ReflectorKind:
    """A way to reflect.

    Attributes:
        name: as ``reflectors`` in ``tests.conf`` names it.
        keys: keys of the DuT's section that it needs.
        needs_pci: whether it drives a PCI device itself.
        needs_programs: whether the MoonGen programs must be on the DuT.
        up: starts reflecting on an interface of the server; returns when it does.
        down: stops that; nothing if it does not reflect.
        check: raises TrafficError when it does not reflect any more; with what it wrote last.
        checksum: over its program, from the server, this machine's folder of programs, and whether the server is there:
            a guest that is not is not asked. None where that cannot be told.
    """

    name: str
    keys: tuple[str, ...]
    needs_pci: bool
    needs_programs: bool
    up: Callable[[Server, str], None]
    down: Callable[[Server, str], None]
    check: Callable[[Server, str], None]
    checksum: Callable[[Server, Path, bool], str | None]


def _moongen_up(server: Server, iface: str) -> None:
    dpdk.make_nic_ready(server, iface)
    if server.config.test_iface_dpdk_driv is None:  # else there is no interface of the kernel any more
        server.wait_for_carrier(iface)
    MoonGen(server, iface).start(_PROGRAM, [], _READY, _READY_TIMEOUT)


def _moongen_down(server: Server, iface: str) -> None:
    MoonGen(server, iface).stop(_PROGRAM)


def _moongen_check(server: Server, iface: str) -> None:
    MoonGen(server, iface).check(_PROGRAM)


def _moongen_checksum(server: Server, local_programs: Path, is_there: bool) -> str | None:
    parts = {
        "program": program_checksum(local_programs, _PROGRAM),
        "generator": generator_checksum(server, local_programs, is_there),
    }
    return checksum(parts)


def _xdp_up(server: Server, iface: str) -> None:
    """Load the XDP program: in the driver where it can, else in the generic layer."""
    folder = server.config.xdp_reflector_dir
    assert folder
    dpdk.kernel_interface(server, iface)
    mode = _load_xdp(server, iface, posixpath.join(folder, XDP_OBJECT))
    log.debug("%s: XDP reflector on %s, %s", server.name, iface, mode)
    server.links.up(iface)
    server.wait_for_carrier(iface)


def _load_xdp(server: Server, iface: str, path: str) -> str:
    link = server.links.require(iface)
    # Over veth a driver's XDP_TX loses every frame unless the peer runs an XDP program too.
    is_veth = link.get("linkinfo", {}).get("info_kind") == "veth"
    errors = []
    for mode in ("xdpgeneric",) if is_veth else ("xdpdrv", "xdpgeneric"):
        try:
            server.links.attach_xdp(iface, mode, path, _XDP_SECTION)
            return mode
        except CommandError as error:
            errors.append(error.stderr.strip())
    if server.run(["test", "-r", path], sudo=True, check=False).code != 0:
        raise TrafficError(f"{server.name}: there is no {path}: xdp_reflector_dir must hold {XDP_OBJECT}")
    raise TrafficError(f"{server.name}: the XDP reflector does not load on {iface}: {'; '.join(errors)}")


def _xdp_down(server: Server, iface: str) -> None:
    for mode in ("xdpdrv", "xdpgeneric"):
        server.links.detach_xdp(iface, mode)


def _xdp_check(server: Server, iface: str) -> None:
    if not server.links.has_xdp(iface):
        raise TrafficError(f"{server.name}: the XDP reflector is gone from {iface}")


def _xdp_checksum(server: Server, local_programs: Path, is_there: bool) -> str | None:
    folder = server.config.xdp_reflector_dir
    return file_checksum(server, posixpath.join(folder, XDP_OBJECT)) if folder and is_there else None


REFLECTOR_KINDS = {
    kind.name: kind
    for kind in (
        ReflectorKind("moongen", moongen.KEYS, True, True, _moongen_up, _moongen_down, _moongen_check, _moongen_checksum),
        ReflectorKind(
            "xdp",
            ("test_iface", "test_iface_mac", "xdp_reflector_dir"),
            False,
            False,
            _xdp_up,
            _xdp_down,
            _xdp_check,
            _xdp_checksum,
        ),
    )
}
