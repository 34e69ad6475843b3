"""A plan of a thousand guests, without any machine: what each has is its own, and the kernel and all programs take it."""

from __future__ import annotations

import ipaddress
import re
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from autotest.config.testbed import Testbed, load_testbed
from autotest.config.tests import load_all
from autotest.errors import ConfigError
from autotest.interfaces import INTERFACE_KINDS, InterfaceOptions
from autotest.measurements.load_latency import KIND
from autotest.qemu.parts import CommandLine
from autotest.run.campaign import Campaign
from autotest.servers.guest import GuestSettings, qemu_command_line
from autotest.servers.host import Host
from autotest.servers.virtual_machine import VirtualMachine

COUNT = 1000
STATE = "/run/autotest/" + "s" * 64  # the longest that a plain name makes it
NICS = ", ".join(f"0000:{bus:02x}:{device:02x}.{function} 02:00:00:00:{bus:02x}:{device * 8 + function:02x}"
                 for bus in range(4, 8) for device in range(32) for function in range(8))  # fmt: skip
CONF = f"""
[host]
fqdn = host.example
test_iface = eth1
test_iface_mac = b4:96:91:00:00:01
test_iface_addr = 0000:03:00.0
test_iface_vfio_driv = vfio-pci
guest_nics = {NICS}
admin_bridge = adm
admin_bridge_ip_net = 10.9.0.1/16
admin_tap = tapa
test_bridge = br
test_tap = tapt
test_macvtap = mvt
root_disk_file = /guest.qcow2
xdp_reflector_dir = /xdp
vmux_path = /vmux
vmux_socket_path = /run/vmux.sock
[guest]
fqdn = {{fqdn}}
admin_iface_mac = 52:54:00:fb:00:60
test_iface_mac = 52:54:00:fa:00:60
kernel = /vmlinux
kernel_args = autotest.admin=${{{{admin_iface_mac}}}},10.9.0.2/16
    autotest.test=${{{{test_iface_mac}}}},${{{{host:test_iface_mac}}}}
test_iface = test
xdp_reflector_dir = /xdp
[loadgen]
fqdn = loadgen.example
test_iface = eth1
test_iface_mac = b4:96:91:00:00:02
moongen_dir = /moongen
moonprogs_dir = /moonprogs
[local]
moonprogs_dir = {{moonprogs}}
"""
TESTS = """
[many]
machines = {machine}
interfaces = {interfaces}
guests = {guests}
reflectors = xdp
rates = 10
sizes = 60
runtimes = 1
outputdir = {folder}/results
"""
MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")


def configured(folder: Path, repository: Path, fqdn: str = "10.9.0.2", **changed: str) -> Testbed:
    content = CONF.format(fqdn=fqdn, moonprogs=repository / "moonprogs")
    for key, value in changed.items():
        content, count = re.subn(rf"(?m)^{key} = .*$", f"{key} = {value}", content, count=1)
        assert count == 1
    (folder / "autotest.conf").write_text(content)
    return load_testbed(folder / "autotest.conf", folder)


def campaign(folder: Path, interfaces: str, guests: str = str(COUNT), machine: str = "pcvm") -> Campaign:
    file = folder / "tests.conf"
    file.write_text(TESTS.format(machine=machine, interfaces=interfaces, guests=guests, folder=folder))
    return Campaign(KIND, load_all([file], folder, KIND.parameters, KIND.settings))


def command_line(machine: VirtualMachine, interface: str) -> CommandLine:
    settings = GuestSettings("pcvm", INTERFACE_KINDS[interface], "", InterfaceOptions())
    host = machine._as_it_is(machine.config)
    return qemu_command_line(
        host, machine.testbed.guest, settings, program="qemu", accelerator="kvm", tsc_khz=None, qmp_socket=machine.qmp_socket
    )


def each_its_own(values: Iterable[str | None]) -> list[str]:
    found = [value for value in values if value]
    assert len(found) == len(set(found)) == COUNT, [value for value, count in Counter(found).items() if count > 1][:5]
    return found


@pytest.mark.parametrize("interface", ["bridge", "macvtap", "vhost-user", "vfio", "vmux-pt", "vmux-emu"])
def test_a_thousand_guests_have_all_that_is_theirs_alone(tmp_path: Path, repository: Path, interface: str) -> None:
    bed = configured(tmp_path, repository)
    campaign(tmp_path, interface).check(bed)
    host = Host(bed)
    host.__dict__["state_dir"] = STATE
    machines = [host.machine(number) for number in range(1, COUNT + 1)]
    kind = INTERFACE_KINDS[interface]
    for machine in machines:
        machine.one_of_several = True

    names = each_its_own(machine.name for machine in machines)
    sessions = each_its_own(machine.session.name for machine in machines)
    assert sessions == names and all(re.fullmatch(r"[a-z0-9]{1,64}", name) for name in names)
    if kind.session:
        each_its_own(host.session(machine.own_name(kind.session)).name for machine in machines)
    assert {host.named_machine(name).number for name in names} == set(range(1, COUNT + 1))

    links = [machine.config.admin_tap or "" for machine in machines]
    links += [machine.nic_link for machine in machines] if interface == "vhost-user" else []
    for key in {"test_tap", "test_macvtap"} & {*kind.host_keys, *kind.host_keys_of_guest}:
        links += [getattr(machine.config, key) for machine in machines]
    links += [name for name in (bed.host.test_iface, bed.host.admin_bridge, bed.host.test_bridge) if name]
    assert len(set(links)) == len(links) >= COUNT + 3 and max(map(len, links)) <= 15  # IFNAMSIZ of the kernel, less a byte

    sockets = each_its_own(machine.qmp_socket for machine in machines)
    if kind.socket:
        sockets += each_its_own(machine.socket(str(kind.socket)) for machine in machines)
    assert len(set(sockets)) == len(sockets) and max(len(path.encode()) for path in sockets) <= 107  # sun_path, less a byte
    assert all(len(path.rpartition("/")[2]) <= 255 for path in sockets)

    addresses = each_its_own(machine.testbed.guest.fqdn for machine in machines)
    network = ipaddress.ip_interface(str(bed.host.admin_bridge_ip_net))
    parsed = {ipaddress.ip_address(address) for address in addresses}
    assert all(address in network.network for address in parsed)
    assert not parsed & {network.ip, network.network.broadcast_address, network.network.network_address}

    taken = [kind.dut_mac("pcvm", machine.testbed) for machine in machines]
    macs = each_its_own(taken) + each_its_own(machine.testbed.guest.admin_iface_mac for machine in machines)
    macs += [str(bed.loadgen.test_iface_mac)]
    assert len(set(macs)) == len(macs) and all(MAC.fullmatch(mac) and not int(mac[:2], 16) & 1 for mac in macs)
    if kind.nic_driver(bed.host):
        each_its_own(machine.nic_address for machine in machines)

    lines = [command_line(machine, interface).render() for machine in machines]
    each_its_own("\0".join(line) for line in lines)
    for line, machine in zip(lines, machines, strict=True):
        text = " ".join(line)
        assert str(machine.config.admin_tap) in text and str(machine.testbed.guest.admin_iface_mac) in text
        assert f"{machine.testbed.guest.admin_iface_mac},{machine.testbed.guest.fqdn}/16" in text  # of the kernel's arguments
        assert machine.qmp_socket in text and "snapshot=on" in text
        assert max(len(word) for word in line) < 4096  # what the kernel takes of a guest's command line


def test_names_of_a_thousand_guests_are_names_too(tmp_path: Path, repository: Path) -> None:
    bed = configured(tmp_path, repository, fqdn="vm.example.org")
    campaign(tmp_path, "bridge").check(bed)
    names = each_its_own(Host(bed).machine(number).guest.config.fqdn for number in range(1, COUNT + 1))
    assert names[:2] + names[-1:] == ["vm.example.org", "vm2.example.org", "vm1000.example.org"]
    assert not set(names) & {bed.host.fqdn, bed.loadgen.fqdn}


def test_a_plan_of_every_number_of_guests_is_checked_in_a_moment(tmp_path: Path, repository: Path) -> None:
    bed = configured(tmp_path, repository)
    plan = campaign(tmp_path, "bridge, macvtap, vhost-user, vfio", ", ".join(map(str, range(1, COUNT + 1))))
    start = time.perf_counter()
    plan.check(bed)
    assert len(list(plan.set_ups())) == 4 * COUNT
    assert time.perf_counter() - start < 5  # 0.1 s on an idle machine


def test_what_a_plan_has_no_room_for_is_refused_with_the_largest_number_that_works(tmp_path: Path, repository: Path) -> None:
    changed = {"test_tap": "tap-of-guests", "test_macvtap": "macvtap-test", "guest_nics": NICS.partition(",")[0]}
    bed = configured(tmp_path, repository, fqdn="10.9.255.0", **changed)
    with pytest.raises(ConfigError) as caught:
        campaign(tmp_path, "bridge, macvtap, vfio, vhost-user", "1, 4, 300, 2").check(bed)
    found = {(problem.file.name, problem.section, problem.key): problem.message for problem in caught.value.problems}
    assert {key: message.rpartition(": ")[2] for key, message in found.items()} == {
        ("autotest.conf", "host", "test_tap"): "room for at most 9 guests with interface bridge, not 300",
        ("autotest.conf", "host", "test_macvtap"): "room for at most 99 guests with interface macvtap, not 300",
        ("autotest.conf", "host", "guest_nics"): "room for at most 2 guests with interface vfio, not 300",
        ("autotest.conf", "guest", "fqdn"): "room for at most 255 guests with interface bridge, not 300",
    }
    campaign(tmp_path, "bridge, macvtap, vfio, vhost-user", "1, 2").check(bed)


def test_one_guest_and_none_are_refused_nothing(tmp_path: Path, repository: Path) -> None:
    changed = {"test_tap": "t" * 15, "admin_tap": "a" * 15, "guest_nics": "", "admin_bridge_ip_net": "10.9.0.1/30"}
    bed = configured(tmp_path, repository, **changed)
    campaign(tmp_path, "bridge, macvtap, vfio, vhost-user", "1").check(bed)
    campaign(tmp_path, "bridge", machine="host").check(configured(tmp_path, repository, **changed))
