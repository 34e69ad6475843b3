"""Machines as ``autotest init`` finds them, made up for a test."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_network
from typing import Any

from autotest.discovery.machine import Machine, Nic
from autotest.discovery.proposals import Plan

HOST_MAC, LOADGEN_MAC = "b4:96:91:00:00:01", "b4:96:91:00:00:02"


def nic(name: str = "enp81s0f0", mac: str = HOST_MAC, **values: Any) -> Nic:
    """A NIC that can be the test NIC, with a link of 25 Gbit/s."""
    usual: dict[str, Any] = {
        "pci": "0000:51:00.0", "driver": "ice", "speed": 25_000, "is_up": True, "has_carrier": True, "has_group": True,
    }  # fmt: skip
    return Nic(name, mac, **(usual | values))


def machine(role: str = "host", *nics: Nic, **values: Any) -> Machine:
    """A machine that has all that can be found."""
    own = nic(mac=HOST_MAC if role == "host" else LOADGEN_MAC)
    usual: dict[str, Any] = {
        "hostname": role,
        "boot": f"boot of {role}",
        "namespace": "net:[4026531840]",
        "user": "measure",
        "home": "/home/measure",
        "cpus": 32,
        "memory": 128_000,
        "nics": nics or (own,),
        "links": frozenset(("lo", own.name)),
        "macs": frozenset((own.mac,)),
        "networks": (ip_network("10.0.7.0/24"),),
        "programs": {name: f"/usr/bin/{name}" for name in ("tmux", "socat", "luajit", "qemu-system-x86_64", "dpdk-testpmd")},
        "moongens": ("/opt/MoonGen",),
        "images": ("/srv/guest.qcow2",),
        "reflectors": ("/srv/xdp/reflector.bpf.o",),
        "devices": frozenset(("/dev/kvm", "/dev/vhost-net")),
    }
    return Machine(role, **(usual | values))


def bare(role: str, **values: Any) -> Machine:
    """One that has nothing but its NIC, which is one end of a virtual wire."""
    end = nic("wire", HOST_MAC if role == "host" else LOADGEN_MAC, pci=None, driver=None, has_group=False, is_veth=True)
    none: dict[str, Any] = {"programs": {}, "moongens": (), "images": (), "reflectors": (), "devices": frozenset()}
    return machine(role, end, **(none | values))


def plan(host: Machine | None = None, loadgen: Machine | None = None, **values: Any) -> Plan:
    """What is proposed for these machines."""
    host, loadgen = host or machine("host"), loadgen or machine("loadgen")
    proposed = Plan(
        host, loadgen, "river", "lake", None, host.candidates[0], loadgen.candidates[0],
        host.moongens[0] if host.moongens else None, loadgen.moongens[0] if loadgen.moongens else None,
        "192.168.56.1/24", "root@192.168.56.10", host.images[0] if host.images else None, "",
        host.reflectors[0].rpartition("/")[0] if host.reflectors else None,
    )  # fmt: skip
    return replace(proposed, **values)
