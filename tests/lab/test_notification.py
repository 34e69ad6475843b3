"""A command that is told of real campaigns: of one that ends, of a failure in it, of one that is interrupted."""

import json
import signal
from pathlib import Path

import pytest
from labtest import CampaignFile, LabCommand
from running import RunningCampaign
from traces import NAME

ON_HOST = {"machines": "host", "interfaces": "pnic"}  # a set-up without a guest: quickly there
_TELLING = '#!/bin/sh\ncat >>"$0.told"\necho >>"$0.told"\n'


def _telling(folder: Path) -> tuple[Path, Path]:
    """A program, and the file to which it adds what it is told."""
    program = folder / "tell"
    program.write_text(_TELLING)
    program.chmod(0o755)
    return program, folder / "tell.told"


def _told(file: Path) -> list[dict]:
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.mark.all
def test_a_failure_and_the_end_of_a_campaign_are_told(lab: LabCommand, tests: CampaignFile, tmp_path: Path):
    program, file = _telling(tmp_path)
    tests.write(**ON_HOST, reflectors="xdp, moongen", repetitions="2", retries="0")
    text = lab.config.read_text()
    (tmp_path / "broken.conf").write_text(text.replace("= ${common:lab_dir}/image\n", "= /nonexistent\n", 1))
    broken = LabCommand(tmp_path / "broken.conf", lab.before)
    broken.run("test-load-lat-file", str(tests.file), "--notify", str(program), code=1)
    failure, end = _told(file)[0], _told(file)[-1]
    assert (failure["event"], failure["counts"]["total"], failure["exit_code"]) == ("failure", 4, None)
    assert (end["event"], end["outcome"], end["exit_code"]) == ("end", "failed", 1)
    assert end["counts"] == {"total": 4, "done": 2, "failed": 2, "invalid": 0, "left": 0}
    assert sum(each["trials"] for each in end["failures"]) == 2 and "/nonexistent" in end["failures"][0]["reason"]
    assert end["output_directories"] == [str(tests.results)] and end["testbed"] == str(broken.config)

    file.unlink()
    lab.run("test-load-lat-file", str(tests.file), "--notify", str(program))
    [end] = _told(file)
    assert (end["outcome"], end["counts"]["done"], end["counts"]["total"], end["failures"]) == ("finished", 2, 2, [])
    file.unlink()
    lab.run("test-load-lat-file", str(tests.file), "--notify", str(program))
    assert not file.exists()  # nothing was to do


@pytest.mark.all
def test_a_campaign_that_is_interrupted_says_so_when_all_is_undone(lab: LabCommand, tests: CampaignFile, tmp_path: Path):
    program, file = _telling(tmp_path)
    config = tmp_path / "told.conf"
    config.write_text(lab.config.read_text().replace("[local]\n", f"[local]\nnotify_command = {program}\n"))
    program.write_text(_TELLING + f'ls /run/netns >"{tmp_path}/namespaces"\n')
    tests.write(**ON_HOST, runtimes="3", repetitions="2")
    with RunningCampaign(LabCommand(config, lab.before), tests) as campaign:
        campaign.next_trial()
        campaign.send(signal.SIGTERM)
        campaign.end(code=130)
    [end] = _told(file)
    assert (end["event"], end["outcome"], end["exit_code"]) == ("end", "interrupted", 130)
    assert end["counts"] == {"total": 2, "done": 0, "failed": 0, "invalid": 0, "left": 2}
    assert NAME not in (tmp_path / "namespaces").read_text()  # the lab is down by then
