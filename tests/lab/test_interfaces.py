"""Every kind of interface that runs in the lab, with real frames."""

import json
from pathlib import Path

import pytest
from labtest import CampaignFile, LabCommand
from variants import with_keys


def _trials(tests: CampaignFile) -> dict[str, dict]:
    return {
        path.name.removeprefix("trial_").removesuffix("_1kpps_60B_1s_rep0.json"): json.loads(path.read_text())
        for path in tests.trials()
    }


def assert_reflected(trials: dict[str, dict]) -> None:
    """A machine that is busy with something else may hold up the sender, so not the verdict is looked at."""
    for name, trial in trials.items():
        figures = trial["figures"]
        assert 500 <= figures["sent"] <= 1000, name
        assert 0.95 * figures["sent"] <= figures["received"] <= figures["sent"], name
        assert figures["samples"] >= 10, name


@pytest.mark.all
def test_the_hosts_own_nic_and_emulated_nics_reflect_with_each_reflector(lab: LabCommand, tests: CampaignFile):
    interfaces = "pnic, bridge-e1000, bridge-rtl8139"
    tests.write(machines="host, pcvm, microvm", interfaces=interfaces, reflectors="xdp, moongen", rates="1")
    lab.run("test-load-lat-file", str(tests.file))
    trials = _trials(tests)
    guest = "default_vhostoff_ioregionfdoff"
    assert set(trials) == {
        *(f"host_pnic_{reflector}" for reflector in ("xdp", "moongen")),
        *(f"pcvm_bridge-{nic}_{guest}_{reflector}" for nic in ("e1000", "rtl8139") for reflector in ("xdp", "moongen")),
    }
    assert_reflected(trials)


@pytest.mark.all
def test_a_guest_has_the_queues_and_rings_that_it_is_given(lab: LabCommand, tests: CampaignFile, tmp_path: Path):
    lab = with_keys(lab, tmp_path / "two.conf", guest={"vcpus": 2})
    lists = {"queues": "default, 2", "rx_queue_sizes": "512"}
    tests.write(machines="pcvm, microvm", interfaces="bridge, macvtap", rates="1", **lists)
    lab.run("test-load-lat-file", str(tests.file))
    trials = _trials(tests)
    assert len(trials) == 8
    assert_reflected(trials)
    for name, trial in trials.items():
        assert trial["parameters"]["rx_queue_size"] == 512
        assert ("queues2" in name) == (trial["parameters"].get("queues") == 2)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["-i", "bridge-e1000", "-V"], "--vhost: interface bridge-e1000 has no such thing"),
        (["-i", "bridge-e1000", "-Q", "2"], "--queues: interface bridge-e1000 has no such thing"),
        (["-i", "bridge-e1000", "-m", "microvm"], "not with machine microvm, only with pcvm"),
        (["-i", "pnic"], "the host's own, no guest has it"),
        (["-i", "bridge", "-t", "512"], "--tx-queue-size 512: at most 256 with interface bridge"),
    ],
)
def test_what_an_interface_has_not_is_refused_before_anything_is_touched(lab: LabCommand, options: list[str], complaint: str):
    assert complaint in lab.run("run-guest", *options, code=2)
    assert "missing" in lab.run("lab", "status")
