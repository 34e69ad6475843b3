"""The files for GitHub and GitLab: their shape, and that they say nothing that the script does not know."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from autotest.config.tests import load_all
from autotest.measurements.load_latency import KIND
from autotest.results.statistics import repetitions_needed

PROJECT = Path(__file__).resolve().parents[2]
WORKFLOW = PROJECT / ".github/workflows/nightly.yml"
PIPELINE = PROJECT / ".gitlab-ci.yml"
CHANGES = PROJECT / ".github/workflows/changes.yml"
SCRIPT = (PROJECT / "scripts/nightly.sh").read_text()


@pytest.fixture
def workflow() -> dict[Any, Any]:
    return yaml.safe_load(WORKFLOW.read_text())


@pytest.fixture
def steps(workflow) -> list[dict[str, Any]]:
    return workflow["jobs"]["nightly"]["steps"]


@pytest.fixture
def job() -> dict[str, Any]:
    return yaml.safe_load(PIPELINE.read_text())["nightly"]


def test_the_workflow_runs_every_night_and_by_hand_one_at_a_time_and_may_only_read(workflow):
    triggers = workflow[True]  # YAML 1.1 takes the word on for a boolean
    assert re.fullmatch(r"\d+ \d+ \* \* \*", triggers["schedule"][0]["cron"])
    assert triggers["workflow_dispatch"]["inputs"]["accept"]["type"] == "boolean"
    assert workflow["permissions"] == {"contents": "read"}
    assert workflow["concurrency"] == {"group": "nightly", "cancel-in-progress": False}


def test_every_step_is_one_line_and_every_action_has_its_major_version(steps):
    for step in steps:
        assert ("run" in step) != ("uses" in step)
        assert "\n" not in step.get("run", "")
        assert re.fullmatch(r"[\w-]+/[\w/-]+@v\d+", step.get("uses", "a/b@v1"))


def test_what_comes_after_measuring_runs_whatever_came_before(steps):
    names = [step.get("run", step.get("uses")) for step in steps]
    after = steps[names.index("scripts/nightly.sh measure") + 1 :]
    assert len(after) == 7 and all(step["if"] == "always()" for step in after)


def test_what_was_measured_is_kept_under_a_name_of_this_attempt_and_the_newest_is_fetched(steps):
    restore, save = (
        next(step["with"] for step in steps if f"cache/{what}@" in step.get("uses", "")) for what in ("restore", "save")
    )
    assert restore["key"] == save["key"] and "run_id" in save["key"] and "run_attempt" in save["key"]
    assert save["key"].startswith(restore["restore-keys"]) and restore["path"] == save["path"] == "nightly"


def test_times_end_in_order_so_that_a_night_that_takes_too_long_is_still_published(workflow, job):
    github = workflow["jobs"]["nightly"]
    assert github["env"]["NIGHTLY_TIMEOUT"] == job["variables"]["NIGHTLY_TIMEOUT"] == "2h"
    assert github["timeout-minutes"] == 180 and job["timeout"] == "3 hours"


def test_the_pipeline_runs_for_schedules_one_at_a_time_and_keeps_everything(job):
    assert [rule["if"] for rule in job["rules"]] == ['$CI_PIPELINE_SOURCE == "schedule"', '$CI_PIPELINE_SOURCE == "web"']
    assert (job["resource_group"], job["interruptible"]) == ("nightly", False)
    assert [cache["when"] for cache in job["cache"]] == ["always", "always"]
    assert job["artifacts"]["when"] == "always" and job["artifacts"]["expire_in"]
    assert job["artifacts"]["reports"]["junit"].startswith(job["artifacts"]["paths"][0])


def mentioned() -> Iterator[str]:
    for path in (WORKFLOW, PIPELINE, PROJECT / "docs/nightly.md"):
        yield from re.findall(r"NIGHTLY_[A-Z]+", path.read_text())


def test_every_variable_that_is_mentioned_is_known():
    known = {*re.findall(r"NIGHTLY_[A-Z]+", SCRIPT), "NIGHTLY_ACCEPT"}  # which is the pipeline's own
    assert set(mentioned()) == known


def test_every_step_that_is_mentioned_is_known():
    text = "".join(path.read_text() for path in (WORKFLOW, PIPELINE, PROJECT / "docs/nightly.md"))
    functions = set(re.findall(r"^(\w+)\(\)", SCRIPT, re.MULTILINE))
    assert set(re.findall(r"scripts/nightly\.sh (\w+)", text)) <= functions


def test_the_nightly_tests_have_repetitions_enough_for_all_their_comparisons():
    [section] = load_all([PROJECT / "configs/tests-nightly.conf"], PROJECT, KIND.parameters, KIND.settings)
    cases = 1
    for values in section.lists.values():
        cases *= len(values)
    assert section.settings["repetitions"] > repetitions_needed(4 * cases, 0.05)
    assert Path(section.settings["outputdir"]) == PROJECT / "configs/../nightly/tonight/results"


# -- the tests of every change -----------------------------------------------------------------------------


@pytest.fixture
def changes() -> dict[Any, Any]:
    return yaml.safe_load(CHANGES.read_text())


def test_every_change_is_tested_and_the_workflow_may_only_read(changes):
    assert set(changes[True]) == {"push", "pull_request"}
    assert changes["permissions"] == {"contents": "read"}


def test_the_fast_tier_runs_on_each_python_that_the_package_says_it_supports(changes):
    needed = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["requires-python"]
    on_gitlab = yaml.safe_load(PIPELINE.read_text())["fast"]
    versions = changes["jobs"]["fast"]["strategy"]["matrix"]["python"]
    assert versions == on_gitlab["parallel"]["matrix"][0]["PYTHON_VERSION"]
    assert versions[0] == needed.removeprefix(">=") and all(type(version) is str for version in versions)


@pytest.mark.parametrize(("job", "script"), [("fast", "scripts/test.sh --fast"), ("default", "scripts/test.sh")])
def test_both_services_run_the_same_script_for_a_tier(changes, job, script):
    pipeline = yaml.safe_load(PIPELINE.read_text())
    assert pipeline[job]["script"] == [script] and pipeline[job]["extends"] == ".change"
    assert changes["jobs"][job]["steps"][-1]["run"] == script
    for of_job in (pipeline[job]["variables"], changes["jobs"][job]["env"]) if job == "fast" else ():
        assert of_job == {"PYTHON": "python3"}


def test_a_night_is_not_measured_for_a_change_and_no_change_tested_for_a_night():
    pipeline = yaml.safe_load(PIPELINE.read_text())

    def sources(job):
        return {source for rule in pipeline[job]["rules"] for source in re.findall(r'SOURCE == "(\w+)"', rule["if"])}

    assert not sources(".change") & sources("nightly")
