"""The preflight in the lab: what all is looked at in it, how long that takes, and a run of which a part is blocked."""

from __future__ import annotations

import json
import re
import stat
from datetime import datetime
from pathlib import Path

import pytest
from labtest import CampaignFile, LabCommand
from traces import left_since
from variants import with_keys

_LONGEST = 4.0  # seconds that a run's preflight may take here: it takes one, and a busy machine is no failure of it
_STAMP = re.compile(r"^([0-9]{2}-[0-9]{2} [0-9:]{8}) ", re.MULTILINE)


def test_the_lab_has_all_that_its_own_tests_need_and_is_left_as_it_was(lab: LabCommand, tests: CampaignFile) -> None:
    tests.write(machines="pcvm, microvm, host", interfaces="bridge, macvtap, bridge-e1000, pnic", reflectors="xdp, moongen")
    output = lab.run("check", str(tests.file))
    assert " 0 failed" in output and "can be measured" in output and "fail  " not in output
    for what in ("accelerator", "QEMU default: device", "MoonGen", "NIC", "/dev/net/tun", "files of the reflector"):
        assert f"pass  host     {what} " in output, output
    assert "lab is down" in output and not tests.results.exists()
    assert left_since(lab.before) == []


@pytest.mark.all
def test_a_switch_that_does_not_start_is_named_before_the_first_guest_boots(
    lab: LabCommand, tests: CampaignFile, tmp_path: Path
) -> None:
    switch = tmp_path / "testpmd"
    switch.write_text("#!/bin/sh\necho 'EAL: Cannot init memory' >&2\nexit 1\n")
    switch.chmod(stat.S_IRWXU)
    broken = with_keys(lab, tmp_path / "broken.conf", host={"testpmd_path": switch})
    tests.write(machines="microvm", interfaces="vhost-user, bridge", qemus="default:, gone:/no", rates="5")
    log = broken.run("test-load-lat-file", str(tests.file), code=1)
    assert log.index("EAL: Cannot init memory") < log.index("s after QEMU's start")
    assert "preflight: host: process of vhost-user: testpmd ended with exit code 1" in log
    assert "blocks 2 of 4 trials: interface vhost-user" in log
    assert "blocks 2 of 4 trials: qemu gone" in log
    assert "1 trial done, 3 failed" in log
    assert [path.name[:27] for path in tests.trials()] == ["trial_microvm_bridge_defaul"]
    noted = [json.loads(line) for line in (tests.results / "failures.jsonl").read_text().splitlines()]
    assert len(noted) == 3 and all(each["what"].startswith("preflight (machine microvm") for each in noted)
    assert left_since(lab.before) == []


def test_a_runs_preflight_is_short_and_tells_only_what_is_wrong(lab: LabCommand, tests: CampaignFile) -> None:
    tests.write(machines="host", interfaces="pnic", rates="5")
    lab.run("lab", "up")
    log = lab.run("test-load-lat-file", str(tests.file))
    (line,) = [line for line in log.splitlines() if "checks passed" in line]
    assert " 0 failed" in line and "pass " not in log
    before, ended = (
        datetime.strptime(f"2024-{_STAMP.findall(text)[0]}", "%Y-%m-%d %H:%M:%S").astimezone() for text in (log, line)
    )
    assert (ended - before).total_seconds() < _LONGEST, log
    log = lab.run("test-load-lat-file", str(tests.file))  # nothing to do: nothing is looked at
    assert "checks passed" not in log


def test_over_ssh_the_same_is_looked_at(ssh_lab: LabCommand, tests: CampaignFile) -> None:
    tests.write(machines="microvm, host", interfaces="macvtap", reflectors="xdp, moongen")
    output = ssh_lab.run("check", str(tests.file))
    assert output.count("over SSH in") == 2 and " 0 failed" in output
    for what in ("accelerator", "QEMU default: device", "kernel modules", "files of the guest"):
        assert f"pass  host     {what} " in output, output
    assert left_since(ssh_lab.before) == []
