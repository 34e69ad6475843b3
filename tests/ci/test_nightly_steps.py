"""scripts/nightly.sh: what a night leaves for the next one, and its exit codes. Nothing is measured; comparing is real."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from build_servers import BuildServer, GitHub, GitLab, Ran, check_out

pytestmark = pytest.mark.default

PROJECT = Path(__file__).resolve().parents[2]
AUTOTEST = f"""\
case "$*" in
    *test-load-lat-file*) exec {sys.executable} {Path(__file__).parent}/measuring.py ;;
    report*) echo page >"$4" ;;
    summary*) echo figures ;;
    *) exec {sys.executable} -m autotest "$@" ;;
esac"""


@dataclass
class Nights:
    """A checkout with nothing but the program exchanged, and what its nights leave."""

    checkout: Path

    def __call__(self, *step: str, code: int = 0, **variables: object) -> str:
        """Run a step with these variables; returns everything printed."""
        known = {"NIGHTLY_MACHINE": "here", "NIGHTLY_THRESHOLDS": "p50=15% p99=15% loss=1 achieved=5%"}
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("NIGHTLY_", "GITHUB_", "CI"))}
        ended = subprocess.run(
            ["bash", self.checkout / "scripts/nightly.sh", *step],
            cwd=self.checkout,
            env=environment | known | {name: str(value) for name, value in variables.items()},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
            check=False,
        )
        assert ended.returncode == code, f"exit code {ended.returncode}\n{ended.stdout}"
        return ended.stdout

    def night(self, name: str, microseconds: float = 100, code: int = 0, **variables: object) -> str:
        return self("night", code=code, NIGHTLY_NIGHT=name, MEASURED_US=microseconds, **variables)

    def says(self, name: str) -> str:
        """A file that keeps something between nights; empty where there is none."""
        path = self.checkout / "nightly" / name
        return path.read_text().strip() if path.exists() else ""

    def trials(self, name: str) -> dict[str, int]:
        """When the trials of a night were written."""
        found = (self.checkout / "nightly/nights" / name / "results").glob("trial_*.json")
        return {path.name: path.stat().st_mtime_ns for path in found}

    @property
    def summary(self) -> str:
        return self.says("published/summary.md")


@pytest.fixture
def nights(tmp_path: Path) -> Nights:
    return Nights(check_out(tmp_path / "checkout", AUTOTEST))


def test_a_good_night_becomes_the_last_good_one_and_the_first_one_stays_the_baseline(nights: Nights):
    assert "there is no last good night of here to compare with" in nights.night("one")
    assert (nights.says("reference-here"), nights.says("baseline-here")) == ("one", "one")
    nights.night("two", 101)
    assert (nights.says("reference-here"), nights.says("baseline-here")) == ("two", "one")
    assert "Compared with the last good night, one" in nights.summary and "Nothing is worse" in nights.summary
    assert "On here, revision unknown. Exit codes: measured 0, compared 0." in nights.summary  # this copy is no git repository
    assert {path.name for path in (nights.checkout / "nightly/published").iterdir()} == {
        "summary.md", "report.html", "compare-reference.xml", "compare-reference.md", "compare-reference.txt", "measure.log", "tests.conf",
    }  # fmt: skip


def test_a_worse_night_exits_with_1_and_is_published_and_the_reference_stays(nights: Nights):
    nights.night("one")
    nights.night("two", 150, code=1)
    assert nights.says("reference-here") == "one"
    assert "# Night two: not good" in nights.summary and "**Worse: 2 figures**" in nights.summary
    assert len(nights.trials("two")) == 6
    nights.night("three", 150, code=1)
    assert "Compared with the last good night, one" in nights.summary


def test_a_slow_decline_that_no_night_shows_against_the_last_one_is_found_by_the_baseline(nights: Nights):
    nights.night("one", 100)
    nights.night("two", 110)
    nights.night("three", 121, code=1)
    good, decline = nights.summary.split("## Compared with the ")[1:]
    assert good.startswith("last good night, two\n") and "**Nothing is worse.**" in good
    assert decline.startswith("baseline, one\n") and "**Worse: 2 figures.**" in decline
    assert (nights.says("reference-here"), nights.says("baseline-here")) == ("two", "one")


def test_what_is_published_is_all_of_one_night(nights: Nights):
    nights.night("one")
    nights.night("two", MEASURED_SAYS="a log of two")
    nights("compare", NIGHTLY_NIGHT="three")
    nights("publish", NIGHTLY_NIGHT="three")
    assert "# Night three: not good" in nights.summary and "Nothing was measured" in nights.summary
    assert "Compared with" not in nights.summary and "a log of two" not in nights.summary
    assert {path.name for path in (nights.checkout / "nightly/published").iterdir()} == {"summary.md", "tests.conf"}
    nights("publish", NIGHTLY_NIGHT="two")  # an older one again
    assert "# Night two: good" in nights.summary and "Nothing was measured" not in nights.summary
    assert "Compared with" not in nights.summary, "the comparison was not made again"
    nights("compare", NIGHTLY_NIGHT="two")
    nights("publish", NIGHTLY_NIGHT="two")
    assert "Compared with the last good night, one" in nights.summary
    assert "a night's name" in nights("measure", code=2, NIGHTLY_NIGHT="../one")
    assert "# Night two: good" in nights.summary and nights.says("published/measure.log") == ""


def test_other_tests_than_those_of_the_last_good_night_are_a_mistake_until_they_are_accepted(nights: Nights):
    nights.night("one", MEASURED_RATES="10 20")
    nights.night("two", MEASURED_RATES="30 40", code=2)
    assert "**It could not be compared.**" in nights.summary and "no test case of A is in B" in nights.summary
    nights("accept")
    nights.night("three", MEASURED_RATES="30 40")


def test_what_is_accepted_by_hand_is_what_nights_are_held_against(nights: Nights):
    assert "there is no night to accept" in nights("accept", code=2)
    nights.night("one")
    nights.night("two", 150, code=1)
    assert "nothing of it is here" in nights("accept", "three", code=2)
    nights("accept")
    assert (nights.says("reference-here"), nights.says("baseline-here")) == ("two", "two")
    nights.night("two", 150)
    nights.night("three", 200, code=1)
    assert "accepted the one before it already" in nights("accept", NIGHTLY_NIGHT="three")  # as when its job is run again
    assert nights.says("reference-here") == "two"


def test_a_night_is_published_again_after_it_was_accepted(nights: Nights):
    nights.night("one")
    nights.night("two", 150, code=1)
    nights("accept")
    nights("publish")
    assert "# Night two: not good" in nights.summary and "Compared with the last good night, one" in nights.summary
    assert "there is no last good night of here" in nights("compare")
    nights("publish")
    assert "# Night two: good" in nights.summary and "Worse" not in nights.summary
    assert "There is no last good night of this machine to compare with." in nights.summary
    assert not nights.says("published/compare-reference.xml") and not nights.says("published/compare-reference.txt")
    nights("conclude")


def test_the_same_night_again_measures_what_is_missing_and_nothing_twice(nights: Nights):
    nights.night("one")
    nights.night("two", MEASURED_TRIALS=2, MEASURED_CODE=1, code=1)
    before = nights.trials("two")
    assert len(before) == 2 and nights.says("reference-here") == "one"
    nights.night("two")
    assert nights.says("reference-here") == "two" and before.items() < nights.trials("two").items()
    done = nights.trials("two")
    nights.night("two")
    assert nights.trials("two") == done and "Compared with the last good night, one" in nights.summary


def test_nights_of_another_machine_are_not_compared(nights: Nights):
    nights.night("one")
    assert "there is no last good night of there" in nights.night("two", 150, NIGHTLY_MACHINE="there")
    assert (nights.says("reference-here"), nights.says("reference-there")) == ("one", "two")
    nights.night("three", 101)
    nights.night("three", 151, NIGHTLY_MACHINE="there")  # run again, but by chance on the other one
    assert len(list((nights.checkout / "nightly/nights/three/elsewhere-1").glob("trial_*.json"))) == 6
    assert "Compared with the last good night, two" in nights.summary


@pytest.mark.parametrize("code", [1, 2, 3])
def test_a_night_that_could_not_be_measured_has_the_exit_code_of_that_and_its_log_in_the_summary(code: int, nights: Nights):
    says = "no <b>route</b> & host"
    output = nights.night("one", code=code, MEASURED_TRIALS=0, MEASURED_CODE=code, MEASURED_SAYS=says)
    assert "nothing is measured, so there is nothing to compare" in output
    assert "# Night one: not good" in nights.summary and "no &lt;b>route&lt;/b> &amp; host" in nights.summary
    assert nights.says("reference-here") == ""


def test_a_night_with_hardly_a_valid_trial_is_not_good_and_nothing_is_held_against_it(nights: Nights):
    assert "only 0 of 6 trials are valid" in nights.night("one", MEASURED_SENT=0.8, code=1)
    assert nights.says("reference-here") == "" and len(nights.trials("one")) == 6
    nights.night("two", MEASURED_SENT=0.8, MEASURED_TRIALS=2, MEASURED_CODE=1, code=1)
    nights.night("two")  # 4 of 6
    assert nights.says("reference-here") == "two"


def test_each_step_has_its_own_exit_code_and_conclude_that_of_the_night(nights: Nights):
    tonight = {"NIGHTLY_NIGHT": "one", "MEASURED_CODE": 3, "MEASURED_TRIALS": 3}
    nights("measure", code=3, **tonight)
    nights("compare")  # of the night that was measured last
    page = nights.checkout / "page.md"
    nights("publish", GITHUB_STEP_SUMMARY=page)
    assert page.read_text().strip() == nights.summary
    nights("conclude", code=3)


def test_a_step_that_did_not_come_to_its_end_is_not_good(nights: Nights):
    nights("measure", NIGHTLY_NIGHT="one")
    nights("publish")
    nights("conclude", code=1)
    assert nights.says("reference-here") == ""


def test_a_night_that_takes_too_long_is_interrupted_and_goes_on_when_it_is_run_again(nights: Nights):
    output = nights.night("one", code=1, NIGHTLY_TIMEOUT="0.5s", MEASURED_SECONDS=30)
    assert "not done after 0.5s" in output and "not done after 0.5s" in nights.summary
    nights.night("one")


def test_a_night_that_hangs_while_it_is_undone_is_killed_and_failed(nights: Nights):
    script = nights.checkout / "scripts/nightly.sh"
    patience = "--kill-after=2m"
    assert patience in script.read_text()
    script.write_text(script.read_text().replace(patience, "--kill-after=0.5s"))
    output = nights.night("one", code=1, NIGHTLY_TIMEOUT="1s", MEASURED_SECONDS=30, MEASURED_HANGS=1)
    assert "not done after 1s" in output and "killed" in output and "the next night undoes it" in nights.summary
    assert nights.says("nights/one/measure.code") == "1"
    nights.night("one")


def test_old_nights_are_forgotten_but_not_those_that_nights_are_held_against(nights: Nights):
    nights.night("one")
    for name in ("two", "three", "four"):
        nights.night(name, MEASURED_TRIALS=0, MEASURED_CODE=3, code=3, NIGHTLY_KEEP=1)
    assert {path.name for path in (nights.checkout / "nightly/nights").iterdir()} == {"one", "four"}


def test_wrong_configuration_is_said_before_anything_is_measured(nights: Nights):
    own = nights.checkout / "own.conf"
    own.write_text("[a]\noutputdir = results\n")
    output = nights.night("one", code=2, NIGHTLY_TESTS=own)
    assert f"{own}: every section needs outputdir" in output and "every section needs outputdir" in nights.summary
    assert "there is no" in nights.night("one", code=2, NIGHTLY_TESTS="nowhere.conf")
    assert "a night's name" in nights.night("../one", code=2)
    assert "NIGHTLY_KEEP" in nights.night("one", code=2, NIGHTLY_KEEP="many")
    assert "nightly.sh measure" in nights("dance", code=2)
    (nights.checkout / "nightly/tonight/results").mkdir(parents=True)
    assert "move it away" in nights.night("one", code=2)
    assert nights.trials("one") == {}


def test_tests_that_measure_into_another_folder_after_all_are_no_good_night(nights: Nights):
    own = nights.checkout / "elsewhere/own.conf"
    own.parent.mkdir()
    own.write_text("[a]\noutputdir = nightly/tonight/results\n")  # relative to that folder, where there is no such night
    assert "nothing was measured into" in nights.night("one", code=2, NIGHTLY_TESTS=own, MEASURED_TRIALS=0)


def test_an_installation_that_fails_is_the_testbed_that_cannot_be_used(nights: Nights):
    own = nights.checkout / "real.conf"  # without [lab], so that nothing of the lab is installed
    own.write_text("[host]\nfqdn = host.example.org\n")
    programs = nights.checkout / ".venv/bin"
    for name, does in (("python", "exit 0"), ("pip", "echo no space left; exit 1")):
        (programs / name).write_text(f"#!/bin/sh\n{does}\n")
        (programs / name).chmod(0o755)
    nights("install", NIGHTLY_TESTBED=own)  # it is there already
    (programs.parent / ".installed-for").unlink()
    assert "no space left" in nights("install", code=3, NIGHTLY_TESTBED=own)


def test_without_an_installation_the_error_says_what_makes_one(nights: Nights):
    (nights.checkout / ".venv/bin/autotest").unlink()
    assert "scripts/nightly.sh install makes it" in nights.night("one", code=3)
    assert "# Night one: not good" in nights.summary
    nights("measure", code=3, NIGHTLY_NIGHT="two")
    nights("publish")  # as in the workflow after an installation that failed
    assert "# Night two: not good" in nights.summary and "Nothing was measured" in nights.summary
    assert "scripts/nightly.sh install makes it" in nights.summary
    nights("conclude", code=3)


@pytest.fixture(params=[GitHub, GitLab])
def server(request, tmp_path: Path) -> BuildServer:
    """After two good nights; what the second one published, with its comparison, is in the cache."""
    variables = {"NIGHTLY_TESTBED": "own/real.conf", "NIGHTLY_MACHINE": "here"}
    real = "[host]\nfqdn = host.example.org\n"  # without [lab], so that nothing of the lab is installed
    server = request.param(tmp_path / "server", AUTOTEST, variables, {"own/real.conf": real})
    for night in ("1", "2"):
        ran = server.run(night)
        assert ran.code == 0, ran.output
    assert "Nothing is worse" in ran.summary and ran.published("compare-reference.txt").exists()
    return server


def published(ran: Ran) -> set[str]:
    return {path.name for path in (ran.artifacts / "nightly/published").iterdir()}


def test_a_job_that_cannot_accept_publishes_nothing_of_the_night_before(server: BuildServer):
    for results in server.folder.glob("caches/*/nights/2/results"):
        results.rename(results.with_name("lost"))
    ran = server.run("3", accept=True)
    assert ran.code == 2 and "night 2 cannot be accepted" in ran.output, ran.output
    assert [code for script, code in ran.steps.items() if script.endswith((" compare", " publish")) and code] == []
    assert "# Night 3: not good" in ran.published("summary.md").read_text() and "Compared with" not in ran.summary
    if isinstance(server, GitHub):
        assert "Nothing was measured" in ran.summary and "# Night 3: not good" in ran.summary
    assert published(ran) <= {"summary.md", "tests.conf"}
    again = server.run("3")
    assert again.code == 0 and "# Night 3: good" in again.summary, again.output


@pytest.mark.parametrize("night", ["2", pytest.param("3", marks=pytest.mark.all)], ids=["run-again", "next-night"])
def test_a_job_that_cannot_install_publishes_no_summary_of_before(server: BuildServer, night: str):
    programs = server.folder / "bin"
    programs.mkdir()
    for name, does in (("dpkg-query", "exit 1"), ("apt-get", "echo no route; exit 100")):
        (programs / name).write_text(f"#!/bin/sh\n{does}\n")
        (programs / name).chmod(0o755)
    server.variables["PATH"] = f"{programs}:{os.environ['PATH']}"
    ran = server.run(night)
    assert ran.code == 3, ran.output
    assert f"# Night {night}: not good" in ran.published("summary.md").read_text()
    assert "measure.log" not in published(ran)
    assert (ran.checkout / "nightly/reference-here").read_text() == "2\n"
