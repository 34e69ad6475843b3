"""Several guests that share the load: real QEMU guests, real frames, counted on the wire and guest by guest."""

import json
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from frame_counts import FrameCounts
from labtest import PROJECT, CampaignFile, LabCommand
from running import RunningCampaign, inside, kill
from traces import NAME, left_since, traces
from variants import xdp_reflector

IMIX = {60: 7, 590: 4, 1514: 1}
MACS = [f"52:54:00:fa:00:{0x60 + number:x}" for number in range(4)]  # of guest 1 to 4, as autotest.conf counts them
BOOTED = "s after QEMU's start"


def records(tests: CampaignFile) -> list[dict]:
    return [json.loads(path.read_text()) for path in tests.trials()]


def failures(tests: CampaignFile) -> list[dict[str, str]]:
    file = tests.results / "failures.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def up(lab: LabCommand) -> LabCommand:
    """The lab, up already, so that a campaign has to leave it as it was."""
    lab.run("lab", "up")
    return LabCommand(lab.config, frozenset(traces()))


def in_guest(number: int, script: str, input: bytes = b"", kind: str = "") -> str:
    """Run a shell script in a guest; its name for SSH is in the file that the lab wrote for the user."""
    where = [] if kind else ["ip", "netns", "exec", f"{NAME}-host"]
    name = f"autotest-guest{number if number > 1 else ''}"
    command = [*where, "ssh", "-F", f"/run/{NAME}-lab{kind}/ssh_config", name, script]
    return subprocess.run(command, input=input, capture_output=True, timeout=60, check=True).stdout.decode()


def assert_sums_fit(figures: dict) -> None:
    """What the guests have together is what there is in all."""
    for key in ("sent", "received", "sent_bytes", "received_bytes", "samples", "lost"):
        assert sum(guest[key] for guest in figures["guests"]) == figures[key], key
    losses = [guest["loss"] for guest in figures["guests"]]
    assert figures["loss_spread"] == pytest.approx(max(losses) - min(losses))


def jain(values: list[float]) -> float:
    """https://www.cs.wustl.edu/~jain/papers/ftp/fairness.pdf, equation 2"""
    return sum(values) ** 2 / (len(values) * sum(value * value for value in values))


def assert_reflected(guest: dict) -> None:
    """A machine that is busy with something else may hold up the sender or lose a frame, so not the verdict is looked at."""
    assert guest["sent"] >= 100 and guest["samples"] >= 10, guest
    assert 0.9 * guest["sent"] <= guest["received"] <= guest["sent"], guest


# -- one campaign over the number of guests, their weights, and a mix of sizes ------------------------------


@pytest.mark.all
def test_from_one_to_four_guests_only_new_ones_boot_and_what_is_sent_to_each_is_what_is_on_the_wire(
    lab: LabCommand, tests: CampaignFile
):
    tests.write(machines="microvm", guests="1, 2, 4", weights="even, 3:1", sizes="imix", rates="3", runtimes="4")
    here = up(lab)
    with FrameCounts(f"{NAME}-host", "wire-host") as wire:
        log = here.run("test-load-lat-file", str(tests.file))
    assert left_since(here.before) == []

    assert [log.count(f" {name}: login ") for name in ("guest", "guest2", "guest3", "guest4")] == [1, 1, 1, 1]
    assert log.count(BOOTED) == 4
    start, end = "microvm_bridge_default_vhostoff_ioregionfdoff", "3kpps_imixB_4s"
    of_several = ("_guests2_xdp", "_guests2_xdp_weights3:1", "_guests4_xdp")
    assert [record["infix"] for record in records(tests)] == [f"{start}{each}_{end}" for each in (*of_several, "_xdp")]
    *several, one = records(tests)
    for infix, record in zip(of_several, several, strict=True):
        assert_has_guests(tests, record, int(infix[7]))
        latencies = (tests.results / f"guests_{record['infix']}_rep0.csv").read_text().split()
        samples: Counter[int] = Counter()
        for guest, _, count in (map(int, line.split(",")) for line in latencies):
            samples[guest] += count
        assert samples == {guest["guest"]: guest["samples"] for guest in record["figures"]["guests"]}
    assert one["figures"]["guests"] == [] and one["figures"]["fairness"] is None
    assert not (tests.results / f"guests_{one['infix']}_rep0.csv").exists()

    heavy, light = several[1]["figures"]["guests"]
    assert abs(heavy["sent"] - 3 * light["sent"]) <= 4
    assert abs(several[0]["figures"]["guests"][0]["sent"] - several[0]["figures"]["guests"][1]["sent"]) <= 1

    assert_on_the_wire(wire, [one, *several])

    before = frozenset(traces())
    assert "4 trials, 4 done, 0 to do" in here.run("test-load-lat-file", str(tests.file))
    assert left_since(before) == []


def shares(record: dict) -> list[float]:
    """What came back from each guest, for each part of the load that it was to have."""
    even = ":".join("1" * len(record["figures"]["guests"]))
    parts = record["parameters"]["weights"].replace("even", even).split(":")
    return [guest["received"] / int(part) for guest, part in zip(record["figures"]["guests"], parts, strict=True)]


def assert_has_guests(tests: CampaignFile, record: dict, count: int) -> None:
    figures = record["figures"]
    assert [(guest["guest"], guest["mac"]) for guest in figures["guests"]] == list(enumerate(MACS[:count], 1))
    assert_sums_fit(figures)
    for guest in figures["guests"]:
        assert_reflected(guest)
    assert figures["fairness"] == pytest.approx(jain(shares(record)), abs=1e-3)
    assert record["verdict"] in ("valid", "under-sent"), record["reason"]
    assert record["parameters"]["guests"] == count


def assert_on_the_wire(wire: FrameCounts, trials: list[dict]) -> None:
    """What was counted there is what the generator says, guest by guest; and its sizes are in proportion."""
    sent, returned = Counter(), Counter()
    for figures in (record["figures"] for record in trials):
        for guest in figures["guests"] or [figures | {"mac": MACS[0]}]:
            sent[guest["mac"]] += guest["sent"]
            returned[guest["mac"]] += guest["received"]
    for mac in MACS:
        assert wire.sizes_to(mac).total() == sent[mac]
        assert wire.sizes_from(mac).total() == returned[mac]
    for sizes in (wire.sizes_to(*MACS), wire.sizes_from(*MACS)):
        assert set(sizes) == set(IMIX)
        for size, weight in IMIX.items():
            assert sizes[size] / sizes.total() == pytest.approx(weight / sum(IMIX.values()), rel=0.01), sizes
    size_and_crc = sum((size + 4) * count for size, count in wire.sizes_to(*MACS).items())
    assert size_and_crc == sum(record["figures"]["sent_bytes"] for record in trials)


# -- one guest that is not like the others -----------------------------------------------------------------


@pytest.mark.all
def test_a_guest_that_drops_every_tenth_frame_reads_ten_percent_and_its_neighbours_none(
    lab: LabCommand, tests: CampaignFile, tmp_path: Path
):
    dropping = (
        xdp_reflector(tmp_path / "xdp", PROJECT / "tests/moonprogs/lossy_reflector.bpf.c") / "reflector.bpf.o"
    ).read_bytes()
    tests.write(machines="microvm", guests="3", rates="3", runtimes="2", cooldown="5")
    with RunningCampaign(lab, tests) as campaign:
        campaign.wait_for(lambda: campaign.log.count(BOOTED) == 3, "three boots")
        # In the rest before the load, when the reflector that all have is there.
        wait = 'until ip link show dev test | grep -q "prog/xdp"; do sleep 0.1; done'
        in_guest(2, f"cat >/tmp/dropping.o; {wait}; ip -force link set dev test xdp object /tmp/dropping.o section xdp", dropping)
        campaign.end()
    [record] = records(tests)
    one, two, three = record["figures"]["guests"]
    assert record["verdict"] in ("valid", "under-sent"), record["reason"]
    assert (one["lost"], two["lost"], three["lost"]) == (0, two["sent"] // 10, 0)
    assert two["sent"] >= 1000 and two["loss"] == pytest.approx(0.1, abs=1e-3)
    assert_sums_fit(record["figures"])
    assert record["figures"]["loss"] == pytest.approx(1 / 30, abs=1e-3)
    assert record["figures"]["fairness"] == pytest.approx(jain([1, 0.9, 1]), abs=1e-4) != pytest.approx(1, abs=1e-4)


@pytest.mark.all
def test_a_guest_that_dies_in_a_trial_is_named_and_booted_again_alone(lab: LabCommand, tests: CampaignFile):
    tests.write(machines="microvm", guests="3", rates="3", runtimes="3")
    with RunningCampaign(lab, tests) as campaign:
        campaign.next_trial()
        before = {name: campaign.process(name) for name in ("guest", "guest2", "guest3")}
        kill(before["guest2"])
        campaign.logged("guest: host: guest2: QEMU ended with exit code 137")
        campaign.next_trial()
        after = {name: campaign.process(name) for name in before}
        log = campaign.end()
    assert {name for name in before if before[name] != after[name]} == {"guest2"}
    assert [log.count(f" {name}: login ") for name in before] == [1, 2, 1]
    assert "1 trial done, 0 failed" in log and failures(tests) == []
    [record] = records(tests)
    assert record["verdict"] in ("valid", "under-sent"), record["reason"]
    assert_has_guests(tests, record, 3)
    [broken] = [json.loads(path.read_text()) for path in (tests.results / "invalid").glob("trial_*.json")]
    assert broken["verdict"] == "disturbed" and "guest2: QEMU ended with exit code 137" in broken["reason"]


# -- all or nothing ----------------------------------------------------------------------------------------


@pytest.mark.all
def test_where_one_guest_dies_while_it_boots_none_is_measured_and_nothing_stays(lab: LabCommand, tests: CampaignFile):
    tests.write(machines="microvm", guests="2", rates="1", retries="0")
    with RunningCampaign(lab, tests) as campaign:
        noted = campaign.state_folder("host") / "guest2.pid"
        campaign.wait_for(lambda: noted.exists() and noted.read_text(), "QEMU of guest2")
        kill(campaign.process("guest2"))
        log = campaign.end(code=1)
    reason = "host: guest2: QEMU ended with exit code 137"
    assert f"guest cannot be set up: {reason}" in log
    assert tests.trials() == []
    [failure] = failures(tests)
    assert failure["what"].startswith("guest (") and "guests 2" in failure["what"] and failure["reason"].startswith(reason)


@pytest.mark.all
def test_only_where_it_is_allowed_guests_that_cannot_boot_are_left_out_and_named(lab: LabCommand, tests: CampaignFile):
    tests.write(machines="microvm", guests="3", rates="1", runtimes="1", retries="0")
    lab.run("lab", "up")
    inside("host", "ip", "link", "add", "name", "tap-test-2", "type", "bridge")
    here = LabCommand(lab.config, frozenset(traces()))
    with RunningCampaign(here, tests) as campaign:
        log = campaign.end(code=1)
    assert "tap-test-2" in log and tests.trials() == []
    assert "tap-test-2" in failures(tests)[-1]["reason"]

    log = here.run("test-load-lat-file", "--allow-missing-guests", str(tests.file))
    assert left_since(here.before) == []
    assert "going on without guest2: " in log and [log.count(f" {name}: login ") for name in ("guest", "guest3")] == [1, 1]
    [record] = records(tests)
    assert record["verdict"] == "missing-guests"
    assert list(record["missing_guests"]) == ["guest2"] and "tap-test-2" in record["missing_guests"]["guest2"]
    assert record["reason"].startswith("1 of 3 guests were not there: guest2: ")
    assert [(guest["guest"], guest["mac"]) for guest in record["figures"]["guests"]] == [(1, MACS[0]), (3, MACS[2])]
    for guest in record["figures"]["guests"]:
        assert_reflected(guest)
    [link] = json.loads(inside("host", "ip", "-json", "-details", "link", "show", "dev", "tap-test-2"))
    assert link["linkinfo"]["info_kind"] == "bridge"  # it is somebody else's
    assert "1 trial, 1 done, 0 to do" in here.run("test-load-lat-file", "--allow-missing-guests", str(tests.file))


# -- other interfaces and ways there -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("interface", "machine", "more"),
    [
        ("macvtap", "microvm", {"threads": "2"}),
        pytest.param("bridge-e1000", "pcvm", {}, marks=pytest.mark.all),
        pytest.param("vhost-user", "microvm", {}, marks=pytest.mark.all),
    ],
)
def test_frames_come_back_from_each_of_two_guests(lab: LabCommand, tests: CampaignFile, interface: str, machine: str, more: dict):
    tests.write(machines=machine, interfaces=interface, guests="2", rates="1", runtimes="2", **more)
    with RunningCampaign(lab, tests) as campaign:
        log = campaign.end()
    [record] = records(tests)
    assert_has_guests(tests, record, 2)
    assert log.count(BOOTED) == 2
    assert record["settings"]["threads"] == int(more.get("threads", 1))


@pytest.mark.all
def test_two_guests_behind_ssh_are_reached_by_their_names(ssh_lab: LabCommand, tests: CampaignFile):
    tests.write(machines="microvm", guests="2", rates="1", runtimes="1", cooldown="3")
    with RunningCampaign(ssh_lab, tests, "-ssh") as campaign:
        campaign.wait_for(lambda: campaign.log.count(BOOTED) == 2, "two boots")
        addresses = [in_guest(number, "ip -brief address show dev admin", kind="-ssh") for number in (1, 2)]
        campaign.end()
    assert "192.168.56.10/24" in addresses[0] and "192.168.56.11/24" in addresses[1]
    [record] = records(tests)
    assert_has_guests(tests, record, 2)


@pytest.mark.all
def test_guests_of_run_guest_are_reached_and_all_of_them_end_with_the_lab_even_without_its_journal(lab: LabCommand):
    printed = lab.run("run-guest", "-n", "2", "-m", "microvm", "-i", "vhost-user")
    assert [name for name in ("guest", "guest2") if f"{name} takes logins" in printed] == ["guest", "guest2"]
    assert "guest" in lab.run("lab", "status") and "running" in lab.run("run-guest", code=2)
    said = lab.run("shell", input='print(host.machine(2).guest.run(["cat", "/sys/class/net/test/address"]).stdout)\n')
    assert MACS[1] in said
    for noted in traces():
        if noted.startswith("journal "):
            Path(noted.removeprefix("journal ")).unlink()
    lab.run("lab", "down")
    assert left_since(lab.before) == []
