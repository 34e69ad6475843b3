"""Kills at random moments: no trial is lost, doubled or corrupt, and nothing is left behind."""

import re
import subprocess
import sys

import pytest
from labtest import PROJECT

pytestmark = [pytest.mark.all, pytest.mark.alone]

KILLS, SEED = 20, 15


def test_after_kills_at_random_moments_everything_is_as_without_them():
    command = [sys.executable, "-m", "benchmarks.chaos", "-n", str(KILLS), "--seed", str(SEED)]
    chaos = subprocess.run(command, cwd=PROJECT, check=False, capture_output=True, text=True, timeout=900)
    print(chaos.stdout, chaos.stderr)
    table = dict(re.findall(r"^(\S[^:\n]*?)  +(.*)$", chaos.stdout, re.MULTILINE))
    assert int(table["kills"].partition(":")[0]) >= KILLS
    faults = ("trials lost", "trials doubled", "trials corrupt", "things left behind", "unexpected ends")
    assert {name: table[name] for name in faults} == dict.fromkeys(faults, "0")
    assert chaos.returncode == 0
