"""What is proposed for a testbed of two machines: values of ``autotest.conf``, and of a first small ``tests.conf``. Pure functions."""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from autotest.config.values import MAX_IFACE_NAME
from autotest.discovery.machine import Machine, Nic
from autotest.discovery.template import Values, literal
from autotest.traffic.reflectors import XDP_OBJECT

SOFTMOON, NO_GUEST = "softmoon", "none"  # as the user writes them, for no MoonGen and for no root disk
_SOFTMOON_DIR = "${moonprogs_dir}/softmoon"
_SSH_CONFIG = "${host:ssh_config}"
_QEMU = "qemu-system-x86_64"
_TESTPMD = "dpdk-testpmd"
_XDP_SOURCE = Path(__file__).parents[1] / "traffic/reflector.bpf.c"
_KVM, _VHOST = "/dev/kvm", "/dev/vhost-net"
_VFIO = "vfio-pci"
_MOST_VCPUS, _MOST_MEMORY, _LEAST_MEMORY, _MEMORY_STEP = 4, 4096, 512, 256  # MiB
_PRIVATE = ("192.168.0.0/16", "172.31.0.0/16", "10.213.0.0/16")
_FIRST_NETWORK = 56  # the lab's; the first ones of 192.168 are those of most homes
_GUEST_ADDRESS = 10  # within the admin network; the host has 1
_SOFTMOON_RATES, _MOONGEN_RATES = "10, 50", "100, 1000"  # kpps: what either sends on common hardware


@dataclass(frozen=True)
class Plan:
    """What was decided for the testbed, by the user or because it was proposed.

    Attributes:
        host_name, loadgen_name: as ssh knows them.
        host_nic, loadgen_nic: the two ends of the wire.
        host_moongen, loadgen_moongen: MoonGen's folders; None for softmoon.
        admin_net: the host's address in the admin network, with prefix length.
        guest_address: how the guest is reached.
        image: its root disk on the host; None for no guests.
        qemu: the program; empty for the one in PATH.
        reflector_dir: the folder on the host that holds the XDP reflector; None where none was found or named.
        has_kernel: whether the guest's kernel is booted directly, which microvm needs.
    """

    host: Machine
    loadgen: Machine
    host_name: str
    loadgen_name: str
    ssh_config: str | None
    host_nic: Nic
    loadgen_nic: Nic
    host_moongen: str | None
    loadgen_moongen: str | None
    admin_net: str
    guest_address: str
    image: str | None
    qemu: str
    reflector_dir: str | None = None
    has_kernel: bool = False


def admin_network(machines: Collection[Machine]) -> str | None:
    """The host's address in a private network that none of the machines knows; None where they know all of these."""
    known = [network for machine in machines for network in machine.networks if network.prefixlen > 0]
    every = [net for base in _PRIVATE for net in ipaddress.IPv4Network(base).subnets(new_prefix=24)]
    free = next((net for net in every[_FIRST_NETWORK:] if not any(net.overlaps(other) for other in known)), None)
    return f"{free[1]}/{free.prefixlen}" if free else None


def guest_address(admin_net: str) -> str:
    """Root's login at an address of the admin network; the host's own where there is no room.

    >>> guest_address("192.168.56.1/24")
    'root@192.168.56.10'
    """
    host = ipaddress.ip_interface(admin_net)
    found = next(address for address in (host.network[0] + _GUEST_ADDRESS, host.ip + 1, host.ip - 1) if address != host.ip)
    return f"root@{found}"


def free_name(name: str, taken: Collection[str]) -> str:
    """The name of a link, with a number behind it where there is one of that name.

    >>> free_name("br-test", ["br-test", "br-test2"])
    'br-test3'
    """
    names = (name, *(f"{name[: MAX_IFACE_NAME - len(str(number))]}{number}" for number in range(2, len(taken) + 3)))
    return next(each for each in names if each not in taken)


def guest_macs(host_nic: Nic, taken: Collection[str]) -> tuple[str, str]:
    """MAC addresses of the guest's admin and test interface, the same for the same NIC each time.

    Several guests count up from them. They are locally administered, with QEMU's prefix, and far apart.
    """
    for attempt in range(len(taken) + 1):
        first, second = hashlib.sha256(f"{host_nic.mac} {attempt}".encode()).digest()[:2]
        found = tuple(f"52:54:00:{byte:02x}:{second:02x}:01" for byte in (first & 0x7F, first | 0x80))
        if not set(found) & set(taken):
            return found[0], found[1]
    raise AssertionError("there are more attempts than addresses that are taken")


def values_of_testbed(plan: Plan) -> dict[str, dict[str, str | None]]:
    """The keys of ``configs/real-testbed.conf`` that get values, and those that are to be comments."""
    return {
        "common": {"data": literal(_data_folder(plan))},
        "host": _host(plan),
        "guest": _guest(plan),
        "loadgen": _server(plan, plan.loadgen, plan.loadgen_name, plan.loadgen_nic, plan.loadgen_moongen),
    }


def _data_folder(plan: Plan) -> str:
    """Where the programs go: below the home folder, if it is the same on both."""
    if plan.host.home == plan.loadgen.home != "/":
        return f"{plan.host.home}/autotest"
    return f"/var/tmp/autotest-{plan.host.user}"


def _server(plan: Plan, machine: Machine, name: str, nic: Nic, moongen: str | None) -> dict[str, str | None]:
    own_driver = nic.pci is not None and nic.driver is not None
    return {
        "fqdn": literal(name),
        "ssh_config": _SSH_CONFIG if plan.ssh_config else None,
        "test_iface": literal(nic.name),
        "test_iface_mac": nic.mac,
        "test_iface_addr": nic.pci if own_driver else None,
        "test_iface_driv": literal(str(nic.driver)) if own_driver else None,
        "test_iface_dpdk_driv": _VFIO if moongen and own_driver and nic.has_group else None,
        "tmux_socket": _tmux_socket(plan, machine.role),
        "moongen_dir": literal(moongen) if moongen else _SOFTMOON_DIR,
    }


def _tmux_socket(plan: Plan, role: str) -> str:
    """Two network namespaces of one machine need a tmux server each: a session runs where its server was started."""
    is_shared = plan.host.boot == plan.loadgen.boot and plan.host.namespace != plan.loadgen.namespace
    return f"autotest-${{username}}-{role}" if is_shared else "autotest-${username}"


def _host(plan: Plan) -> dict[str, str | None]:
    host = plan.host
    names = {key: free_name(name, host.links) for key, name in _LINKS.items()}
    found: dict[str, str | None] = {
        **_server(plan, host, plan.host_name, plan.host_nic, plan.host_moongen),
        **names,
        "ssh_config": literal(plan.ssh_config) if plan.ssh_config else None,
        "admin_bridge_ip_net": plan.admin_net,
        "qemu_path": literal(plan.qemu),
        "accelerator": "kvm" if _KVM in host.devices else "tcg",
        "root_disk_file": literal(plan.image) if plan.image else None,
        "test_iface_vfio_driv": _VFIO if plan.host_nic.has_group and plan.host_nic.driver else None,
        "testpmd_path": _TESTPMD if _TESTPMD in host.programs else None,
    }
    if plan.reflector_dir:
        found["xdp_reflector_dir"] = literal(plan.reflector_dir)
    return found


_LINKS = {
    "admin_bridge": "br-admin",
    "admin_tap": "tap-admin",
    "test_bridge": "br-test",
    "test_tap": "tap-test",
    "test_macvtap": "macvtap-test",
}


def _guest(plan: Plan) -> dict[str, str | None]:
    admin, test = guest_macs(plan.host_nic, plan.host.macs | plan.loadgen.macs)
    memory = min(_MOST_MEMORY, max(_LEAST_MEMORY, plan.host.memory // 4 // _MEMORY_STEP * _MEMORY_STEP))
    return {
        "fqdn": literal(plan.guest_address) if plan.image else "localhost",
        "ssh_config": _SSH_CONFIG if plan.ssh_config else None,
        "vcpus": str(max(1, min(_MOST_VCPUS, plan.host.cpus // 2))),
        "memory": str(memory),
        "admin_iface_mac": admin,
        "test_iface_mac": test,
    }


def values_of_tests(plan: Plan) -> Values:
    """The keys of ``tests.conf`` for a matrix that this testbed can measure in a few minutes, most of it set-up."""
    reflectors = ["moongen", *(["xdp"] if plan.reflector_dir else [])]
    machines = ["host"]
    if plan.image:
        machines += ["pcvm", *(["microvm"] if plan.has_kernel and plan.reflector_dir else [])]
    return {
        "load-latency": {
            "machines": ", ".join(machines),
            "interfaces": ", ".join(_interfaces(plan)),
            "vhosts": "no, yes" if plan.image and _VHOST in plan.host.devices else "no",
            "reflectors": ", ".join(reflectors),
            "rates": _MOONGEN_RATES if plan.loadgen_moongen else _SOFTMOON_RATES,
            "runtimes": "5",
            "repetitions": "2",
        }
    }


def _interfaces(plan: Plan) -> Iterator[str]:
    yield "pnic"
    if plan.image:
        yield from ("bridge", "macvtap")
        if _TESTPMD in plan.host.programs:
            yield "vhost-user"
        if plan.host_nic.has_group and plan.host_nic.driver:
            yield "vfio"


def warnings(plan: Plan) -> Iterator[str]:
    """What was not found although the tests need it, with the remedy."""
    for machine, moongen in ((plan.host, plan.host_moongen), (plan.loadgen, plan.loadgen_moongen)):
        if "tmux" not in machine.programs:
            yield f"{machine.role}: there is no tmux: install it"
        if moongen is None and "luajit" not in machine.programs:
            yield f"{machine.role}: there is neither MoonGen nor luajit for softmoon: install luajit, or correct moongen_dir"
    nic = plan.loadgen_nic
    if plan.loadgen_moongen and not (nic.pci and nic.has_group):
        yield (
            "loadgen: the test NIC has no IOMMU group of its own, so MoonGen uses it through the kernel, which is slow: "
            "switch the IOMMU on, or set test_iface_dpdk_driv to igb_uio or uio_pci_generic"
        )
    if plan.image:
        if not plan.qemu and _QEMU not in plan.host.programs:
            yield f"host: there is no {_QEMU} in PATH: install it, or set qemu_path"
        if _KVM not in plan.host.devices:
            yield "host: there is no /dev/kvm: guests are emulated, and slow; switch virtualisation on in the firmware's settings"
        if _VHOST not in plan.host.devices:
            yield "host: there is no /dev/vhost-net: modprobe vhost_net; then tests.conf can have vhosts = no, yes"
    if not plan.reflector_dir:
        yield (
            f"host: {XDP_OBJECT} was not found, so the tests have reflector moongen alone; for xdp: clang -O2 -g -target bpf -c "
            f"{_XDP_SOURCE} -o {XDP_OBJECT}, put it into xdp_reflector_dir of host and guest, and add it to reflectors"
        )
