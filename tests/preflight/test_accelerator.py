"""KVM is proved by booting; what it means that it cannot be depends on what was asked for."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import pytest
from hostile import FakeMachine
from preflight_bed import Bed

from autotest.config.testbed import LabConfig
from autotest.errors import TestbedError
from autotest.preflight.qemu import Accelerator
from autotest.preflight.requirement import Finding, Status
from autotest.preflight.survey import Survey


def look(bed: Bed, wanted: str, *, device: bool, boots: bool, lab: bool = False) -> Finding:
    """On a host with or without /dev/kvm that boots a kernel under KVM or does not."""

    def answer(command: Sequence[str]) -> str | int:
        if command[0] == "test":
            return "" if device else 1
        return "Linux version 6.1" if boots else "SeaBIOS"

    servers = bed.servers
    if lab:
        servers.testbed = dataclasses.replace(bed.testbed, lab=LabConfig())
    servers.host.__dict__["transport"] = FakeMachine(answer)
    servers.host.__dict__["memory_dir"] = "/run/known"
    return Accelerator("host", "/opt/qemu", wanted, "/boot/vmlinuz").look(Survey(servers))


@pytest.mark.parametrize(
    ("wanted", "device", "boots", "status"),
    [("tcg", False, False, "pass"), ("auto", True, True, "pass"), ("kvm", True, True, "pass"),
     ("auto", False, False, "warn"), ("auto", True, False, "warn"), ("kvm", True, False, "warn")],
)  # fmt: skip
def test_an_accelerator_passes_where_it_is_proved_or_emulation_is_asked_for(
    bed: Bed, wanted: str, device: bool, boots: bool, status: str
) -> None:
    finding = look(bed, wanted, device=device, boots=boots)
    assert finding.status == status
    assert ("proved by booting" in finding.detail) == boots


def test_kvm_that_is_asked_for_and_is_not_there_fails(bed: Bed) -> None:
    with pytest.raises(TestbedError, match="accelerator = kvm, but /dev/kvm cannot be used"):
        look(bed, "kvm", device=False, boots=False)


def test_in_the_lab_emulation_is_no_warning(bed: Bed, tmp_path: Path) -> None:
    assert look(bed, "auto", device=True, boots=False, lab=True).status is Status.PASS
