"""What breaks in the middle of a campaign, made really: it is recognised, tried again, and in the end recorded."""

import json
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from labtest import CampaignFile, LabCommand
from running import RunningCampaign, inside, kill, stop
from traces import NAME, traces

ON_HOST = {"machines": "host", "interfaces": "pnic"}  # a set-up without a guest: quickly there


def failures(tests: CampaignFile) -> list[dict[str, str]]:
    file = tests.results / "failures.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def done(tests: CampaignFile) -> int:
    """How many trials count: on a busy machine one may be under-sent, which is a finding."""
    return [json.loads(path.read_text())["verdict"] in ("valid", "under-sent") for path in tests.trials()].count(True)


def with_values(lab: LabCommand, target: Path, **values: str) -> LabCommand:
    """The lab with other values for keys of its configuration."""
    text = lab.config.read_text()
    for key, value in values.items():
        text, count = re.subn(rf"^{key} =.*$", f"{key} = {value}", text, flags=re.MULTILINE)
        assert count == 1, key
    target.write_text(text)
    return LabCommand(target, lab.before)


@contextmanager
def small_filesystem(folder: Path, size: str) -> Iterator[None]:
    folder.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], check=True, timeout=10)
    try:
        yield
    finally:
        subprocess.run(["umount", folder], check=True, timeout=10)


def fill(folder: Path) -> Path:
    """Leave no block on a file system; returns the file to delete."""
    filler = folder / "filler"
    subprocess.run(["dd", "if=/dev/zero", f"of={filler}", "bs=4k"], capture_output=True, timeout=10, check=False)
    return filler


# -- the guest ---------------------------------------------------------------------------------------------


@pytest.mark.all
def test_a_guest_that_does_not_boot_is_recorded_with_its_console_and_its_siblings_go_on(lab, tests, tmp_path):
    disk = tmp_path / "empty.raw"
    disk.write_bytes(bytes(1 << 20))
    tests.write(machines="pcvm, host", repetitions="2", retries="1")
    with RunningCampaign(with_values(lab, tmp_path / "empty.conf", root_disk_file=str(disk)), tests) as campaign:
        log = campaign.end(code=1)
    reason = "the guest's kernel gave up: Kernel panic - not syncing"
    assert log.count(f"guest cannot be set up: host: {reason}") == 2
    assert "autotest-init: cannot mount /dev/vda" in log
    assert "2 trials done, 2 failed" in log and "(2 trials)" in log
    [failure] = failures(tests)
    assert failure["what"].startswith("guest (machine pcvm, interface bridge") and reason in failure["reason"]
    assert [path.name[:16] for path in tests.trials()] == ["trial_host_bridg"] * 2

    with RunningCampaign(lab, tests) as campaign:  # with a disk that boots: just those
        log = campaign.end()
    assert "4 trials, 2 done, 2 to do" in log and done(tests) == 4


@pytest.mark.all
@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("root_disk_file", "host: files of the guest: there is no root_disk_file /nonexistent; put it there, or name another"),
        ("qemu_path", "host: QEMU default: /nonexistent/qemu-system-x86_64: there is no such program; install it there"),
    ],
)
def test_a_missing_image_and_a_wrong_qemu_path_are_recorded(lab, tests, tmp_path, key: str, reason: str):
    tests.write(repetitions="2", retries="1")
    with RunningCampaign(with_values(lab, tmp_path / "wrong.conf", **{key: "/nonexistent"}), tests) as campaign:
        log = campaign.end(code=3)
    assert log.count(f"failed: blocked by preflight: {reason}") == 1 and "(2 trials)" in log
    assert "0 trials done, 2 failed" in log
    [failure] = failures(tests)
    assert failure["reason"].startswith(reason)


@pytest.mark.all
def test_a_guest_that_dies_or_hangs_in_a_trial_is_booted_again(lab: LabCommand, tests: CampaignFile):
    tests.write(runtimes="3", repetitions="2")
    with RunningCampaign(lab, tests) as campaign:
        campaign.next_boot()
        campaign.in_guest("echo c >/proc/sysrq-trigger")
        campaign.logged("guest: host: the guest's kernel gave up: Kernel panic - not syncing: sysrq triggered crash\n")
        campaign.next_trial()
        kill(campaign.process("guest"))
        campaign.logged("guest: host: QEMU ended with exit code 137:\n")
        campaign.next_trial()
        campaign.next_trial()
        stop(campaign.process("guest"))
        campaign.logged("guest: host: QEMU does not answer: its process is stopped\n")
        campaign.next_trial()
        subprocess.run(["tmux", "-L", NAME, "kill-server"], check=True, timeout=10)
        campaign.logged("guest: host: guest is gone and left no exit code: its tmux session or server was ended")
        log = campaign.end()
    assert log.count("s after QEMU's start") == 5 and "cannot be undone" not in log
    assert "sysrq: Trigger a crash" in log  # the console, from before the panic
    assert "2 trials done, 0 failed" in log
    assert done(tests) == 2 and failures(tests) == []


@pytest.mark.all
def test_an_admin_network_that_is_cut_in_a_trial_is_made_anew(lab: LabCommand, tests: CampaignFile):
    tests.write(reflectors="xdp, moongen", rates="1")
    with RunningCampaign(lab, tests) as campaign:
        campaign.next_trial()
        inside("host", "ip", "link", "set", "tap-admin", "down")
        campaign.logged("guest: host: tap-admin is down\n")
        log = campaign.end()
    assert log.count("s after QEMU's start") == 2
    assert done(tests) == 2 and failures(tests) == []


@pytest.mark.all
def test_ssh_connections_that_are_cut_or_hang_in_a_trial_are_opened_again(ssh_lab: LabCommand, tests: CampaignFile):
    tests.write(**ON_HOST, rates="10", runtimes="2", repetitions="2")
    with RunningCampaign(ssh_lab, tests, "-ssh") as campaign:
        campaign.next_trial()
        cut = [each for server in ("host", "loadgen") for each in ssh_connections(server)]
        for connection in cut:
            kill(connection)
        campaign.next_trial()
        for connection in ssh_connections("loadgen"):
            stop(connection)
        log = campaign.end()
    # One that is cut between two questions is opened again without a word; one that hangs is always noticed.
    assert len(cut) >= 2 and re.search(r"loadgen: .*no answer within 30 s", log)
    assert done(tests) == 2 and failures(tests) == []


def ssh_connections(server: str) -> list[int]:
    """The processes of a namespace's SSH server that serve connections."""
    folder = Path(f"/run/{NAME}-lab-ssh/{NAME}-ssh-{server}")
    listener = int((folder / "sshd.pid").read_text())
    children = subprocess.run(["pgrep", "-P", str(listener)], capture_output=True, text=True, check=True, timeout=10)
    return [int(pid) for pid in children.stdout.split()]


# -- reflector and generator -------------------------------------------------------------------------------


@pytest.mark.all
def test_a_reflector_that_dies_or_hangs_is_started_again(lab: LabCommand, tests: CampaignFile):
    tests.write(reflectors="xdp, moongen", rates="1", runtimes="3")
    with RunningCampaign(lab, tests) as campaign:
        campaign.next_boot()
        campaign.in_guest("ip link set dev test xdp off; ip link set dev test xdpgeneric off", frames=500)
        campaign.logged("reflector: guest: the XDP reflector is gone from test")
        campaign.logged("achieved")
        campaign.in_guest("kill -STOP $(pidof luajit)", frames=500)
        campaign.in_guest("kill -KILL $(pidof luajit)", frames=3500)  # in the second try
        campaign.logged("reflector: guest: reflector.lua is stopped:\n")
        campaign.logged("reflector: guest: reflector.lua ended with exit code 137:\n")
        log = campaign.end()
    assert log.count("reflector ready") == 2  # the tail of the reflector's output
    assert log.count("s after QEMU's start") == 2  # the second failure of the same trial rebuilds all
    assert done(tests) == 2 and failures(tests) == []


@pytest.mark.all
def test_a_generator_that_dies_or_hangs_is_started_again(lab: LabCommand, tests: CampaignFile):
    tests.write(**ON_HOST, rates="10")
    with RunningCampaign(lab, tests) as campaign:
        kill(campaign.next_trial())
        campaign.logged("loadgen: l2-load-latency.lua ended with exit code 137:\n")
        stop(campaign.next_trial())
        campaign.logged("loadgen: l2-load-latency did not end within 21 s: its process is stopped:\n")
        log = campaign.end()
    assert log.count("load paced by software") == 2  # the tail of the generator's output
    assert done(tests) == 1 and failures(tests) == []


# -- the wire ----------------------------------------------------------------------------------------------


def test_a_wire_that_is_cut_is_recognised_and_a_wire_that_stays_cut_is_the_recorded_reason(lab, tests):
    tests.write(**ON_HOST, rates="10", runtimes="2", retries="1")
    with RunningCampaign(lab, tests) as campaign:
        campaign.next_trial()
        inside("loadgen", "ip", "link", "set", "wire-loadgen", "down")
        campaign.logged("test network: host: wire-host has no carrier: its cable or its other end is down")
        inside("loadgen", "ip", "link", "set", "wire-loadgen", "up")
        campaign.end()
    assert done(tests) == 1 and failures(tests) == []

    tests.write(**ON_HOST, rates="20", runtimes="2", retries="1")
    with RunningCampaign(lab, tests) as campaign:
        campaign.next_trial()
        inside("loadgen", "ip", "link", "delete", "wire-loadgen")
        log = campaign.end(code=1)
    reason = "there is no network interface wire-"
    assert log.count(reason) >= 2 and "0 trials done, 1 failed" in log
    [failure] = failures(tests)
    assert reason in failure["reason"]

    with RunningCampaign(lab, tests) as campaign:  # which lays the wire anew
        assert "1 trial, 0 done, 1 to do" in campaign.end()
    assert done(tests) == 2


# -- disks -------------------------------------------------------------------------------------------------


@pytest.mark.all
def test_a_full_disk_here_is_the_recorded_reason_and_with_space_the_same_command_goes_on(lab, tests):
    tests.write(**ON_HOST, rates="10", repetitions="2", retries="1")
    with small_filesystem(tests.results, "1m"):
        with RunningCampaign(lab, tests) as campaign:
            campaign.next_trial()
            filler = fill(tests.results)
            log = campaign.end(code=1)
        assert log.count("No space left on device") >= 4 and "0 trials done, 2 failed" in log
        assert f"_rep1: [Errno 28] No space left on device: '{tests.results}" in log
        filler.unlink()
        with RunningCampaign(lab, tests) as campaign:
            assert "2 trials, 0 done, 2 to do" in campaign.end()
        assert done(tests) == 2 and list(tests.results.rglob(".autotest-tmp.*")) == []


@pytest.mark.all
def test_a_full_disk_there_is_the_recorded_reason_and_with_space_the_same_command_goes_on(lab, tests):
    tests.write(**ON_HOST, rates="10", repetitions="2", retries="1")
    lab.run("lab", "up")
    state = Path("/run/autotest", NAME)
    with small_filesystem(state, "256k"):
        here = LabCommand(lab.config, frozenset(traces()))
        with RunningCampaign(here, tests) as campaign:
            campaign.next_trial()
            filler = fill(state)
            log = campaign.end(code=1)
        assert log.count("No space left on device") >= 4 and "0 trials done, 2 failed" in log
        reason = f"loadgen: l2-load-latency is gone and left no exit code: {state}: No space left on device"
        assert [failure["reason"].partition("\n")[0] for failure in failures(tests)] == [reason] * 2
        filler.unlink()
        with RunningCampaign(here, tests) as campaign:
            assert "2 trials, 0 done, 2 to do" in campaign.end()
        assert done(tests) == 2


# -- the clock ---------------------------------------------------------------------------------------------


@pytest.mark.all
def test_a_clock_that_jumps_disturbs_the_trial_which_is_measured_again(lab: LabCommand, tests: CampaignFile):
    tests.write(**ON_HOST, rates="10", runtimes="2")
    with RunningCampaign(lab, tests) as campaign:
        campaign.next_trial()
        with clock_ahead(0.5):
            campaign.logged("disturbed: the load generator's clock jumped by +0.")
        campaign.end()
    assert done(tests) == 1 and failures(tests) == []
    [disturbed] = (tests.results / "invalid").glob("trial_*.json")
    assert json.loads(disturbed.read_text())["verdict"] == "disturbed"


@contextmanager
def clock_ahead(seconds: float) -> Iterator[None]:
    """This machine's clock, that far ahead; afterwards it is right again."""
    ahead_of_monotonic = time.clock_gettime(time.CLOCK_REALTIME) - time.monotonic()
    time.clock_settime(time.CLOCK_REALTIME, time.clock_gettime(time.CLOCK_REALTIME) + seconds)
    try:
        yield
    finally:
        time.clock_settime(time.CLOCK_REALTIME, ahead_of_monotonic + time.monotonic())


# -- giving up ---------------------------------------------------------------------------------------------


@pytest.mark.all
def test_a_set_up_whose_trials_fail_the_same_way_is_given_up_and_its_siblings_go_on(lab, tests, tmp_path):
    source, folder = tmp_path / "pass.c", tmp_path / "xdp"
    folder.mkdir()
    source.write_text('__attribute__((section("xdp"), used)) int reflect_nothing(void *context) { return 2; } // XDP_PASS\n')
    target = folder / "reflector.bpf.o"
    subprocess.run(["clang", "-O2", "-g", "-target", "bpf", "-c", source, "-o", target], check=True, timeout=30)
    config = tmp_path / "autotest.conf"
    text = lab.config.read_text()
    config.write_text(text.replace("xdp_reflector_dir = ${common:lab_dir}/image", f"xdp_reflector_dir = {folder}"))
    tests.write(**ON_HOST, reflectors="xdp, moongen", rates="6, 7, 8, 9, 10", retries="0")
    with RunningCampaign(LabCommand(config, lab.before), tests) as campaign:
        log = campaign.end(code=1)
    assert (
        log.count("frames sent, 0 came back") == 3 + 3 + 2
    )  # seen, summed up, and why the others are not tried: at once, and at the end
    others = "all others with machine host, interface pnic, reflector xdp"
    assert f"failed: {others}: not tried: 3 test cases before failed the same way" in log and "(2 trials)" in log
    assert "5 trials done, 5 failed" in log
    assert len(failures(tests)) == 4 and failures(tests)[-1]["reason"].startswith("not tried")
    assert done(tests) == 5
