"""What must hold of every QEMU command line, and how its parts render; whole lines are in test_golden.py."""

from __future__ import annotations

import dataclasses
import subprocess
from pathlib import Path
from typing import Any

import pytest

from autotest.config.testbed import GuestConfig, HostConfig
from autotest.interfaces import INTERFACE_KINDS, InterfaceOptions
from autotest.interfaces.kind import MACVTAP_FD
from autotest.qemu import qmp
from autotest.qemu.parts import (
    Disk,
    GdbServer,
    Machine,
    SharedFolder,
    TapBackend,
    VirtioNet,
    program_of,
    properties,
)
from autotest.remote.local import LocalTransport
from autotest.remote.wait import wait_for
from autotest.servers.guest import GuestSettings, qemu_command_line, with_overrides

HOST = HostConfig(fqdn="h", admin_tap="admtap", test_tap="tap", test_macvtap="mvt", root_disk_file="/d/root.qcow2")
GUEST = GuestConfig(fqdn="g", vcpus=2, memory=512, admin_iface_mac="52:54:00:fa:00:5f", test_iface_mac="52:54:00:fa:00:60")
KERNEL: dict[str, Any] = {"kernel": "/k/vmlinux", "initrd": "/k/initrd", "kernel_args": "console=ttyS0 panic=-1"}


def command(
    machine: str = "pcvm", interface: str = "bridge", *, host: HostConfig = HOST, guest: GuestConfig = GUEST,
    accelerator: str = "tcg", tsc_khz: int | None = None, gdb: str | None = None, qmp: str = "/s/qmp", **settings: Any
) -> list[str]:  # fmt: skip
    return qemu_command_line(
        host, guest, GuestSettings(machine, INTERFACE_KINDS[interface], "", InterfaceOptions(**settings)),
        program="qemu", accelerator=accelerator, tsc_khz=tsc_khz, qmp_socket=qmp, gdb_socket=gdb,
    ).render()  # fmt: skip


@pytest.mark.parametrize("machine", ["pcvm", "microvm"])
@pytest.mark.parametrize("interface", ["bridge", "macvtap"])
@pytest.mark.parametrize("vhost", [False, True])
def test_the_test_interface_follows_machine_interface_and_vhost(machine: str, interface: str, vhost: bool) -> None:
    given = command(machine, interface, vhost=vhost)
    backend = "ifname=tap,script=no,downscript=no" if interface == "bridge" else f"fd={MACVTAP_FD}"
    assert f"tap,id=test,{backend},vhost={'on,vhostforce=on' if vhost else 'off'}" in given
    bus = "device" if machine == "microvm" else "pci"
    assert [part for part in given if part.startswith(f"virtio-net-{bus},netdev=test")]
    assert not [part for part in given if "use-ioregionfd" in part or "queue_size" in part]
    assert "tap,id=admin,ifname=admtap,script=no,downscript=no,vhost=off" in given


def test_the_rate_of_the_counter_is_told_to_a_kernel_only() -> None:
    guest = dataclasses.replace(GUEST, **KERNEL)
    assert "console=ttyS0 panic=-1 tsc_early_khz=2600000" in command(guest=guest, tsc_khz=2600000)
    assert not [part for part in command(tsc_khz=2600000) if "tsc" in part]


@pytest.mark.parametrize(
    ("accelerator", "model", "cpu"), [("kvm", None, "host"), ("tcg", None, "max"), ("kvm", "qemu64", "qemu64")]
)
def test_the_cpu_model_fits_the_accelerator_unless_it_is_given(accelerator: str, model: str | None, cpu: str) -> None:
    given = command(accelerator=accelerator, guest=dataclasses.replace(GUEST, cpu_model=model))
    assert given[given.index("-cpu") + 1] == cpu


def test_overrides_of_the_command_line_win_and_leave_the_rest() -> None:
    assert with_overrides(HOST, GUEST, None, None, None) == (HOST, GUEST)
    host, guest = with_overrides(HOST, GUEST, 8, 4096, "/other.img")
    assert (guest.vcpus, guest.memory, host.root_disk_file) == (8, 4096, "/other.img")
    assert Disk("/other.img").format == "raw"


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"a": True, "b": False, "c": None, "d": 1}, "h,a=on,b=off,d=1"),
        ({"file": "x,readonly=on", "y": ",,"}, "h,file=x,,readonly=on,y=,,,,"),
        ({"a": "'\" $(x)"}, "h,a='\" $(x)"),
        ({"a": ""}, "h,a="),
    ],
)
def test_properties_are_escaped_as_qemu_wants_it(values: dict[str, Any], expected: str) -> None:
    assert properties("h", values) == expected


def test_multiqueue_is_said_to_backend_and_device() -> None:
    tap, macvtap = TapBackend("t", queues=4), TapBackend(fds=(9, 10, 11, 12), queues=4)
    for backend, said in ((tap, "ifname=t,script=no,downscript=no,queues=4"), (macvtap, "fds=9:10:11:12")):
        net = VirtioNet("n", "52:54:00:00:00:02", backend)
        pc, microvm = (net.render(Machine(machine)) for machine in ("pc", "microvm"))
        assert pc[1] == microvm[1] == f"tap,id=n,{said},vhost=off"
        assert "mq=on,vectors=10" in pc[3] and "mq=on" in microvm[3] and "vectors" not in microvm[3]


def test_memory_that_another_process_maps_is_shared_and_huge_pages_are_taken_at_once() -> None:
    for machine, memory in (
        (Machine("pc", memory=64, shared_memory=True), "share=on"),
        (Machine("microvm", memory=64, hugepages=True), "share=off,hugetlb=on,prealloc=on"),
    ):
        rendered = machine.render()
        assert rendered[1].endswith(",memory-backend=memory")
        assert rendered[-2:] == ["-object", f"memory-backend-memfd,id=memory,size=64M,{memory}"]


@pytest.mark.parametrize(
    ("path", "program"),
    [
        ("", "qemu-system-x86_64"),
        ("/opt/qemu", "/opt/qemu/qemu-system-x86_64"),
        ("/opt/qemu/", "/opt/qemu/qemu-system-x86_64"),
        ("/opt/qemu/qemu-system-x86_64", "/opt/qemu/qemu-system-x86_64"),
        ("/opt/qemu-system-x86_64/qemu-system-i386", "/opt/qemu-system-x86_64/qemu-system-i386"),
    ],
)
def test_the_path_of_a_build_names_the_program_or_its_folder(path: str, program: str) -> None:
    assert program_of(path) == program


# -- what a real QEMU makes of it --------------------------------------------------------------------------


def qemu_takes(arguments: list[str], netns: str, tmp_path: Path) -> dict[str, Any]:
    """Start QEMU stopped, ask it over QMP, end it; returns drives and NICs as it knows them."""
    transport = LocalTransport("host", netns)
    socket = str(tmp_path / "qmp,x=1")
    process = subprocess.Popen(
        transport.argv(["qemu-system-x86_64", "-S", *arguments[1:]]), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )  # fmt: skip
    try:

        def listening() -> bool:
            assert process.poll() is None, process.stderr and process.stderr.read()
            return qmp.is_listening(transport, socket)

        wait_for(listening, "QEMU", 10, 0.02)
        with qmp.connect(transport, socket) as control:
            assert control.status() in ("prelaunch", "paused")
            blocks = control.command("query-block")
            nics = control.command("query-rx-filter")
            control.command("quit")
        assert process.wait(5) == 0
        return {"files": [block["inserted"]["file"] for block in blocks if "inserted" in block], "nics": nics}
    finally:
        process.kill()
        process.wait()
        if process.stderr:
            process.stderr.close()


@pytest.mark.parametrize("machine", ["pcvm", "microvm"])
def test_a_real_qemu_takes_the_line_and_hostile_paths_stay_paths(netns: str, tmp_path: Path, machine: str) -> None:
    disk = tmp_path / "d,readonly=on,file=x 'y'\".img"
    disk.write_bytes(b"\0" * 65536)
    for tap in ("admtap", "tap"):
        subprocess.run(["ip", "-n", netns, "tuntap", "add", "dev", tap, "mode", "tap"], check=True)
    host = dataclasses.replace(HOST, root_disk_file=str(disk))
    sizes: dict[str, Any] = {"rx_queue_size": 512, "tx_queue_size": 256}
    given = command(
        machine, host=host, guest=dataclasses.replace(GUEST, vcpus=1, memory=32), qmp=str(tmp_path / "qmp,x=1"),
        gdb=str(tmp_path / "gdb,y"), **sizes,
    )  # fmt: skip
    known = qemu_takes(given, netns, tmp_path)
    assert known["files"] == [str(disk)]
    assert sorted(nic["main-mac"] for nic in known["nics"]) == [GUEST.admin_iface_mac, GUEST.test_iface_mac]


def test_parts_that_need_no_guest_render_alone() -> None:
    assert SharedFolder("home", "/a,b").render(Machine("microvm")) == [
        *("-fsdev", "local,id=fs-home,path=/a,,b,security_model=none"),
        *("-device", "virtio-9p-device,fsdev=fs-home,mount_tag=home"),
    ]
    assert GdbServer("/g,h").render(Machine("pc"))[1] == "socket,id=gdb,path=/g,,h,server=on,wait=off"
