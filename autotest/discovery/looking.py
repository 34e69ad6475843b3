"""Looking at a machine over the ways that autotest has to it: what it has, for a configuration to be proposed.

Two questions to each machine: what :mod:`autotest.network.pci_there` tells of NICs and of who needs them, and a shell script that
looks for programs and files in the usual places. Nothing is changed there.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from autotest.config import values
from autotest.config.testbed import ServerConfig
from autotest.discovery.machine import Machine, Nic
from autotest.discovery.template import literal
from autotest.errors import ConnectError, HostKeyError, LoginRefused, TestbedError
from autotest.network.iommu import group_problem
from autotest.network.nic_use import NetworkUse, objects, parse_use, why_interface_kept
from autotest.network.pci_device import NotLinux, PciBus, PciDevice, parse_bus
from autotest.network.pci_sysfs import LOOK, PciSysfs
from autotest.servers.facts import SHOW, sections
from autotest.servers.server import Server

PROGRAMS: Final = ("tmux", "socat", "luajit", "qemu-system-x86_64", "dpdk-testpmd")
DEVICES: Final = ("/dev/kvm", "/dev/vhost-net")

_TOOLS = ("ip", "ss", "python3")
_LOOK_TIMEOUT = 60.0  # seconds; each search for files ends by itself after fewer
_MOST_FILES = 20  # of one kind
# The login's home folder is $1. The places are not searched deeper: they may be shared ones with millions of files.
_SCRIPT = f"""{SHOW}
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
search() {{
    timeout 10 find "$home" /opt /srv /scratch /var/lib/libvirt/images -xdev -maxdepth 3 -type f "$@" | sort -u | head -n {_MOST_FILES}
}}
qemus() {{
    for file in "$home"/*/bin/qemu-system-x86_64 "$home"/*/build/qemu-system-x86_64 /opt/*/bin/qemu-system-x86_64 \\
        /opt/*/build/qemu-system-x86_64 /usr/local/bin/qemu-system-x86_64 /usr/libexec/qemu-kvm; do
        if [ -x "$file" ]; then printf '%s\\n' "$file"; fi
    done
}}
moongens() {{
    for folder in "$home"/[Mm]oon[Gg]en "$home"/*/[Mm]oon[Gg]en /opt/[Mm]oon[Gg]en /opt/*/[Mm]oon[Gg]en \\
        /scratch/*/[Mm]oon[Gg]en /usr/local/[Mm]oon[Gg]en /root/[Mm]oon[Gg]en; do
        if [ -x "$folder/build/MoonGen" ] || [ -x "$folder/bin/MoonGen" ]; then printf '%s\\n' "$folder"; fi
    done | sort -u
}}
programs() {{ for program; do printf '%s %s\\n' "$program" "$(command -v "$program")"; done; }}
devices() {{ for device; do if [ -e "$device" ]; then printf '%s\\n' "$device"; fi; done; }}
speeds() {{ for folder in /sys/class/net/*; do printf '%s %s\\n' "${{folder##*/}}" "$(cat "$folder/speed")"; done; }}
wireless() {{ for folder in /sys/class/net/*; do if [ -e "$folder/phy80211" ]; then printf '%s\\n' "${{folder##*/}}"; fi; done; }}
home=$1
show hostname lines /proc/sys/kernel/hostname
show boot lines /proc/sys/kernel/random/boot_id
show namespace readlink /proc/self/ns/net
show cpus getconf _NPROCESSORS_ONLN
show memory grep ^MemTotal: /proc/meminfo
show links ip -json -details link show
show addresses ip -json address show
show routes ip -json route show table all
show speeds speeds
show wireless wireless
show lldp timeout 10 lldpctl -f json0
show programs programs {" ".join(PROGRAMS)}
show devices devices {" ".join(DEVICES)}
show qemus qemus
show moongens moongens
show images search -name '*.qcow2'
show reflectors search -name reflector.bpf.o
"""
_KIND_OF_WIRE = "veth"


def look(role: str, fqdn: str, ssh_config: str | None) -> Machine:
    """What the machine has that is reached by that name.

    Raises:
        ConnectError: it cannot be reached.
        TestbedError: sudo asks for a password there, a program is missing, or it answers what Linux does not.
    """
    server = Server(role, ServerConfig(fqdn=fqdn, ssh_config=ssh_config))
    try:
        return look_at(server)
    except HostKeyError:  # says itself what to do
        raise
    except ConnectError as error:
        command = f"`ssh {f'-F {ssh_config} ' if ssh_config else ''}{fqdn}`"
        refused = f"put a key of yours into its authorized_keys, so that {command} needs no password"
        remedy = refused if isinstance(error, LoginRefused) else f"see that {command} gets there"
        raise type(error)(f"{error}: {remedy}") from None
    finally:
        server.close()


def look_at(server: Server) -> Machine:
    """As :func:`look`, at a server."""
    server.transport.connect()
    user, _, home = server.run(["sh", "-c", 'id -un; printf %s "$HOME"']).stdout.partition("\n")
    _require_root(server, user)
    server.require_programs(_TOOLS, "looking at it")
    answers = PciSysfs(server.transport).ask({**LOOK, "network": {}}, sudo=True)
    shown = server.run(["sh", "-s", "--", home], input=_SCRIPT, sudo=True, timeout=_LOOK_TIMEOUT, check=False).stdout
    try:
        return understand(server.name, answers, sections(shown), user=user, home=home, is_local=server.transport.is_local)
    except NotLinux as error:
        raise TestbedError(f"{server.name}: it says what Linux does not: {error}") from None


def _require_root(server: Server, user: str) -> None:
    tried = server.run(["true"], sudo=True, check=False)
    if tried.code == 0:
        return
    if tried.code == 127:
        raise TestbedError(f"{server.name}: there is no sudo, and {user} is not root: log in as root, root@{server.config.fqdn}")
    raise TestbedError(
        f"{server.name}: sudo asks {user} for a password, or refuses: allow it without one "
        f"(visudo: {user} ALL=(ALL) NOPASSWD: ALL), or log in as root, root@{server.config.fqdn}"
    )


def understand(
    role: str, answers: Mapping[str, Any], shown: Mapping[str, str], *, user: str = "", home: str = "/", is_local: bool = False
) -> Machine:
    """The machine, from the answers of :mod:`autotest.network.pci_there` and what the script showed.

    Raises:
        NotLinux: these are no such answers.
    """
    bus, use = parse_bus(answers["bus"], answers["interfaces"]), parse_use(answers["network"])
    links = objects(shown.get("links", ""))
    try:
        return Machine(
            role,
            hostname=shown.get("hostname", ""),
            is_local=is_local,
            boot=shown.get("boot", ""),
            namespace=shown.get("namespace", ""),
            user=user,
            home=home if home.startswith("/") else "/",
            cpus=_number(shown.get("cpus"), 1),
            memory=_number(shown.get("memory"), 0) // 1024,
            nics=(*_nics(links, bus, use, shown), *_without_interface(bus)),
            links=frozenset(name for link in links for name in (link["ifname"], *link.get("altnames", ()))),
            macs=frozenset(str(link.get("address", "")).lower() for link in links),
            networks=tuple(_networks(objects(shown.get("addresses", "")), objects(shown.get("routes", "")))),
            programs=_pairs(shown.get("programs", "")),
            qemus=_paths(shown, "qemus"),
            moongens=_paths(shown, "moongens"),
            images=_paths(shown, "images"),
            reflectors=_paths(shown, "reflectors"),
            devices=frozenset(_paths(shown, "devices")),
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise NotLinux(f"links and addresses: {type(error).__name__} {error}") from None


def _nics(links: list[dict[str, Any]], bus: PciBus, use: NetworkUse, shown: Mapping[str, str]) -> Iterator[Nic]:
    speeds, wireless = _pairs(shown.get("speeds", "")), shown.get("wireless", "").splitlines()
    neighbours = _neighbours(shown.get("lldp", ""))
    addresses = {
        link["ifname"]: tuple(f"{info['local']}/{info['prefixlen']}" for info in link.get("addr_info", ()) if info)
        for link in objects(shown.get("addresses", ""))
    }
    for link in links:
        kind, name = link.get("linkinfo", {}).get("info_kind"), link["ifname"]
        if link.get("link_type") != "ether" or kind not in (None, _KIND_OF_WIRE) or name not in bus.interfaces:
            continue
        device = bus.devices.get(bus.interfaces[name].pci or "")
        has_carrier = "LOWER_UP" in link["flags"]
        yield Nic(
            name,
            str(link["address"]).lower(),
            pci=device.address if device else None,
            driver=device.driver if device else None,
            speed=(_number(speeds.get(name), 0) or None) if has_carrier else None,
            is_up="UP" in link["flags"],
            has_carrier=has_carrier,
            addresses=addresses.get(name, ()),
            unfit="is wireless" if name in wireless else _why_unfit(link, bus, use),
            neighbour=neighbours.get(name),
            has_group=device is not None and group_problem(device, bus) is None,
            is_veth=kind == _KIND_OF_WIRE,
        )


def _why_unfit(link: Mapping[str, Any], bus: PciBus, use: NetworkUse) -> str | None:
    if kept := why_interface_kept(link["ifname"], bus, use):
        return kept
    if "master" in link:
        return f"is a port of {link['master']}"
    try:
        values.iface(link["ifname"]), values.mac(link["address"])
    except ValueError as error:
        return f"cannot be in a configuration: {error}"
    return None


def _without_interface(bus: PciBus) -> Iterator[Nic]:
    """NICs that another driver has, or none: their MAC addresses are not to be seen."""
    for device in bus.devices.values():
        if device.is_network and not device.interfaces and not device.has_kernel_driver:
            yield Nic("", "", pci=device.address, driver=device.driver, unfit=_why_hidden(device))


def _why_hidden(device: PciDevice) -> str:
    why = f"is bound to {device.driver}" if device.driver else "has no driver"
    return f"{why}: bind it to its kernel driver to have it proposed"


def _neighbours(lldp: str) -> dict[str, str]:
    """Interface to the MAC address of the port at the other end: lldpctl(8), format json0, whose lists are always lists."""
    found = {}
    try:
        for interface in json.loads(lldp)["lldp"][0].get("interface", ()):
            ids = [each["value"] for port in interface.get("port", ()) for each in port["id"] if each["type"] == "mac"]
            if ids:
                found[str(interface["name"])] = str(ids[0]).lower()
    except (ValueError, LookupError, TypeError, AttributeError):  # there is no daemon, or another one
        return {}
    return found


def _networks(addresses: list[dict[str, Any]], routes: list[dict[str, Any]]) -> Iterator[ipaddress.IPv4Network]:
    named = [f"{info['local']}/{info['prefixlen']}" for link in addresses for info in link.get("addr_info", ()) if info]
    for text in {*named, *(str(route["dst"]) for route in routes)} - {"default"}:
        network = ipaddress.ip_network(text, strict=False)
        if isinstance(network, ipaddress.IPv4Network):
            yield network


def _pairs(text: str) -> dict[str, str]:
    pairs = (line.partition(" ") for line in text.splitlines())
    return {name: value for name, _, value in pairs if value}


def _paths(shown: Mapping[str, str], name: str) -> tuple[str, ...]:
    """Those that can be in a configuration."""
    found = []
    for line in shown.get(name, "").splitlines():
        try:
            literal(line)
            found.append(values.path(line))
        except ValueError:
            continue
    return tuple(found)


def _number(text: str | None, otherwise: int) -> int:
    """The first whole number in it; -1, the speed of a NIC without a link, is none."""
    found = re.search(r"(?<![-0-9])[0-9]{1,15}", text or "")
    return int(found[0]) if found else otherwise
