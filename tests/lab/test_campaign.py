"""Load-latency campaigns end to end: real QEMU guests, real interfaces, real frames."""

import json
import signal
import subprocess
import time

import pytest
from labtest import NAME, CampaignFile, LabCommand


def _figures(tests: CampaignFile) -> dict[str, dict]:
    return {path.name: json.loads(path.read_text())["figures"] for path in tests.trials()}


def test_guests_give_valid_trials_with_one_boot_a_set_up_and_what_is_done_is_not_measured_again(
    lab: LabCommand, tests: CampaignFile
):
    tests.write(machines="pcvm, microvm", reflectors="xdp, moongen", rates="1")
    log = lab.run("test-load-lat-file", str(tests.file))
    names = [path.name.removeprefix("trial_").partition("_default_")[0] for path in tests.trials()]
    assert names == ["microvm_bridge", "pcvm_bridge", "pcvm_bridge"]
    assert log.count("s after QEMU's start") == 2
    for name, figures in _figures(tests).items():
        assert figures["sent"] == 1000, name
        assert figures["received"] >= 950, name
    stamps = _stamps(tests)
    assert "3 trials, 3 done, 0 to do" in lab.run("test-load-lat-file", str(tests.file))
    assert stamps == _stamps(tests)


@pytest.mark.all
def test_all_machines_interfaces_and_reflectors_give_valid_trials_with_one_boot_a_set_up(lab: LabCommand, tests: CampaignFile):
    tests.write(machines="pcvm, microvm", interfaces="bridge, macvtap", reflectors="xdp, moongen", rates="1")
    log = lab.run("test-load-lat-file", str(tests.file))
    names = [path.name.removeprefix("trial_").removesuffix("_rep0.json") for path in tests.trials()]
    tail = "1kpps_60B_1s"
    assert names == sorted(
        f"{machine}_{interface}_default_vhostoff_ioregionfdoff_{reflector}_{tail}"
        for machine, reflector in (("pcvm", "xdp"), ("pcvm", "moongen"), ("microvm", "xdp"))
        for interface in ("bridge", "macvtap")
    )
    assert log.count("s after QEMU's start") == 4
    for name, figures in _figures(tests).items():
        assert figures["sent"] == 1000, name
        assert figures["received"] >= 950, name
        assert 10_000 < figures["p50_ns"] < 100_000_000, name
    for name in names:
        assert (tests.results / f"acc_histogram_{name}.csv").stat().st_size > 0


@pytest.mark.all
def test_the_knee_is_real_and_what_is_done_is_not_measured_again(lab: LabCommand, tests: CampaignFile):
    tests.write(rates="10, 160")
    lab.run("test-load-lat-file", str(tests.file))
    low, high = sorted(_figures(tests).items())  # 10kpps sorts before 160kpps
    assert "10kpps" in low[0] and low[1]["loss"] < 0.02
    assert "160kpps" in high[0] and high[1]["loss"] > 0.2
    stamps = _stamps(tests)

    start = time.monotonic()
    log = lab.run("test-load-lat-file", str(tests.file))
    assert "2 trials, 2 done, 0 to do" in log
    assert time.monotonic() - start < 5
    assert stamps == _stamps(tests)

    summed = next(tests.results.glob("acc_histogram_*_10kpps_*"))
    samples = _samples(summed)
    tests.write(rates="10, 160", repetitions="2")
    log = lab.run("test-load-lat-file", str(tests.file))
    assert "4 trials, 2 done, 2 to do" in log
    assert _samples(summed) > 1.5 * samples
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in stamps.items() if "_rep0" in path.name)


def _stamps(tests: CampaignFile) -> dict:
    return {path: path.stat().st_mtime_ns for path in tests.results.iterdir() if not path.name.startswith(".")}


def _samples(histogram) -> int:
    return sum(int(line.split(",")[1]) for line in histogram.read_text().splitlines())


def test_a_killed_run_goes_on_with_the_first_trial_that_is_not_done(lab: LabCommand, tests: CampaignFile):
    tests.write(machines="host", interfaces="pnic", repetitions="3")
    process = lab.start("test-load-lat-file", str(tests.file))
    deadline = time.monotonic() + 60
    while not tests.trials() and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.05)
    process.kill()
    process.communicate()
    done = tests.trials()
    assert len(done) == 1
    stamp = done[0].stat().st_mtime_ns

    log = lab.run("test-load-lat-file", str(tests.file))
    assert "3 trials, 1 done, 2 to do" in log
    assert len(tests.trials()) == 3
    assert done[0].stat().st_mtime_ns == stamp


def test_ctrl_c_undoes_everything_and_exits_with_130(lab: LabCommand, tests: CampaignFile):
    tests.write(runtimes="30")
    process = lab.start("test-load-lat-file", str(tests.file))
    deadline = time.monotonic() + 60
    for line in process.stderr:
        if "after QEMU's start" in line or time.monotonic() > deadline:
            break
    time.sleep(3)  # into the trial
    process.send_signal(signal.SIGINT)
    start = time.monotonic()
    _stdout, stderr = process.communicate(timeout=30)
    assert process.returncode == 130, stderr
    assert "interrupted" in stderr and "Traceback" not in stderr
    assert time.monotonic() - start < 10
    assert lab.run("lab", "status").split()[-1] == "down"
    assert tests.trials() == []


@pytest.mark.all
def test_a_wrong_qemu_fails_its_own_set_up_only(lab: LabCommand, tests: CampaignFile):
    tests.write(qemus="broken:/nonexistent/qemu-system-x86_64, good:")
    log = lab.run("test-load-lat-file", str(tests.file), code=1)
    assert "/nonexistent/qemu-system-x86_64" in log
    assert [path.name for path in tests.trials()] == ["trial_pcvm_bridge_good_vhostoff_ioregionfdoff_xdp_5kpps_60B_1s_rep0.json"]


def test_host_and_loadgen_over_ssh_give_the_same_kind_of_results(ssh_lab: LabCommand, tests: CampaignFile):
    tests.write(interfaces="macvtap", reflectors="xdp, moongen", rates="1")
    ssh_lab.run("lab", "up")
    ping = ssh_lab.run("ping", code=3)
    assert f"host     {NAME}-host: reached over SSH" in ping
    ssh_lab.run("test-load-lat-file", str(tests.file))
    assert [figures["sent"] for figures in _figures(tests).values()] == [1000, 1000]


def test_machine_host_reflects_on_its_own_interface(lab: LabCommand, tests: CampaignFile):
    tests.write(machines="host", interfaces="pnic", reflectors="xdp, moongen", rates="10")
    lab.run("test-load-lat-file", str(tests.file))
    assert len(tests.trials()) == 2
    for name, figures in _figures(tests).items():
        assert figures["loss"] < 0.01, name
        assert figures["p50_ns"] < 1_000_000, name


@pytest.mark.all
def test_a_dut_that_reflects_nothing_gets_its_verdict_and_is_not_done(lab: LabCommand, tests: CampaignFile, tmp_path):
    source, folder = tmp_path / "pass.c", tmp_path / "xdp"
    folder.mkdir()
    source.write_text('__attribute__((section("xdp"), used)) int reflect_nothing(void *context) { return 2; } // XDP_PASS\n')
    target = folder / "reflector.bpf.o"
    subprocess.run(["clang", "-O2", "-g", "-target", "bpf", "-c", source, "-o", target], check=True, timeout=30)
    config = tmp_path / "autotest.conf"
    text = lab.config.read_text()
    config.write_text(text.replace("xdp_reflector_dir = ${common:lab_dir}/image", f"xdp_reflector_dir = {folder}"))
    tests.write(machines="host", interfaces="pnic", rates="10")
    log = LabCommand(config).run("test-load-lat-file", str(tests.file), code=1)
    assert "no-reflection" in log
    [trial] = tests.trials()
    assert json.loads(trial.read_text())["verdict"] == "no-reflection"
    assert "1 trial, 0 done, 1 to do" in lab.run("test-load-lat-file", "-d", str(tests.file))
