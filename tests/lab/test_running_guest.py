"""What can be seen of a guest that runs: one is booted for all tests of this file, and nothing else of the lab is used here."""

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from labtest import NAME, LabCommand, lab_command


def _in_host(command: list[str]) -> str:
    return subprocess.run(
        ["ip", "netns", "exec", f"{NAME}-host", *command], capture_output=True, text=True, check=True, timeout=10
    ).stdout


@pytest.fixture(scope="module")
def running(config: Path) -> Iterator[LabCommand]:
    """The lab with one guest that all tests of it share: two vCPUs, two queues and other sizes than the configuration says."""
    with contextmanager(lab_command)(config) as lab:
        options = ("-m", "microvm", "-i", "bridge", "-C", "2", "-M", "384", "-Q", "2", "-r", "1024")
        assert "guest takes logins" in lab.run("run-guest", *options)
        yield lab
        assert "guest ended" in lab.run("kill-guest")
        assert "no guest" in lab.run("kill-guest")
        assert "not reached" in lab.run("ping", code=3)


def test_a_guest_that_runs_is_reached_and_none_is_started_beside_it(running: LabCommand):
    reached = running.run("ping")
    assert reached.count("reached") == 3 and "not reached" not in reached
    assert "running" in running.run("run-guest", code=2)


def test_the_guest_has_the_memory_queues_and_rings_of_the_options(running: LabCommand):
    asked = (["cat", "/proc/meminfo"], ["ethtool", "-l", "test"], ["ethtool", "-g", "test"])
    said = running.run("shell", input="".join(f"print(guest.run({command}).stdout)\n" for command in asked))
    assert 250_000 < int(re.findall(r"MemTotal: +(\d+) kB", said)[0]) < 384 * 1024
    assert re.findall(r"Combined:\s+(\d+)", said) == ["2", "2"]
    assert re.findall(r"RX:\s+(\d+)", said)[-1] == "1024"


def test_the_guest_reaches_nothing_outside_the_lab(running: LabCommand):
    ask = 'print(guest.run(["ip", "route"]).stdout, guest.run(["ip", "route", "get", "192.0.2.1"], check=False).stderr)\n'
    said = running.run("shell", input=ask)  # the banner goes to stderr, which comes last
    assert "192.168.56.0/24" in said and "default" not in said and "Network is unreachable" in said
    assert _in_host(["ip", "route"]).count("default") == 0
    assert {link["ifname"] for link in json.loads(_in_host(["ip", "-json", "link"]))} >= {"lo", "wire-host"}
