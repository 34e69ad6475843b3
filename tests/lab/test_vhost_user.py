"""Virtio over DPDK's testpmd: real guests, the real switch, real frames."""

import json
import re
from pathlib import Path

import pytest
from labtest import CampaignFile, LabCommand
from running import RunningCampaign, inside, kill, stop
from variants import with_keys

MACHINES = ("pcvm", "microvm")


def trials_of(tests: CampaignFile) -> dict[tuple[str, int], dict]:
    """By machine type and rate."""
    loaded = [json.loads(path.read_text()) for path in tests.trials()]
    return {(trial["parameters"]["machine"], trial["parameters"]["rate"]): trial for trial in loaded}


def assert_reflected(trial: dict) -> None:
    """A machine that is busy with something else may hold up the sender: that is a finding, and no loss."""
    figures = trial["figures"]
    assert trial["verdict"] in ("valid", "under-sent")
    assert figures["sent"] >= 500
    assert 0.95 * figures["sent"] <= figures["received"] <= figures["sent"]
    assert figures["samples"] >= 10


def of_wire() -> dict:
    [link] = json.loads(inside("host", "ip", "-json", "-details", "link", "show", "dev", "wire-host"))
    return {key: value for key, value in link.items() if key != "operstate"}


@pytest.mark.all
def test_both_machines_give_a_curve_and_the_wire_is_as_it_was(lab: LabCommand, tests: CampaignFile):
    tests.write(machines=", ".join(MACHINES), interfaces="vhost-user", reflectors="xdp, moongen", rates="1, 5")
    lab.run("lab", "up")
    before = of_wire()
    log = lab.run("test-load-lat-file", str(tests.file))
    trials = trials_of(tests)
    assert set(trials) == {(machine, rate) for machine in MACHINES for rate in (1, 5)}
    for machine in MACHINES:
        assert_reflected(trials[machine, 1])
        assert trials[machine, 5]["figures"]["received"] > 0.8 * trials[machine, 5]["figures"]["sent"] > 1000
        assert trials[machine, 1]["versions"]["switch"].startswith("DPDK ")
        assert trials[machine, 1]["machines"]["guest"]["switch command line"].startswith("dpdk-testpmd ")
    assert len(tests.trials()) == 6  # microvm has no PCI bus for the reflector of MoonGen
    assert log.count("s after QEMU's start") == 2
    assert of_wire() == before


@pytest.mark.all
def test_a_guest_with_several_queues_and_long_rings_uses_them(lab: LabCommand, tests: CampaignFile, tmp_path: Path):
    lab = with_keys(lab, tmp_path / "two.conf", guest={"vcpus": 2})
    lists = {"queues": "2", "rx_queue_sizes": "512", "tx_queue_sizes": "1024"}
    tests.write(machines=", ".join(MACHINES), interfaces="vhost-user", rates="1", **lists)
    lab.run("test-load-lat-file", str(tests.file))
    trials = trials_of(tests)
    assert len(trials) == 2
    for trial in trials.values():
        assert_reflected(trial)


def test_the_guests_kernel_sees_what_is_asked_for_and_the_switch_is_placed(lab: LabCommand):
    lab.run("run-guest", "-i", "vhost-user", "-C", "2", "-Q", "2", "-r", "512", "-t", "1024")
    asked = (
        'print(guest.run(["ethtool", "-l", "test"]).stdout, guest.run(["ethtool", "-g", "test"]).stdout)\n'
        'print("nice", host.run(["ps", "-o", "ni=", "-p", str(host.session("testpmd").pid())]).stdout)\n'
    )
    said = lab.run("shell", input=asked)
    assert re.findall(r"Combined:\s+(\d+)", said) == ["2", "2"]
    assert [re.findall(rf"{ring}:\s+(\d+)", said)[-1] for ring in ("RX", "TX")] == ["512", "1024"]
    assert re.search(r"nice +19", said)


@pytest.mark.all
def test_a_switch_that_dies_or_hangs_in_a_trial_is_named_and_started_again(lab: LabCommand, tests: CampaignFile):
    tests.write(interfaces="vhost-user", rates="1", runtimes="3", repetitions="2")
    with RunningCampaign(lab, tests) as campaign:
        campaign.next_trial()
        kill(campaign.process("testpmd"))
        campaign.logged("guest: host: testpmd ended with exit code 137:\n")
        campaign.next_trial()
        stop(campaign.process("testpmd"))
        campaign.logged("guest: host: testpmd does not work: its process is stopped:\n")
        log = campaign.end()
    assert log.count("virtio is now ready for processing") >= 2  # the tail of what it said
    assert log.count("s after QEMU's start") == 3
    assert "2 trials done, 0 failed" in log
    for trial in trials_of(tests).values():
        assert_reflected(trial)


@pytest.mark.all
def test_a_testpmd_that_is_not_there_is_named_before_anything_is_set_up(lab: LabCommand, tests: CampaignFile, tmp_path: Path):
    lab = with_keys(lab, tmp_path / "none.conf", host={"testpmd_path": "/nonexistent/testpmd"})
    tests.write(machines="microvm, host", interfaces="vhost-user, pnic", rates="10")
    log = lab.run("test-load-lat-file", str(tests.file), code=1)
    assert "/nonexistent/testpmd" in log and "s after QEMU's start" not in log
    assert [path.name[:15] for path in tests.trials()] == ["trial_host_pnic"]
