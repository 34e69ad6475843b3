"""Results that would not be measured the same way now, end to end: what a run says of them and does about them."""

from __future__ import annotations

import hashlib
import json
import subprocess
import time
from importlib import resources
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from junitparser import JUnitXml
from labtest import CampaignFile, LabCommand

from autotest.results.verdicts import Verdict

REFLECTOR = Path("autotest/traffic/reflector.bpf.c")


def build_reflector(repository: Path, target: Path) -> None:
    target.parent.mkdir()
    command = ["clang", "-O2", "-g", "-target", "bpf", "-c", repository / REFLECTOR, "-o", target]
    subprocess.run(command, check=True, timeout=30)


def records(folder: Path) -> list[dict]:
    return [json.loads(path.read_text()) for path in sorted(folder.glob("trial_*.json"))]


@pytest.mark.all
def test_another_reflector_is_noticed_and_what_was_measured_with_the_first_is_failed_kept_or_run_again(
    lab: LabCommand, tests: CampaignFile, repository: Path, tmp_path: Path
) -> None:
    reflector, junit = tmp_path / "xdp/reflector.bpf.o", tmp_path / "run.xml"
    build_reflector(repository, reflector)
    config = tmp_path / "autotest.conf"
    text = lab.config.read_text()
    config.write_text(text.replace("xdp_reflector_dir = ${common:lab_dir}/image", f"xdp_reflector_dir = {reflector.parent}"))
    own = LabCommand(config, lab.before)
    tests.write(machines="host", interfaces="pnic, bridge", rates="1")
    run = ("test-load-lat-file", str(tests.file))
    own.run(*run, "--junit", str(junit))
    [suite] = JUnitXml.fromfile(str(junit))
    assert (suite.tests, suite.skipped, suite.failures, suite.errors) == (2, 0, 0, 0)
    first = records(tests.results)
    schema = json.loads((resources.files("autotest.results") / "trial.schema.json").read_text())
    for record in first:
        Draft202012Validator(schema).validate(record)
        assert record["identity"]["determines"]["reflector.sha256"] == record["versions"]["reflector sha256"]
        assert record["machines"]["host"]["nic"]["speed"] == 10000

    start = time.monotonic()
    assert "--stale" not in own.run(*run)
    assert time.monotonic() - start < 10

    reflector.write_bytes(reflector.read_bytes() + b"\0")  # it does the same, but it is another file
    log = own.run(*run, code=2)
    assert "2 done trials, e.g. host_pnic_xdp_1kpps_60B_1s_rep0: reflector: sha256 " in log and "--stale rerun" in log
    assert records(tests.results) == first

    log = own.run(*run, "--stale", "keep", "--junit", str(junit))
    assert "kept, though they would not be measured the same way now: 2 done trials" in log
    assert records(tests.results) == first
    assert JUnitXml.fromfile(str(junit)).skipped == 2

    log = own.run(*run, "--stale", "rerun")
    assert "2 trials done, 0 failed" in log
    again = records(tests.results)
    assert all(Verdict(record["verdict"]).is_done for record in again)
    assert {record["identity"]["hash"] for record in again}.isdisjoint(record["identity"]["hash"] for record in first)
    assert records(tests.results / "invalid") == first
    assert "--stale" not in own.run(*run)


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.all
def test_the_record_of_a_guest_tells_what_ran_it_and_what_it_was_and_another_qemu_is_noticed(
    lab: LabCommand, tests: CampaignFile, tmp_path: Path
) -> None:
    tests.write(rates="1")
    lab.run("test-load-lat-file", str(tests.file))
    [record] = records(tests.results)
    determines, guest = record["identity"]["determines"], record["machines"]["guest"]
    for subject in ("qemu", "guest image", "guest kernel", "guest initrd", "generator", "program"):
        assert len(determines[f"{subject}.sha256"]) == 64, subject
    assert determines["qemu.version"] in guest["qemu version"] and determines["guest.accelerator"] == guest["accelerator"]
    assert record["versions"]["kernel of guest"] == guest["kernel"] and len(record["versions"]["reflector sha256"]) == 64
    assert guest["nic"]["driver"] == "virtio_net" and "mitigations" in guest
    qemu, other = tmp_path / "qemu-system-x86_64", lab.config.with_name("other.conf")
    qemu.write_text('#!/bin/sh\nexec qemu-system-x86_64 "$@"\n')
    qemu.chmod(0o755)
    text = lab.config.read_text().replace("memory = 512", "memory = 640")
    other.write_text(text.replace("\nqemu_path =\n", f"\nqemu_path = {tmp_path}\n"))
    log = LabCommand(other, lab.before).run("test-load-lat-file", str(tests.file), code=2)
    then, now = (f"{determines['qemu.version']} (sha256 {start}" for start in (determines["qemu.sha256"][:12], sha256(qemu)[:12]))
    assert f"QEMU: {then}...) then, {now}...) now" in log
    assert "guest memory: 512 then, 640 now" in log
