"""What a testbed lacks is named before the first guest boots, and the rest of the campaign is measured.

The campaign, its plan and its requirements are those of load latency; only what a trial does is left out.
"""

from __future__ import annotations

import dataclasses
import json
import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import fake_qemu
import pytest
from fake_kernel import EMPTY, FakeKernel
from preflight_bed import HOST_MAC, Bed, ip

from autotest.cli.checking import preflight_of_run
from autotest.cli.program import main
from autotest.config.tests import load_all
from autotest.errors import (
    EXIT_FAILED,
    EXIT_OK,
    EXIT_TESTBED,
    EXIT_USAGE,
    ConfigError,
)
from autotest.measurements.kind import MeasurementKind, Trial
from autotest.measurements.load_latency import KIND
from autotest.plan.parameters import Case, Section
from autotest.results.failures import read_failures
from autotest.run.campaign import Campaign, count
from autotest.run.checks import checks
from autotest.run.estimate import estimate
from autotest.run.observer import Observer
from autotest.run.runner import Summary
from autotest.run.stages import Stage
from autotest.run.status import read_status
from autotest.servers.testbed import Servers

NIC, ADMIN = "0000:01:00.0", "0000:00:02.0"
NIC_MAC = "52:54:00:00:01:00"
TOTAL = (
    "[Device: id=0] {}: 0.01 (StdDev 0) Mpps, 5 (StdDev 0) Mbit/s (6 Mbit/s with framing), "
    "total 5 packets with 320 bytes (incl. CRC)\n"
)


class Run:
    """A campaign of load latency on a testbed. Whatever is set up and measured is only written down."""

    def __init__(self, bed: Bed, folder: Path, **lists: str) -> None:
        self.bed = bed
        self.results = folder / "results"
        self.entered: list[str] = []
        values = {
            "machines": "pcvm",
            "interfaces": "bridge",
            "reflectors": "xdp",
            "rates": "10, 20",
            "sizes": "60",
            "runtimes": "1",
        }
        values |= {"outputdir": str(self.results), **lists}
        file = folder / "tests.conf"
        file.write_text("[test]\n" + "".join(f"{key} = {value}\n" for key, value in values.items()))
        self.campaign = Campaign(self._kind(), load_all([file], folder, KIND.parameters, KIND.settings))

    def _kind(self) -> MeasurementKind:
        @contextmanager
        def enter(servers: Servers, case: Case) -> Iterator[None]:
            self.entered.append(" ".join(KIND.labels(case)))
            yield

        def measure(servers: Servers, case: Case, section: Section, folder: Path, observer: Observer) -> Trial:
            (folder / "o").write_text("".join(TOTAL.format(direction) for direction in ("RX", "TX")))
            (folder / "h").write_text("1000,5\n")
            files = {"output": folder / "o", "histogram": folder / "h"}
            return Trial(files, {"verdict": "valid", "reason": "", "figures": {}}, "figures")

        stages = (Stage("everything", "reflector", enter),)
        return dataclasses.replace(
            KIND, stages=stages, measure=measure, determines=lambda inspection, case: {}, found=lambda inspection, case: {}
        )

    def do(self) -> tuple[int, Summary]:
        self.campaign.check(self.bed.testbed)
        servers = self.bed.servers
        code = preflight_of_run(self.campaign, servers)
        total, done = count(self.campaign.trials())
        return code, self.campaign.run(servers, total - done, pause=0)

    def failures(self) -> dict[str, str]:
        """What is noted in the output directory, with the reasons."""
        return {failure.what: failure.reason for failure in read_failures(self.results)}


def run(bed: Bed, folder: Path, blocked: int, measured: int, reason: str, remedy: str, **lists: str) -> Run:
    """Run a campaign of which so many trials are blocked for that reason."""
    made = Run(bed, folder, **lists)
    code, summary = made.do()
    assert code == (EXIT_FAILED if measured else EXIT_TESTBED)
    assert (summary.done, summary.failed) == (measured, blocked)
    assert all(failure.name == "blocked by preflight" for failure in summary.failures)
    said = " ".join(failure.reason for failure in summary.failures)
    assert reason in said and remedy in said
    assert made.failures() and all(what.startswith("preflight (machine ") for what in made.failures())
    assert any(reason in each for each in made.failures().values())
    return made


def test_what_is_all_there_is_measured_and_nothing_is_noted(bed: Bed, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made = Run(bed, tmp_path, machines="pcvm, microvm", interfaces="bridge, macvtap")
    before = bed.links()
    with caplog.at_level(logging.INFO):
        code, summary = made.do()
    assert code == EXIT_OK and summary.done == 8 and summary.failed == 0 and made.failures() == {}
    assert "0 failed" in caplog.text and "cannot be measured" not in caplog.text
    assert bed.links() == before


@pytest.mark.parametrize("sizes", ["60, 1514", "imix"])
def test_frames_that_the_nic_has_no_room_for_stop_the_tests_that_send_them(bed: Bed, tmp_path: Path, sizes: str) -> None:
    ip(bed.host, "link", "set", "dev", "nic", "mtu", "1400")
    reason = "nic has an MTU of 1400 bytes, for frames of up to 1414: the tests have some of 1514"
    made = run(bed, tmp_path, 4 if "," in sizes else 2, 0, reason, "no sizes above 1414", sizes=sizes)
    assert made.entered == []
    (tmp_path / "smaller").mkdir()
    assert Run(bed, tmp_path / "smaller", sizes="60, 60:1 1414:1").do()[1].failed == 0


def test_two_nics_with_one_mac_stop_all_that_needs_the_nic(bed: Bed, tmp_path: Path) -> None:
    ip(bed.host, "link", "add", "other", "address", HOST_MAC, "type", "veth", "peer", "name", "otherpeer")
    made = run(bed, tmp_path, 4, 0, "is the MAC address of nic and of other", "link set dev other address", machines="pcvm, host")
    assert made.entered == []


@pytest.mark.parametrize(
    ("address", "mac", "reason"),
    [("0000:07:00.0", None, "there is no PCI device 0000:07:00.0"), (NIC, HOST_MAC, f"is not the NIC with {HOST_MAC}")],
)
def test_an_absent_pci_address_and_that_of_another_nic_stop_vfio_only(
    bed: Bed, kernel: FakeKernel, tmp_path: Path, address: str, mac: str | None, reason: str
) -> None:
    bed.change(host={"test_iface_addr": address, "test_iface_vfio_driv": "vfio-pci"})
    made = run(bed, tmp_path, 2, 2, reason, "", interfaces="vfio, bridge")
    assert [each for each in made.entered if "vfio" in each] == [] and len(made.entered) == 1


def test_a_pci_address_that_the_machine_itself_needs_stops_vfio_only(bed: Bed, kernel: FakeKernel, tmp_path: Path) -> None:
    kernel.set(network={**EMPTY, "routes": '[{"dst": "default", "dev": "eth0"}]'})
    ip(bed.host, "link", "set", "nic", "address", "52:54:00:00:00:02")
    ip(bed.host, "link", "set", "nic", "name", "eth0")
    bed.change(
        host={
            "test_iface": "eth0",
            "test_iface_mac": "52:54:00:00:00:02",
            "test_iface_addr": ADMIN,
            "test_iface_vfio_driv": "vfio-pci",
        }
    )
    run(bed, tmp_path, 2, 2, "somebody else's: it carries the default route", "name another NIC", interfaces="vfio, bridge")


def test_a_nic_on_vfio_that_another_program_drives_is_left_to_it(bed: Bed, kernel: FakeKernel, tmp_path: Path) -> None:
    kernel.register("vfio-pci")
    kernel._unbind(NIC)
    kernel.attach(NIC, "vfio-pci")
    kernel.process(4711, "MoonGen", "/dev/vfio/vfio", "/dev/vfio/17")
    bed.change(host={"test_iface": "eth9", "test_iface_addr": NIC, "test_iface_mac": NIC_MAC, "test_iface_vfio_driv": "vfio-pci"})
    made = run(bed, tmp_path, 2, 0, f"{NIC} is in use: process 4711, MoonGen, has /dev/vfio/17 open", "end it", interfaces="vfio")
    assert made.entered == [] and kernel.driver_of(NIC) == "vfio-pci"


def test_vfio_without_an_iommu_stops_vfio_only(bed: Bed, kernel: FakeKernel, tmp_path: Path) -> None:
    for group in (1, 17, 19):
        for link in (kernel.root / f"sys/kernel/iommu_groups/{group}/devices").iterdir():
            (link / "iommu_group").unlink()
    bed.change(host={"test_iface_addr": NIC, "test_iface_mac": HOST_MAC, "test_iface_vfio_driv": "vfio-pci"})
    run(bed, tmp_path, 2, 2, "there is no IOMMU; switch VT-d or AMD-Vi on", "intel_iommu=on", interfaces="vfio, bridge")


def test_a_qemu_path_without_the_property_stops_the_cases_that_set_it(
    bed: Bed, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    patched = fake_qemu.build(tmp_path, more=fake_qemu.IOREGIONFD)
    made = run(
        bed, tmp_path, 2, 6, "QEMU plain: device: qemu-system-x86_64: virtio-net-device has no property use-ioregionfd",
        "needs the QEMU that is patched for ioregionfd",
        machines="microvm", qemus=f"plain:, patched:{patched}", ioregionfds="no, yes",
    )  # fmt: skip
    assert [each for each in made.entered if "qemu plain" in each and "ioregionfd on" in each] == [] and len(made.entered) == 3
    (line,) = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert line.endswith("blocks 2 of 8 trials: qemu plain, ioregionfd on")
    (failure,) = made.failures()
    assert failure.startswith("preflight (machine microvm, interface bridge, qemu plain, vhost off, ioregionfd on")


def test_a_qemu_that_is_not_there_stops_its_cases(bed: Bed, tmp_path: Path) -> None:
    run(bed, tmp_path, 2, 2, "/no/qemu-system-x86_64: there is no such program", "install it there", qemus="default:, gone:/no")


def test_more_guests_than_there_are_cpus_or_memory_for_stop_the_cases_that_have_so_many(bed: Bed, tmp_path: Path) -> None:
    bed.change(host={"cpus_vcpus": (0,), "cpu_overcommit": 3}, guest={"admin_iface_mac": "52:54:00:fb:00:60"})
    made = run(bed, tmp_path, 2, 4, "CPUs for the guests: 4 guests have 4 vCPUs", "fewer guests", guests="1, 4, 3")
    assert all("enough for 3 guests" in reason for reason in made.failures().values())
    assert len(made.entered) == 2 and not any("guests 4" in each for each in made.entered)
    bed.change(guest={"memory": 16 * 1024 * 1024})  # MiB; for one guest it is QEMU that says whether it works
    (tmp_path / "again").mkdir()
    made = run(
        bed, tmp_path / "again", 2, 2, "memory of the guests: 2 guests with 16777216 MiB each", "fewer guests", guests="1, 2"
    )
    assert len(made.entered) == 1


def test_more_guests_than_the_configuration_has_room_for_are_refused_before_anything_is_looked_at(
    bed: Bed, tmp_path: Path
) -> None:
    made = Run(bed, tmp_path, guests="1, 2")
    with pytest.raises(ConfigError) as caught:
        made.do()
    (problem,) = caught.value.problems
    assert (problem.section, problem.key) == ("guest", "admin_iface_mac")
    assert problem.message == (
        "guest 2 would get 52:54:00:fa:00:60, which is test_iface_mac of the first guest: "
        "room for at most 1 guest with interface bridge, not 2"
    )


def test_vhost_on_an_emulated_nic_is_no_combination_and_run_guest_refuses_it(
    bed: Bed, tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    made = Run(bed, tmp_path, interfaces="bridge-e1000, bridge-rtl8139", vhosts="no, yes")
    with caplog.at_level(logging.INFO):
        assert made.do()[1].done == 4
    said = [record.getMessage() for record in caplog.records]
    left_out = "left out: 4 trials: vhost only with virtio over tap or macvtap (--dry-run shows which)"
    assert said.count(left_out) == 1 and sum("left out" in line for line in said) == 1
    assert said.index(left_out) < next(number for number, line in enumerate(said) if line.startswith("preflight: "))
    assert main(["run-guest", "-i", "bridge-e1000", "--vhost"]) == EXIT_USAGE
    assert "--vhost: interface bridge-e1000 has no such thing" in capsys.readouterr().err


def test_what_is_blocked_does_not_use_up_the_limit_of_a_run(bed: Bed, tmp_path: Path) -> None:
    bed.change(host={"vmux_path": str(tmp_path / "none"), "vmux_qemu_path": fake_qemu.build(tmp_path, more=fake_qemu.VFIO_USER)})
    made = Run(bed, tmp_path, interfaces="vmux-emu, bridge")
    made.campaign.limit = 1
    code, summary = made.do()
    assert code == EXIT_FAILED and summary.done == 1
    assert len(made.entered) == 1 and "interface bridge" in made.entered[0]
    assert [failure.startswith("preflight (") for failure in made.failures()] == [True]
    assert [failure.name for failure in summary.failures] == ["blocked by preflight"]
    assert Counter(check.state for check in checks(made.campaign)) == {"failed": 2, "passed": 1, "skipped": 1}


def test_a_vmux_that_dies_at_start_is_named_with_its_last_words_and_stops_its_cases(bed: Bed, tmp_path: Path) -> None:
    vmux = tmp_path / "vmux"
    vmux.write_text("#!/bin/sh\necho vmux: no such device as that >&2\nexit 3\n")
    vmux.chmod(0o755)
    bed.change(host={"vmux_path": str(vmux), "vmux_qemu_path": fake_qemu.build(tmp_path, more=fake_qemu.VFIO_USER)})
    before = bed.links()
    made = run(bed, tmp_path, 2, 2, "process of vmux-emu: vmux ended with exit code 3", "", interfaces="vmux-emu, bridge")
    assert bed.links() == before
    assert all("vmux: no such device as that" in reason for reason in made.failures().values())
    assert len(made.entered) == 1 and "interface bridge" in made.entered[0]


def test_a_process_is_not_tried_where_something_else_is_missing_for_it(bed: Bed, tmp_path: Path) -> None:
    bed.change(host={"vmux_path": "/no/vmux", "vmux_qemu_path": fake_qemu.build(tmp_path, more=fake_qemu.VFIO_USER)})
    made = run(bed, tmp_path, 2, 2, "there is no /no/vmux", "install it there", interfaces="vmux-emu, bridge")
    assert not any("process of" in reason for reason in made.failures().values())


def test_blocked_trials_are_failed_for_build_servers_and_held_back_in_the_status(bed: Bed, tmp_path: Path) -> None:
    made = run(bed, tmp_path, 2, 2, "there is no such program", "install it", qemus="default:, gone:/no")
    states = {check.name: check for check in checks(made.campaign)}
    assert [check.state for check in states.values()] == ["passed", "passed", "failed", "failed"]
    assert "blocked by preflight: host: QEMU gone: /no/qemu-system-x86_64" in list(states.values())[-1].message
    status = read_status(made.campaign)
    assert (status.total.done, status.total.to_do, status.total.held_back) == (2, 2, 2)
    assert [failure.trials for failure in status.failures] == [2]
    assert estimate(made.campaign).trials == 0, "what is blocked takes no time"


def test_a_later_run_looks_only_at_what_is_to_do_and_measures_what_was_blocked(
    bed: Bed, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lists = {"machines": "microvm", "ioregionfds": "no, yes"}
    run(bed, tmp_path, 2, 2, "use-ioregionfd", "patched", **lists)
    bed.change(
        host={"qemu_path": fake_qemu.build(tmp_path, more=fake_qemu.IOREGIONFD), "root_disk_file": str(tmp_path / "root.img")}
    )
    again = Run(bed, tmp_path, **lists)
    code, summary = again.do()
    assert code == EXIT_OK and summary.done == 2 and len(again.entered) == 1 and "ioregionfd on" in again.entered[0]
    assert read_status(again.campaign).failures == ()


def test_reasons_are_whole_in_the_failures_file(bed: Bed, tmp_path: Path) -> None:
    bed.change(host={"root_disk_file": "/no/disk"})
    made = run(bed, tmp_path, 2, 0, "there is no root_disk_file /no/disk", "put it there", qemus="gone:/no")
    (line,) = (made.results / "failures.jsonl").read_text().splitlines()
    assert json.loads(line)["reason"].splitlines() == [
        "host: files of the guest: there is no root_disk_file /no/disk; put it there, or name another in the configuration",
        (
            "host: QEMU gone: /no/qemu-system-x86_64: there is no such program; install it there, or name another (qemu_path, "
            "or qemus in tests.conf)"
        ),
    ]
