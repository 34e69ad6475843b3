"""What spoils numbers: known from what a machine shows, and this machine itself can be looked at."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from examples import examples
from hostile import FakeMachine, answers
from hypothesis import HealthCheck, given, settings
from preflight_bed import Bed

from autotest.preflight import noise as module
from autotest.preflight.noise import (
    Governor,
    IrqBalance,
    Mitigations,
    OtherLoad,
    Swap,
    Turbo,
    busy_cpus,
    noise,
)
from autotest.preflight.preflight import look
from autotest.preflight.requirement import Finding, Requirement
from autotest.preflight.survey import Survey
from autotest.servers.facts import MachineFacts

FOUR_CPUS = MachineFacts(cpus="0-3")
QUIET = {
    "stat": "cpu  1000 0 0 10000 0 0 0 0 0 0", "vmstat": "pswpin 5\npswpout 7",
    "stat-later": "cpu  1001 0 0 10160 0 0 0 0 0 0", "vmstat-later": "pswpin 5\npswpout 7",
    "swap": "SwapCached:  0 kB\nSwapTotal:  1048576 kB\nSwapFree:  1048576 kB", "irqbalance": "",
}  # fmt: skip


def machine(bed: Bed, facts: MachineFacts = FOUR_CPUS, **shown: str) -> Survey:
    """The host, showing these things and facts."""
    text = "".join(f"==> {name}\n{value}\n" for name, value in {**QUIET, **shown}.items())
    servers = bed.servers
    servers.host.__dict__["transport"] = FakeMachine(lambda command: text)
    survey = Survey(servers)
    survey.once(("facts", "host"), lambda: facts)
    return survey


def finding(bed: Bed, requirement: Requirement, /, facts: MachineFacts = FOUR_CPUS, **shown: Any) -> Finding:
    return requirement.look(machine(bed, facts, **shown))


@pytest.mark.parametrize("requirement", [Swap("host"), IrqBalance("host"), OtherLoad("host")])
def test_a_quiet_machine_passes(bed: Bed, requirement: Requirement) -> None:
    assert finding(bed, requirement).status == "pass"


def test_all_is_asked_in_one_command_and_nothing_waits_long(bed: Bed) -> None:
    survey = machine(bed)
    for requirement in noise("host"):
        requirement.look(survey)
    transport = survey.servers.host.transport
    assert isinstance(transport, FakeMachine) and len(transport.commands) == 1
    assert module._SECONDS <= 0.5


@pytest.mark.parametrize(
    ("swap", "later", "says"),
    [
        ("SwapTotal: 1048576 kB\nSwapFree: 1000000 kB", "pswpin 5\npswpout 7", "47 MiB are swapped out"),
        ("SwapTotal: 1048576 kB\nSwapFree: 1000000 kB", "pswpin 9\npswpout 17", "swapping: 14 pages"),
    ],
)
def test_swapping_and_what_is_swapped_out_are_named(bed: Bed, swap: str, later: str, says: str) -> None:
    found = finding(bed, Swap("host"), FOUR_CPUS, swap=swap, **{"vmstat-later": later})
    assert found.status == "warn" and says in found.detail and "swapoff" in found.remedy


def test_a_machine_without_swap_passes(bed: Bed) -> None:
    assert (
        finding(bed, Swap("host"), FOUR_CPUS, swap="SwapTotal: 0 kB\nSwapFree: 0 kB", vmstat="", **{"vmstat-later": ""}).status
        == "pass"
    )


def test_irqbalance_is_named_while_it_runs(bed: Bed) -> None:
    found = finding(bed, IrqBalance("host"), irqbalance="running")
    assert found.status == "warn" and "systemctl stop irqbalance" in found.remedy


def test_cpus_that_work_for_others_are_counted(bed: Bed) -> None:
    found = finding(bed, OtherLoad("host"), FOUR_CPUS, **{"stat-later": "cpu  1040 0 0 10120 0 0 0 0 0 0"})
    assert found.status == "warn" and found.detail.startswith("1.0 of 4 CPUs are busy")


@pytest.mark.parametrize(
    ("later", "busy"),
    [("cpu 1 0 0 3 0 0 0 0", 0.25), ("cpu 0 0 0 2 2 0 0 0", 0.0), ("cpu 0 1 1 0 0 1 1 0", 1.0), ("cpu 0 0 0 0 0 0 0 4 9 9", 1.0),
     ("cpu 0 0 0 0 0 0 0 0", 0.0)],
)  # fmt: skip
def test_waiting_for_disks_is_idle_and_what_the_hypervisor_stole_is_busy(later: str, busy: float) -> None:
    assert busy_cpus("cpu 0 0 0 0 0 0 0 0 0 0", later) == busy


@pytest.mark.parametrize(
    ("requirement", "facts", "status"),
    [
        (Governor("host"), MachineFacts(governor="performance"), "pass"),
        (Governor("host"), MachineFacts(), "pass"),
        (Governor("host"), MachineFacts(governor="powersave"), "warn"),
        (Governor("host"), MachineFacts(governor="performance,schedutil"), "warn"),
        (Turbo("host"), MachineFacts(turbo=False), "pass"),
        (Turbo("host"), MachineFacts(turbo=True), "warn"),
        (Mitigations("host"), MachineFacts(mitigations={"meltdown": "Not affected", "l1tf": "Vulnerable"}), "pass"),
        (Mitigations("host"), MachineFacts(mitigations={"meltdown": "Mitigation: PTI"}), "warn"),
    ],
)
def test_settings_of_cpus_that_spoil_numbers_are_named_with_a_remedy(
    bed: Bed, requirement: Requirement, facts: MachineFacts, status: str
) -> None:
    found = finding(bed, requirement, dataclasses.replace(facts, cpus="0-3"))
    assert found.status == status and bool(found.remedy) == (status == "warn")


def test_many_mitigations_are_counted(bed: Bed) -> None:
    facts = MachineFacts(mitigations={f"bug{number}": "Mitigation: x" for number in range(7)})
    assert "bug0, bug1, bug2, bug3 and 3 more" in finding(bed, Mitigations("host"), facts).detail


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=answers)
def test_a_machine_that_answers_something_else_is_a_failure_and_no_traceback(bed: Bed, text: str) -> None:
    servers = bed.servers
    servers.host.__dict__["transport"] = FakeMachine(
        lambda command: f"==> stat\n{text}\n==> stat-later\n{text}\n==> swap\n{text}\n"
    )
    preflight = look(servers, {"one": [Swap("host")]})
    assert not [found for found in preflight.findings.values() if "could not be looked at" in found.detail]


def test_this_machine_itself_is_seen_at_work(bed: Bed) -> None:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
        try:
            found = bed.look(OtherLoad("host"))
        finally:
            busy.kill()
    assert found.status == "warn" and "CPUs are busy" in found.detail
    assert Path("/proc/stat").exists()
