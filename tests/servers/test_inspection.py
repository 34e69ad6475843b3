"""One look at the machines of a testbed: what determines a result, and what a record says of them."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from autotest.config.testbed import GuestConfig, HostConfig, LoadGenConfig, Testbed
from autotest.interfaces import INTERFACE_KINDS, InterfaceOptions
from autotest.measurements.load_latency import KIND
from autotest.network.pci import PciDevices
from autotest.network.pci_device import PciDevice
from autotest.plan.parameters import Case
from autotest.results.identity import Identity, differences
from autotest.servers.facts import MachineFacts, Nic
from autotest.servers.guest import GuestSettings
from autotest.servers.inspection import Inspection, git_revision, name_of_testbed
from autotest.servers.testbed import Servers

pytestmark = pytest.mark.default


@pytest.fixture
def testbed(tmp_path: Path) -> Testbed:
    """A testbed on this machine: an image, kernel and initrd that are files, the QEMU that is installed."""
    for name in ("image", "kernel", "initrd", "reflector.bpf.o"):
        (tmp_path / name).write_text(name)
    programs = Path(__file__).resolve().parents[2] / "moonprogs"
    host = HostConfig(
        fqdn="localhost", test_iface="lo", root_disk_file=str(tmp_path / "image"), root_disk_snapshot=True, accelerator="tcg",
        test_bridge="br", xdp_reflector_dir=str(tmp_path),
    )  # fmt: skip
    guest = GuestConfig(
        fqdn="nobody.invalid", kernel=str(tmp_path / "kernel"), initrd=str(tmp_path / "initrd"), vcpus=1, memory=512,
        kernel_args="quiet tsc=reliable autotest.admin=52:54:00:00:00:01,10.0.0.1/24", test_iface="test",
    )  # fmt: skip
    loadgen = LoadGenConfig(fqdn="localhost", moongen_dir=str(programs / "softmoon"), moonprogs_dir=str(programs))
    return Testbed(tmp_path / "autotest.conf", host, guest, loadgen)


@pytest.fixture
def look(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Any]:
    """A new look at a testbed, with a memory of its own."""

    def make(testbed: Testbed) -> Inspection:
        servers = Servers(testbed)
        request.addfinalizer(lambda: servers.__exit__(None, None, None))
        (tmp_path / "memory").mkdir(exist_ok=True)
        servers.host.__dict__["memory_dir"] = str(tmp_path / "memory")
        return Inspection(servers)

    return make


def settings(qemu: str = "") -> GuestSettings:
    return GuestSettings("pcvm", INTERFACE_KINDS["bridge"], qemu)


def case(machine: str = "pcvm", reflector: str = "xdp", qemu: str = "") -> Case:
    guest = machine != "host"
    flag = False if guest else None
    values = (machine, "bridge", ("q", qemu) if guest else None, flag, flag, None, None, None, 1 if guest else None, reflector)
    return Case(tuple(parameter.name for parameter in KIND.parameters), values)


def with_host(testbed: Testbed, **keys: Any) -> Testbed:
    return dataclasses.replace(testbed, host=dataclasses.replace(testbed.host, **keys))


def test_a_qemu_is_the_program_itself_whether_its_folder_or_a_link_is_named(testbed: Testbed, look: Any, tmp_path: Path) -> None:
    program = shutil.which("qemu-system-x86_64")
    assert program
    (tmp_path / "build").mkdir()
    (tmp_path / "build/qemu-system-x86_64").symlink_to(program)
    found = [look(testbed).guest(settings(path)) for path in ("", program, str(tmp_path / "build"))]
    assert found[0]["qemu.sha256"] and found[0]["qemu.version"][0].isdigit()
    assert found[0] == found[1] == found[2]


def test_a_qemu_is_looked_for_as_root_who_runs_it(testbed: Testbed, look: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """sudo has a PATH of its own: another program may have that name there."""
    inspection = look(testbed)
    host, run = inspection.servers.host, type(inspection.servers.host).run
    looked: list[bool] = []

    def noted(self: Any, command: Any, **options: Any) -> Any:
        if "qemu-system-x86_64" in command:
            looked.append(bool(options.get("sudo")))
        return run(self, command, **options)

    monkeypatch.setattr(type(host), "run", noted)
    inspection.guest(settings())
    assert looked == [True, True]


def test_a_qemu_that_is_not_there_is_told_as_none_and_not_run(testbed: Testbed, look: Any) -> None:
    found = look(with_host(testbed, accelerator="auto")).guest(settings("/no/qemu"))
    assert (found["qemu.version"], found["qemu.sha256"], found["guest.accelerator"]) == (None, None, None)


@pytest.mark.parametrize("name", ["image", "kernel", "initrd"])
def test_another_image_kernel_or_initrd_is_another_guest(testbed: Testbed, look: Any, tmp_path: Path, name: str) -> None:
    before = Identity(look(testbed).guest(settings()))
    (tmp_path / name).write_text("another")
    (difference,) = differences(before, Identity(look(testbed).guest(settings())))
    assert difference.startswith(f"guest {name}: sha256 ")


def test_a_disk_that_the_guest_writes_to_is_only_told_from_another_one(testbed: Testbed, look: Any, tmp_path: Path) -> None:
    testbed = with_host(testbed, root_disk_snapshot=False)
    before = Identity(look(testbed).guest(settings()))
    with open(tmp_path / "image", "a") as image:
        image.write("what a guest wrote")
    assert differences(before, Identity(look(testbed).guest(settings()))) == []
    (tmp_path / "new").write_text("another")
    os.replace(tmp_path / "new", tmp_path / "image")
    (difference,) = differences(before, Identity(look(testbed).guest(settings())))
    assert difference.startswith(f"guest image: {tmp_path}/image (inode ")


def test_each_thing_is_asked_once_in_one_look(testbed: Testbed, look: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    inspection = look(testbed)
    first = KIND.determines(inspection, case())
    asked = []
    for server in inspection.servers.all():
        monkeypatch.setattr(type(server), "run", lambda self, command, **options: asked.append(command))
    assert KIND.determines(inspection, case()) == first
    assert asked == []


def test_of_a_guest_case_qemu_guest_machines_and_programs_determine_the_result(testbed: Testbed, look: Any) -> None:
    found = KIND.determines(look(testbed), case())
    for key in ("qemu.sha256", "guest image.sha256", "guest kernel.sha256", "host.kernel", "loadgen.kernel", "host.cpu",
                "generator.sha256", "program.sha256"):  # fmt: skip
        assert found[key], key
    assert found["guest.accelerator"] == "tcg" and found["guest.memory"] == 512
    assert found["guest.kernel arguments"] == "quiet | tsc=reliable"
    assert found["reflector.sha256"] is None  # it comes with the image
    json.dumps(found)


def test_a_nic_that_the_kernel_does_not_see_now_is_not_taken_for_another_one(testbed: Testbed, look: Any) -> None:
    def seen(**keys: Any) -> Identity:
        inspection = look(testbed)
        inspection._known["facts", "host"] = MachineFacts(nic=Nic(**keys))
        return Identity(inspection.machine(inspection.servers.host))

    bound = seen(model="8086:1572", numa_node=0)
    assert differences(bound, seen()) == differences(seen(), bound) == []
    assert differences(bound, seen(model="8086:1572", numa_node=1)) == ["host numa node: 0 then, 1 now"]


def test_whether_a_guest_runs_changes_nothing_of_what_determines_a_result(testbed: Testbed, look: Any) -> None:
    def seen(**mitigations: str) -> Identity:
        inspection = look(testbed)
        inspection._known["facts", "host"] = MachineFacts(mitigations=mitigations)
        return Identity(inspection.machine(inspection.servers.host))

    before = seen(
        itlb_multihit="KVM: Mitigation: VMX disabled", l1tf="Mitigation: PTE Inversion", mds="Vulnerable; SMT vulnerable"
    )
    meanwhile = seen(
        itlb_multihit="KVM: Mitigation: Split huge pages",
        l1tf="Mitigation: PTE Inversion; VMX: conditional cache flushes, SMT vulnerable",
        mds="Vulnerable; SMT vulnerable",
        srbds="Not affected",
    )
    assert before.hash == meanwhile.hash
    assert before.determines["host.mitigations"] == "l1tf: Mitigation: PTE Inversion | mds: Vulnerable; SMT vulnerable"


def test_of_a_host_case_no_guest_but_the_reflector_on_the_host_determines_the_result(
    testbed: Testbed, look: Any, tmp_path: Path
) -> None:
    found = KIND.determines(look(testbed), case("host"))
    assert not [key for key in found if key.startswith(("guest", "qemu"))]
    before = Identity(found)
    (tmp_path / "reflector.bpf.o").write_text("another")
    (difference,) = differences(before, Identity(KIND.determines(look(testbed), case("host"))))
    assert difference.startswith("reflector: sha256")


def test_a_guest_is_not_asked_for_its_moongen_reflector_before_it_boots(testbed: Testbed, look: Any) -> None:
    found = KIND.determines(look(testbed), case("pcvm", "moongen"))  # nobody.invalid would not answer
    assert found["reflector.sha256"]


def test_placement_determines_a_guests_result_only_where_it_is_configured_and_has_threads(testbed: Testbed, look: Any) -> None:
    before = KIND.determines(look(testbed), case())
    assert not [key for key in before if key.startswith("placement")]
    of_other_guests = with_host(testbed, cpus_vhost=(1,), scheduling_vhost="fifo:1", cpus_switch=(1,))
    assert Identity(KIND.determines(look(of_other_guests), case())).hash == Identity(before).hash
    placed = with_host(testbed, cpus_vcpus=(0, 1), scheduling_qemu="nice:5")
    assert differences(Identity(before), Identity(KIND.determines(look(placed), case()))) == [
        "placement cpus of vcpus: none then, 0-1 now", "placement scheduling of qemu: none then, nice:5 now",
    ]  # fmt: skip
    host = KIND.determines(look(testbed), case("host"))
    assert Identity(KIND.determines(look(placed), case("host"))).hash == Identity(host).hash


@pytest.mark.parametrize("vhost", [False, True])
def test_the_placement_of_vhost_threads_determines_the_results_with_vhost(testbed: Testbed, look: Any, vhost: bool) -> None:
    wanted = dataclasses.replace(settings(), options=InterfaceOptions(vhost=vhost))
    found = look(with_host(testbed, cpus_vhost=(1,))).guest(wanted)
    assert found.get("placement.cpus of vhost") == ("1" if vhost else None)


@pytest.mark.parametrize("switch", [False, True])
def test_the_placement_of_a_switch_determines_the_results_of_interfaces_with_one(
    testbed: Testbed, look: Any, switch: bool
) -> None:
    found = look(with_host(testbed, cpus_switch=(1,))).guest(with_interface("vhost-user" if switch else "bridge"))
    assert found.get("placement.cpus of switch") == ("1" if switch else None)


def test_the_program_of_a_switch_determines_the_results_of_interfaces_with_one(
    testbed: Testbed, look: Any, tmp_path: Path
) -> None:
    program = tmp_path / "testpmd"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    wanted = with_host(testbed, testpmd_path=str(program))
    before = look(wanted).guest(with_interface("vhost-user"))["switch.sha256"]
    program.write_text("#!/bin/sh\n# another build\n")
    after = look(wanted).guest(with_interface("vhost-user"))["switch.sha256"]
    assert before and after and before != after
    program.unlink()
    assert look(wanted).guest(with_interface("vhost-user"))["switch.sha256"] is None
    assert "switch.sha256" not in look(wanted).guest(with_interface("bridge"))


def with_interface(name: str) -> GuestSettings:
    return dataclasses.replace(settings(), interface=INTERFACE_KINDS[name])


def test_the_record_of_a_testbed_has_its_name_its_whole_configuration_facts_and_versions(testbed: Testbed, look: Any) -> None:
    inspection = look(testbed)
    recorded = json.loads(json.dumps([inspection.testbed(), inspection.machines(), inspection.versions()]))
    named, machines, versions = recorded
    host = os.uname().nodename
    assert named["name"].startswith(f"{host}(host) {host}(loadgen) ")
    assert named["configuration"]["host"]["root_disk_snapshot"] is True and named["configuration"]["guest"]["memory"] == 512
    assert machines["host"]["kernel"] == os.uname().release and machines["guest"] == {}
    assert versions["kernel of host"] == os.uname().release and "kernel of guest" not in versions


def test_two_testbeds_have_two_names_even_if_their_machines_are_called_the_same() -> None:
    one, other = MachineFacts(hostname="node", machine="1"), MachineFacts(hostname="node", machine="2")
    names = {name_of_testbed(host, loadgen) for host in (one, other) for loadgen in (one, other)}
    assert len(names) == 4 and all(name.startswith("node(host) node(loadgen) ") for name in names)
    assert name_of_testbed(one, other) == name_of_testbed(one, other)
    assert name_of_testbed(MachineFacts(), MachineFacts()).startswith("unknown(host)")


# -- git ---------------------------------------------------------------------------------------------------


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "checkout"
    (folder / "autotest").mkdir(parents=True)
    (folder / "autotest/x.py").write_text("1")
    (folder / "README").write_text("1")
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "first")
    return folder


def git(folder: Path, *arguments: str) -> str:
    return subprocess.run(["git", "-C", folder, *arguments], check=True, capture_output=True, text=True).stdout.strip()


def revision(folder: Path) -> str | None:
    return git_revision.__wrapped__(folder)


def test_the_revision_is_that_of_the_checkout_marked_where_its_code_was_changed(checkout: Path) -> None:
    head = git(checkout, "rev-parse", "HEAD")
    (checkout / "README").write_text("changed")
    assert revision(checkout) == head
    (checkout / "autotest/y.py").write_text("new")
    assert revision(checkout) == f"{head}+changes"
    (checkout / "autotest/y.py").unlink()
    (checkout / "autotest/x.py").write_text("changed")
    assert revision(checkout) == f"{head}+changes"


def test_a_checkout_of_another_user_has_a_revision_too(checkout: Path) -> None:
    head = git(checkout, "rev-parse", "HEAD")
    for path in (checkout, checkout / ".git"):
        os.chown(path, 65534, 65534)
    assert revision(checkout) == head


def test_outside_of_a_checkout_there_is_no_revision(checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert revision(tmp_path) is None
    assert revision(checkout / "autotest") is None  # installed somewhere inside of another project
    monkeypatch.setenv("PATH", "/nonexistent")
    assert revision(checkout) is None


def test_a_virtual_function_and_huge_pages_determine_a_result_only_where_they_are_configured(testbed: Testbed, look: Any) -> None:
    before = look(testbed).guest(settings())
    functions = with_host(testbed, test_iface_vfs=2, test_iface_addr="0000:01:00.0")
    assert look(functions).guest(settings()) == before  # a bridge has no virtual function
    passed = look(functions).guest(with_interface("vfio"))
    assert differences(Identity(look(with_host(testbed, test_iface_addr="0000:01:00.0")).guest(with_interface("vfio"))),
                       Identity(passed)) == ["host virtual function: none then, on now"]  # fmt: skip
    huge = dataclasses.replace(testbed, guest=dataclasses.replace(testbed.guest, hugepages=True))
    assert differences(Identity(before), Identity(look(huge).guest(settings()))) == ["guest hugepages: none then, on now"]


def test_the_nics_of_further_guests_determine_a_result_where_they_have_some(
    testbed: Testbed, look: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    devices = {"0000:02:00.0": PciDevice("0000:02:00.0", 0x8086, 0x1592, 0x020000), "0000:03:00.0": None}
    monkeypatch.setattr(PciDevices, "show", lambda self, address: devices[address])
    nics = tuple((address, "02:00:00:00:00:01") for address in devices)
    passed = with_host(testbed, test_iface_addr="0000:01:00.0", test_iface_vfio_driv="vfio-pci", guest_nics=nics)
    vfio = with_interface("vfio")
    assert look(passed).guest(vfio, 3)["guests.nics"] == "8086:1592 | none"
    assert look(passed).guest(vfio, 2)["guests.nics"] == "8086:1592"
    functions = with_host(passed, test_iface_vfs=3)
    for found in (look(passed).guest(vfio), look(passed).guest(settings(), 3), look(functions).guest(vfio, 3)):
        assert "guests.nics" not in found
