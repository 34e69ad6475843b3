"""The measured machine is left alone: while a trial runs, no frame crosses the admin network."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import pytest
from labtest import CampaignFile, LabCommand
from running import RunningCampaign
from traces import NAME

CAPTURE = Path(__file__).resolve().parents[1] / "support/capture.py"
LEAD_IN = 0.3  # seconds at the start of a trial in which the last answer before it may still be acknowledged


@contextmanager
def captured(links: list[str], netns: str, target: Path) -> Iterator[None]:
    """All frames on the links of a namespace, into a file; from before the context until its end."""
    inside = ["ip", "netns", "exec", netns, sys.executable, "-u", str(CAPTURE), *links]
    with open(target, "w") as file, subprocess.Popen(inside, stdout=file) as process:
        try:
            while "capturing" not in target.read_text():
                assert process.poll() is None, f"no capture on {links}"
                time.sleep(0.05)
            yield
        finally:
            process.terminate()
            process.wait(10)


def frames(capture: Path) -> list[tuple[float, str]]:
    lines = (line.split(maxsplit=1) for line in capture.read_text().splitlines()[1:])
    return [(float(moment), what) for moment, what in lines]


def trials(tests: CampaignFile) -> list[tuple[float, float]]:
    records = [json.loads(path.read_text()) for path in tests.trials()]
    times = [[datetime.fromisoformat(record[key]).timestamp() for key in ("started", "ended")] for record in records]
    return sorted((start, end) for start, end in times)


@pytest.mark.all
@pytest.mark.parametrize(
    ("kind", "links"),
    # With the host behind SSH, what is said to it goes over its loopback: it runs the guest and is left alone, too.
    [("", ["br-admin"]), ("-ssh", ["br-admin", "lo"])],
)
def test_no_frame_crosses_the_admin_network_while_a_trial_runs(kind, links, request, tests: CampaignFile, tmp_path):
    lab: LabCommand = request.getfixturevalue("ssh_lab" if kind else "lab")
    tests.write(reflectors="xdp, moongen", rates="1", runtimes="7")  # ARP may ask again 5 s after a neighbour was used
    capture = tmp_path / "capture"
    with RunningCampaign(lab, tests, kind) as campaign:
        campaign.next_boot()
        with captured(links, f"{NAME}{kind}-host", capture):
            campaign.wait_for(lambda: len(tests.trials()) == 2, "2 trials")
            seen = frames(capture)
        campaign.end()
    ran = trials(tests)
    assert len(ran) == 2 and all(end - start >= 7 for start, end in ran)
    for start, end in ran:
        assert [frame for frame in seen if start + LEAD_IN < frame[0] < end] == []
    # It does see what there is: SSH on each link before the first trial, and between them as the reflector changes.
    (first, end), (start, _) = ran
    for link in links:
        for since, until in ((0, first), (end, start)):
            ssh = [what for moment, what in seen if since < moment < until and ":22 " in what]
            assert any(what.startswith(f"{link} ") for what in ssh)
