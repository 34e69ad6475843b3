"""Boot time: how long it takes from the start of QEMU until a guest takes logins. An example of a measurement kind.

Run it on the testbed of ./autotest.conf, with a file like docs/examples/boot.conf: python boot_time.py boot.conf
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from autotest.config import values
from autotest.config.testbed import Testbed, load_testbed
from autotest.config.tests import load_all
from autotest.errors import AutotestError, Problem
from autotest.interfaces import INTERFACE_KINDS
from autotest.measurements.kind import MeasurementKind, Trial
from autotest.plan.parameters import Case, Parameter, Rule, Section, Setting
from autotest.preflight.needs import needs_of_guest, needs_of_testbed
from autotest.preflight.requirement import Requirement
from autotest.resources import PROJECT_DIRECTORY
from autotest.results.identity import Plain
from autotest.run.campaign import Campaign, count
from autotest.run.observer import Observer
from autotest.run.opening import open_testbed
from autotest.run.stages import Stage
from autotest.servers.guest import GuestSettings
from autotest.servers.inspection import Inspection
from autotest.servers.testbed import Servers

_USUAL_BOOT = 10.0  # seconds, for whoever watches

PARAMETERS = (
    Parameter("machine", "machines", values.choice(("pcvm", "microvm"))),
    Parameter("interface", "interfaces", values.choice(("bridge", "bridge-e1000"))),
)
SETTINGS = (
    Setting("repetitions", values.integer(1, 1000), 1),
    Setting("outputdir", lambda text: Path(values.path(text))),
)
RULES = (
    Rule(
        ("machine", "interface"),
        lambda machine, interface: machine not in INTERFACE_KINDS[interface].machines,
        "this interface needs a PCI bus, which microvm has not",
    ),
)


def infix(case: Case) -> str:
    return f"boot_{case['machine']}_{case['interface']}"


def _guest(case: Case) -> GuestSettings:
    return GuestSettings(case["machine"], INTERFACE_KINDS[case["interface"]], qemu_path="")


def missing(testbed: Testbed, cases: Iterable[Case]) -> list[Problem]:
    """The keys of autotest.conf that the cases need and that are not there, each once."""
    found: dict[Problem, None] = {}
    for case in cases:
        keys = {"host": ("admin_bridge", "admin_bridge_ip_net", "admin_tap", "root_disk_file")}
        of_interface = INTERFACE_KINDS[case["interface"]].keys(case["machine"])
        for section in ("host", "guest"):
            wanted = (*keys.get(section, ()), *of_interface.get(section, ()))
            found |= dict.fromkeys(testbed.missing(section, wanted, f"machine {case['machine']}"))
    return list(found)


def requirements(testbed: Testbed, case: Case | None) -> Iterator[Requirement]:
    """What a look at the host must find before the first guest boots."""
    if case is None:
        yield from needs_of_testbed(testbed)
    else:
        yield from needs_of_guest(testbed, _guest(case), "default")


@contextmanager
def _networks(servers: Servers, case: Case) -> Iterator[None]:
    """What is set up once for all trials with one machine type and interface; undone when the context is left."""
    with servers.host.admin_network(), servers.host.test_network(INTERFACE_KINDS[case["interface"]], guest=True):
        yield


def determines(inspection: Inspection, case: Case) -> Mapping[str, Plain]:
    """What must be the same for two results to be comparable: the host, QEMU and the image."""
    return {**inspection.machine(inspection.servers.host), **inspection.guest(_guest(case))}


def measure(servers: Servers, case: Case, section: Section, folder: Path, observer: Observer) -> Trial:
    """One trial. A guest that does not boot raises, and the trial is tried again."""
    observer.phase("boot", _USUAL_BOOT)
    started, start = datetime.now(UTC), time.monotonic()
    with servers.host.guests.running(_guest(case), 1):
        seconds = time.monotonic() - start
        console = servers.host.machine(1).session.output()
    output = folder / "output.log"
    output.write_text(console + f"\nlogin after {seconds:.3f} s\n", encoding="utf-8")
    record = {
        "verdict": "valid",
        "reason": "",
        "figures": {"boot_seconds": seconds},
        "started": started.isoformat(),
        "ended": datetime.now(UTC).isoformat(),
    }
    return Trial({"output": output}, record, f"login after {seconds:.2f} s")


KIND = MeasurementKind(
    name="boot-time",
    parameters=PARAMETERS,
    settings=SETTINGS,
    rules=RULES,
    stages=(Stage("networks", "interface", _networks),),
    infix=infix,
    missing=missing,
    measure=measure,
    determines=determines,
    requirements=requirements,
)


def main(files: list[str]) -> int:
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    testbed = load_testbed(Path("autotest.conf"), PROJECT_DIRECTORY)
    campaign = Campaign(KIND, load_all([Path(file) for file in files], PROJECT_DIRECTORY, PARAMETERS, SETTINGS))
    campaign.check(testbed)
    total, done = count(campaign.trials())
    with open_testbed(testbed, exclusive=True, temporary=True) as servers:
        campaign.preflight(servers, campaign.set_ups())
        summary = campaign.run(servers, total - done)
    print(f"{total} trials, {done} were done, {summary.done} measured, {summary.failed} failed")
    return 1 if summary.failures else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except AutotestError as error:
        sys.exit(str(error))
