"""What a command line needs of a QEMU build: found in the line itself, asked from the real QEMU and from others made of it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import fake_qemu
import pytest
from preflight_bed import Bed

from autotest.errors import TestbedError
from autotest.interfaces import INTERFACE_KINDS, InterfaceOptions
from autotest.preflight.needs import needs_of_guest
from autotest.preflight.preflight import require
from autotest.preflight.qemu import (
    Build,
    QemuMachine,
    QemuProgram,
    QemuType,
    needs_of_qemu,
    split_options,
)
from autotest.preflight.requirement import Requirement
from autotest.qemu import capabilities
from autotest.servers.guest import GuestSettings

REAL = Build("default", "qemu-system-x86_64")
_SUBJECT = re.compile(r"^host: QEMU \w+: ((machine|device|object): )?")
ABOUT_QEMU = (QemuProgram, QemuMachine, QemuType)


def line(*words: str) -> list[str]:
    return ["qemu-system-x86_64", "-nodefaults", "-machine", "pc,memory-backend=memory", *words]


def failures(bed: Bed, requirements: Sequence[Requirement]) -> list[str]:
    """What is missing, each with its remedy."""
    try:
        require(bed.servers, [each for each in requirements if isinstance(each, ABOUT_QEMU)])
    except TestbedError as error:
        return [_SUBJECT.sub("", line) for line in str(error).splitlines()]
    return []


def of_guest(bed: Bed, machine: str, interface: str, program: str = "", /, **options: object) -> list[Requirement]:
    settings = GuestSettings(machine, INTERFACE_KINDS[interface], program, InterfaceOptions(**options))  # type: ignore[arg-type]
    return list(needs_of_guest(bed.testbed, settings, "patched" if program else "default"))


def test_values_are_split_as_qemu_splits_them() -> None:
    assert split_options("virtio-net-pci,netdev=a,,b,mac=x=y,romfile=") == [
        ("virtio-net-pci", ""), ("netdev", "a,b"), ("mac", "x=y"), ("romfile", "")
    ]  # fmt: skip
    assert split_options("local,path=/a,,,,b,,,id=x") == [("local", ""), ("path", "/a,,b,"), ("id", "x")]


def test_a_command_line_needs_its_machine_and_what_is_set_of_devices_and_objects() -> None:
    words = line("-object", "memory-backend-memfd,id=memory,share=on", "-device", "e1000,netdev=n,id=x,mac=a", "-m", "64")
    machine, memory, nic = list(needs_of_qemu("host", REAL, words))[1:]
    after = (QemuProgram("host", REAL),)
    assert machine == QemuMachine("host", REAL, "pc", after=after)
    assert memory == QemuType("host", REAL, "memory-backend-memfd", ("share",), True, after=after)
    assert nic == QemuType("host", REAL, "e1000", ("netdev", "mac"), after=after)


def test_equal_parts_of_different_guests_are_one_requirement(bed: Bed) -> None:
    one, other = (set(of_guest(bed, "pcvm", interface)) for interface in ("bridge", "macvtap"))
    assert {each for each in one if isinstance(each, ABOUT_QEMU)} == {each for each in other if isinstance(each, ABOUT_QEMU)}


@pytest.mark.parametrize(
    ("machine", "interface"),
    [("pcvm", "bridge"), ("pcvm", "macvtap"), ("pcvm", "bridge-e1000"), ("pcvm", "bridge-rtl8139"), ("pcvm", "vfio"),
     ("pcvm", "vhost-user"), ("microvm", "bridge"), ("microvm", "macvtap"), ("microvm", "vhost-user")],
)  # fmt: skip
def test_the_real_qemu_has_what_the_guests_of_an_unpatched_build_need(bed: Bed, machine: str, interface: str) -> None:
    kind = INTERFACE_KINDS[interface]
    bed.change(host={"test_iface_addr": "0000:01:00.0", "fsdevs": (("home", "/home,x"),)}, guest={"hugepages": True})
    options: dict[str, object] = {"queues": 2, "rx_queue_size": 512, "vhost": kind.vhost} if kind.queues else {}
    assert failures(bed, of_guest(bed, machine, interface, **options)) == []


def test_a_build_without_ioregionfd_is_named_with_its_path_and_what_it_needs(bed: Bed, tmp_path: Path) -> None:
    wanted = of_guest(bed, "microvm", "bridge", ioregionfd=True)
    (failure,) = failures(bed, wanted)
    assert failure.startswith("qemu-system-x86_64: virtio-net-device has no property use-ioregionfd; ")
    assert "needs the QEMU that is patched for ioregionfd" in failure and "qemus" in failure
    patched = fake_qemu.build(tmp_path, more=fake_qemu.IOREGIONFD)
    assert failures(bed, of_guest(bed, "microvm", "bridge", patched, ioregionfd=True)) == []


def test_vmux_needs_a_build_with_vfio_user(bed: Bed, tmp_path: Path) -> None:
    bed.change(host={"vmux_path": "/opt/vmux", "vmux_socket_path": "/run/vmux.sock", "test_iface_vfio_driv": "vfio-pci"})
    bed.change(host={"test_iface_addr": "0000:01:00.0"})
    (failure,) = failures(bed, of_guest(bed, "pcvm", "vmux-emu"))
    assert "qemu-system-x86_64 has no device vfio-user-pci" in failure and "vmux_qemu_path" in failure
    bed.change(host={"vmux_qemu_path": fake_qemu.build(tmp_path, more=fake_qemu.VFIO_USER)})
    assert failures(bed, of_guest(bed, "pcvm", "vmux-emu")) == []


def test_missing_machine_types_devices_and_objects_are_named(bed: Bed, tmp_path: Path) -> None:
    less = fake_qemu.build(tmp_path, less=["microvm", "virtio-blk-device"])
    named = failures(bed, of_guest(bed, "microvm", "bridge", less))
    assert [each.partition(";")[0] for each in named] == [
        f"{less} has no machine type microvm", f"{less} has no device virtio-blk-device"
    ]  # fmt: skip
    (failure,) = failures(bed, list(needs_of_qemu("host", REAL, line("-object", "memory-backend-none,id=m"))))
    assert "has no object type memory-backend-none" in failure


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda folder: str(folder / "gone"), "there is no such program; install it there"),
        (
            lambda folder: fake_qemu.dying(folder, "libfoo.so: cannot open"),
            "exit code 1: libfoo.so: cannot open; see whether it starts",
        ),
        (lambda folder: fake_qemu.saying(folder, "hello"), "does not speak QMP"),
    ],
    ids=["missing", "dying", "no QEMU"],
)
def test_a_build_that_does_not_start_is_one_failure_and_not_one_for_each_device(
    bed: Bed, tmp_path: Path, make, reason: str
) -> None:  # type: ignore[no-untyped-def]
    program = make(tmp_path)
    (failure,) = failures(bed, list(needs_of_qemu("host", Build("broken", program), line("-device", "e1000"))))
    assert failure.startswith(program) and reason in failure


def test_a_build_is_asked_once_about_all_devices(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, set[str]]] = []
    inquire = capabilities.inquire

    def counted(transport, program, devices=(), objects=(), **more):  # type: ignore[no-untyped-def]
        asked.append((program, set(devices)))
        return inquire(transport, program, devices, objects, **more)

    monkeypatch.setattr("autotest.preflight.qemu.inquire", counted)
    both = [*of_guest(bed, "pcvm", "bridge"), *of_guest(bed, "pcvm", "bridge-e1000")]
    assert failures(bed, both) == []
    assert asked == [("qemu-system-x86_64", {"virtio-net-pci", "virtio-blk-pci", "e1000"})]
