"""Times of the lab: boot, reflector, and what a trial costs beyond its runtime. Needs root.

Run from the repository: ``python -m benchmarks lab``.
"""

from __future__ import annotations

import re
import statistics
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

from autotest.config.testbed import Testbed, load_testbed
from autotest.interfaces import INTERFACE_KINDS
from autotest.resources import PROJECT_DIRECTORY
from autotest.servers.guest import GuestSettings
from autotest.servers.testbed import Servers
from benchmarks.scale import full_or_tiny

sys.path.insert(0, str(PROJECT_DIRECTORY / "tests" / "support"))
from labtest import CampaignFile, LabCommand, lab_command, own_lab

BOOTS = full_or_tiny(5, 1)
MACHINES = full_or_tiny(("pcvm", "microvm"), ("microvm",))
GOAL_LOGIN_S, GOAL_OVERHEAD_S = 4.0, 0.5
_TRIAL_SECONDS = re.compile(r"valid \((\d+\.\d+) s\)")
_DRAIN_SECONDS = re.compile(r"in a drain of (\d+\.\d+) s")


def measure() -> list[dict]:
    """Figures as dicts of name, value, unit, goal and ratio (None: there is no peer for them)."""
    with tempfile.TemporaryDirectory() as folder:
        config = own_lab(PROJECT_DIRECTORY / "autotest.conf", Path(folder, "autotest.conf"))
        with contextmanager(lab_command)(config) as lab:
            lab.run("lab", "up")
            testbed = load_testbed(config, PROJECT_DIRECTORY)
            figures = [figure for machine in MACHINES for figure in _boots(testbed, machine)]
            return figures + _campaign(lab, CampaignFile(Path(folder, "tests.conf"), Path(folder, "results")))


def _boots(testbed: Testbed, machine: str) -> list[dict]:
    logins, ready = [], []
    kind = INTERFACE_KINDS["bridge"]
    settings = GuestSettings(machine, kind, "")
    with Servers(testbed) as servers, servers.host.admin_network(), servers.host.test_network(kind, guest=True):
        with servers.host.guests.running(settings, 1):
            pass  # the first start proves KVM and fills the page cache
        for _ in range(BOOTS):
            start = time.monotonic()
            with servers.host.guests.running(settings, 1):
                logins.append(time.monotonic() - start)
                servers.guest.reflector_up("xdp", "test")
                ready.append(time.monotonic() - start)
                servers.guest.reflector_down("xdp", "test")
    return [
        _figure(f"{machine}: QEMU's start to a done SSH login, median of {BOOTS}", statistics.median(logins), GOAL_LOGIN_S),
        _figure(f"{machine}: QEMU's start to the reflector ready, median of {BOOTS}", statistics.median(ready), None),
    ]


def _campaign(lab: LabCommand, tests: CampaignFile) -> list[dict]:
    """Two set-ups with two reflectors each, several trials on every running guest."""
    tests.write(interfaces="bridge, macvtap", reflectors="xdp, moongen", rates="1", repetitions="4")
    log = lab.run("test-load-lat-file", str(tests.file))
    seconds = [float(text) for text in _TRIAL_SECONDS.findall(log)]
    drains = [
        float(_DRAIN_SECONDS.search(path.read_text())[1])  # type: ignore[index]
        for path in sorted(tests.results.glob("output_*_rep[1-3].log"))
    ]
    running = [value for number, value in enumerate(seconds) if number % 4]  # the first of four sets up
    drain = statistics.median(drains)
    overhead = statistics.median(running) - 1.0 - drain
    boots = log.count("after QEMU's start")
    return [
        _figure("overhead of a trial on a running guest, median of 12", overhead, GOAL_OVERHEAD_S),
        _figure("its drain, stated apart", drain, None),
        {"name": "guest boots for 2 set-ups, 16 trials", "value": boots, "unit": "", "goal": 2, "ratio": None},
    ]


def _figure(name: str, value: float, goal: float | None) -> dict:
    return {"name": name, "value": value, "unit": "s", "goal": goal, "ratio": None}
