"""A run in the lab, as it is seen while the load is sent."""

import json
import re

import pytest
from labtest import AUTOTEST, NAME, CampaignFile, LabCommand
from terminal import Terminal
from traces import TEMPORARY

READING = re.compile(r"\bload, (?:\d+ s left|about to end) +([0-9.]+)(?:-([0-9.]+))? kpps")


@pytest.mark.all
def test_the_rate_is_seen_while_the_load_is_sent_and_is_the_one_that_is_measured(lab: LabCommand, tests: CampaignFile):
    tests.write(machines="host", interfaces="pnic", rates="20", runtimes="5", warmup="2", cooldown="1")
    arguments = [*AUTOTEST, "-c", str(lab.config), "test-load-lat-file", str(tests.file)]
    with Terminal(arguments, 120, environment={"AUTOTEST_TEST_LAB": NAME, "TMPDIR": str(TEMPORARY)}) as terminal:
        for text in ("bringing the lab up, ", "preflight: ", "rest, 1 s left", "warm-up, 2 s left", "load, 5 s left"):
            terminal.wait_for(text, 60)
        assert terminal.end(60) == 0, terminal.seen()
    shown = terminal.data_without_colours
    assert len(set(re.findall(r"load, (\d) s left", shown))) >= 3, "it counts down"
    readings = [(float(least), float(most or least)) for least, most in READING.findall(shown)]
    [trial] = tests.trials()
    achieved = json.loads(trial.read_text())["figures"]["achieved_kpps"]
    assert readings and 0.8 * min(readings)[0] < achieved < 1.2 * max(most for _, most in readings), (achieved, readings)
    assert "undoing what was set up" in terminal.seen() and " 1/1 achieved " in terminal.seen()
