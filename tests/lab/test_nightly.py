"""The nightly jobs of both build servers, step by step as their files have them, on the lab."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from build_servers import BuildServer, GitHub, GitLab, Ran
from junitparser import JUnitXml
from labtest import PROJECT, LabCommand
from traces import NAME, TEMPORARY
from variants import undisturbed, with_keys, xdp_reflector

# Loss is what tells these nights apart: a sender that has to wait for a CPU of a busy machine is no reason to leave a trial out.
TESTS = """\
[night]
machines = host
interfaces = pnic
reflectors = xdp
rates = 5
sizes = 60
runtimes = 1
repetitions = 6
tolerance_under_sent = 95 %
outputdir = ../nightly/tonight/results
"""


@pytest.fixture
def steady(lab: LabCommand, tmp_path: Path) -> LabCommand:
    """The lab, with a generator that sends in time on a busy machine, too."""
    return with_keys(lab, tmp_path / "steady.conf", loadgen={"moongen_dir": undisturbed(tmp_path / "undisturbed")})


@pytest.fixture(params=[GitHub, GitLab])
def server(request, steady: LabCommand, tmp_path: Path) -> BuildServer:
    variables = {
        "NIGHTLY_TESTBED": str(steady.config),
        "NIGHTLY_TESTS": "own/tests.conf",
        # What other programs of this machine do to rates and latencies is not looked at here.
        "NIGHTLY_THRESHOLDS": "achieved=95% loss=2 p50=500% p99=5000%",
        "AUTOTEST_TEST_LAB": NAME,
        "TMPDIR": str(TEMPORARY),
    }
    return request.param(tmp_path / "server", f'exec {sys.executable} -m autotest "$@"', variables, {"own/tests.conf": TESTS})


def stamps(ran: Ran) -> dict[str, int]:
    """When the trials of a run's night were written, by name."""
    return {path.name: path.stat().st_mtime_ns for path in ran.artifacts.rglob("trial_*.json")}


def junit(ran: Ran, name: str) -> JUnitXml:
    return JUnitXml.fromfile(str(ran.published(name)))


def test_a_night_is_measured_compared_with_nothing_and_published(server: BuildServer):
    server.files["own/tests.conf"] = TESTS.replace("repetitions = 6", "repetitions = 1")
    night = server.run("1001")
    assert night.code == 0, night.output
    assert "# Night 1001: good" in night.summary and "no last good night" in night.summary
    assert len(stamps(night)) == 1 and night.published("report.html").stat().st_size > 100_000


@pytest.mark.all
def test_good_nights_pass_a_worse_one_fails_and_what_is_measured_is_not_measured_again(
    server: BuildServer, steady: LabCommand, tmp_path: Path
):
    first = server.run("1001")
    assert first.code == 0, first.output
    assert "# Night 1001: good" in first.summary and "no last good night" in first.summary
    assert len(stamps(first)) == 6 and first.published("report.html").stat().st_size > 100_000
    assert (junit(first, "run.xml").tests, junit(first, "run.xml").failures) == (6, 0)

    second = server.run("1002")
    assert second.code == 0, second.output
    assert "## Compared with the last good night, 1001" in second.summary and "Nothing is worse." in second.summary
    assert (junit(second, "compare-reference.xml").tests, junit(second, "compare-reference.xml").failures) == (4, 0)

    again = server.run("1002")
    assert again.code == 0, again.output
    assert "6 trials, 6 done, 0 to do" in again.output and stamps(again) == stamps(second)
    assert "## Compared with the last good night, 1001" in again.summary

    dropping = xdp_reflector(tmp_path / "xdp", PROJECT / "tests/moonprogs/lossy_reflector.bpf.c")
    server.variables["NIGHTLY_TESTBED"] = str(
        with_keys(steady, tmp_path / "worse.conf", host={"xdp_reflector_dir": dropping}).config
    )
    worse = server.run("1003")
    assert worse.code == 1, worse.output
    assert "# Night 1003: not good" in worse.summary and "## Compared with the last good night, 1002" in worse.summary
    assert "**Worse: 1 figure**" in worse.summary
    [failed] = [case for suite in junit(worse, "compare-reference.xml") for case in suite if not case.is_passed]
    assert failed.name == "loss"
    assert len(stamps(worse)) == 6, "a night that is not good is among the artifacts, too"
    assert [path.read_text() for path in (worse.checkout / "nightly").glob("reference-*")] == ["1002\n"]

    accepted = server.run("1004", accept=True)
    assert accepted.code == 0, accepted.output
    assert "## Compared with the last good night, 1003" in accepted.summary
