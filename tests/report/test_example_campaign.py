"""The synthetic campaign is what it says, or what is drawn from it proves nothing."""

import json
from collections import Counter
from pathlib import Path

import example_campaign
import jsonschema

import autotest.results
from autotest.report.trials import read_results

SCHEMA = Path(autotest.results.__file__).with_name("trial.schema.json")


def test_the_same_arguments_give_the_same_trials_and_nothing_is_complained_about(tmp_path):
    for name in ("a", "b"):
        example_campaign.fill_campaign(tmp_path / name, machines=["pcvm"], sizes=[1514], rates=[50, 200], repetitions=2)
    first, second = (read_results(tmp_path / name) for name in ("a", "b"))
    assert not first.complaints and len(first.trials) == 32
    assert [trial.checksum for trial in first.trials] == [trial.checksum for trial in second.trials]
    assert [path.read_bytes() for path in sorted((tmp_path / "a").iterdir()) if path.is_file()] == [
        path.read_bytes() for path in sorted((tmp_path / "b").iterdir()) if path.is_file()
    ]
    verdicts = Counter(str(trial.verdict) for trial in first.trials)
    assert verdicts == {"valid": 28, "under-sent": 2, "disturbed": 2}


def test_its_records_are_by_the_published_schema(tmp_path):
    example_campaign.fill_campaign(tmp_path, machines=["microvm"], rates=[1000], repetitions=1)
    validator = jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text("utf-8")))
    records = list(tmp_path.glob("trial_*.json"))
    assert len(records) == 8
    assert [error.message for path in records for error in validator.iter_errors(json.loads(path.read_text("utf-8")))] == []
