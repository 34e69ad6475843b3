"""What plots are called, what their captions say, and what the command writes and refuses."""

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import example_campaign
import pytest
from plotted import SMALL, cases_of, drawn, texts

from autotest.cli.program import main
from autotest.errors import ResultsError, UsageError
from autotest.report.plots import View
from autotest.report.plots.files import Origin, draw_plots, write_plots
from autotest.report.trials import read_results
from autotest.results.names import TrialName
from autotest.results.verdicts import Verdict


@pytest.fixture(scope="module")
def campaign(tmp_path_factory):
    """Bridge and macvtap, vhost on: disturbed once, knees at about 620 and 710 kpps, macvtap under-sent beyond."""
    directory = tmp_path_factory.mktemp("campaign") / "results"
    example_campaign.fill_campaign(directory, **SMALL)
    return directory


@pytest.fixture(scope="module")
def switched(tmp_path_factory):
    """The same with vhost on and off, fewer rates."""
    directory = tmp_path_factory.mktemp("switched") / "results"
    example_campaign.fill_campaign(directory, **{**SMALL, "vhosts": [False, True]}, rates=[50, 200, 400], repetitions=2)
    return directory


def test_the_caption_says_all_that_is_needed_to_cite_the_plot(campaign):
    cases = cases_of(campaign, interface="bridge", accept={Verdict.DISTURBED})
    figure = drawn(cases, "latency", selections=("interface=bridge",), accepted=frozenset({Verdict.DISTURBED}))
    assert texts(figure)[1] == (
        "results (testbed synthetic): pcvm, bridge, QEMU normal, vhost on, ioregionfd off, xdp, 60 B, 30 s. "
        "Each point: 3 repetitions, 900 latency samples, mean over the repetitions (interval: Student's t). "
        "Selected: interface=bridge. Accepted like valid: disturbed."
    )
    assert "Each point: 2 to 3 repetitions, 600 to 900 latency samples" in texts(drawn(cases_of(campaign), "latency"))[1]


def test_the_caption_says_which_trials_are_left_out(campaign):
    assert "Trials left out: 1 disturbed." in texts(drawn(cases_of(campaign), "latency"))[1]
    accepted = cases_of(campaign, accept={Verdict.DISTURBED})
    assert "left out" not in texts(drawn(accepted, "latency", accepted=frozenset({Verdict.DISTURBED})))[1]


def test_trials_of_two_testbeds_are_never_in_one_plot(campaign):
    cases = cases_of(campaign, interface="bridge")
    other = [replace(trial, testbed="other") for trial in cases[0].trials]
    with pytest.raises(UsageError, match="testbeds other, synthetic .*--select testbed=other"):
        drawn([replace(cases[0], used=tuple(other)), *cases[1:]], "latency")
    unknown = replace(cases[0], used=tuple(replace(trial, testbed="") for trial in cases[0].used))
    assert "(testbed synthetic)" in texts(drawn([unknown, *cases[1:]], "latency"))[1]


@pytest.mark.default
def test_two_different_commands_write_different_files(campaign):
    cases, names = cases_of(campaign), set()
    views = [View(), View(("interface",)), View((), "interface"), View(log=True)]
    selections = [(), ("interface=bridge,macvtap",), ("interface=bridge macvtap=1",), ("interface=bridge", "macvtap=1")]
    selections += [("qemu=a.b",), ("qemu=a:b",), ("rate=10..40",), ("qemu=" + 200 * "x",), ("qemu=" + 201 * "x",)]
    for view in views:
        for chosen in selections:
            for accept in ((), (Verdict.DISTURBED,)):
                origin = Origin(campaign, chosen, frozenset(accept))
                names |= set(draw_plots(cases[:1], ["loss"], view, origin))
    assert len(names) == len(views) * len(selections) * 2
    assert all(len(name) < 170 and name.replace("+", "").replace("-", "").replace("_", "").isalnum() for name in names)
    assert "packet_loss" in names and "packet_loss_by-interface" in names and "packet_loss_rate-10to40" in names


@pytest.mark.default
def test_the_same_results_give_the_same_files_in_each_format(campaign, tmp_path):
    def write(directory):
        figures = draw_plots(cases_of(campaign, interface="macvtap"), ["latency"], View(), Origin(campaign))
        return write_plots(figures, directory, ["png", "pdf", "svg"])

    first, second = write(tmp_path / "a"), write(tmp_path / "b")
    assert [path.name for path in first] == ["load_latency.png", "load_latency.pdf", "load_latency.svg"]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    png, pdf, svg = (path.read_bytes() for path in first)
    assert png.startswith(b"\x89PNG") and pdf.startswith(b"%PDF") and b"<svg" in svg
    assert b"/Type3" not in pdf and b"CreationDate" not in pdf  # text that can be searched, and no time
    assert b"<dc:date>" not in svg and "round-trip latency [µs]".encode() in svg


@pytest.mark.default
def test_the_command_writes_three_kinds_as_png_and_pdf_beside_the_results_and_prints_their_names(switched, capsys):
    assert main(["plot", str(switched)]) == 0
    names = [f"{name}.{suffix}" for name in ("load_latency", "packet_loss", "throughput") for suffix in ("png", "pdf")]
    assert capsys.readouterr().out.splitlines() == [str(switched / name) for name in names]
    for name in names:
        (switched / name).unlink()


def test_the_command_takes_every_option_together(switched, tmp_path, capsys):
    command = ["plot", str(switched), "--by", "vhost,rate", "--side-by-side", "interface", "-s", "rate=50,200", "--log"]
    assert main([*command, "--kind", "cdf,histogram", "--format", "svg", "-o", str(tmp_path / "new" / "folder")]) == 0
    rest = "by-vhost+rate_beside-interface_log_rate-50+200.svg"
    written = [tmp_path / "new" / "folder" / f"latency_{name}_{rest}" for name in ("cdf", "histogram")]
    assert capsys.readouterr().out.splitlines() == list(map(str, written))
    assert all("vhost off, 200 kpps" in path.read_text(encoding="utf-8") for path in written)


def test_selections_of_one_directory_are_drawn_together(switched, tmp_path, capsys):
    sources = [f"{switched}:interface=bridge:vhost=on", f"{switched}:interface=macvtap"]
    assert main(["plot", *sources, "--kind", "loss", "--format", "svg", "-o", str(tmp_path)]) == 0
    (path,) = tmp_path.iterdir()
    assert path.name == "packet_loss_interface-bridge_vhost-on_or_interface-macvtap.svg"
    text = path.read_text(encoding="utf-8")
    assert "bridge, vhost on" in text and "macvtap, vhost off" in text and "bridge, vhost off" not in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--by", "vhosts"], "no parameter 'vhosts'; what differs here: interface (bridge, macvtap), vhost (off, on)"),
        (["--side-by-side", "colour"], "no parameter 'colour'"),
        (["--by", "rate"], "rate is the x axis of --kind latency"),
        (["--kind", "loss,cdfs"], "--kind cdfs (did you mean 'cdf'?): there are latency, loss, throughput, cdf, histogram"),
        (["--format", "gif"], "--format gif: there are png, pdf, svg"),
        (["--by", "vhost", "--side-by-side", "vhost"], "vhost is named twice"),
        (["--kind", "latency,histogram", "--by", "interface,vhost,rate"], "rate is the x axis"),
    ],
)
def test_a_wrong_option_is_refused_before_anything_is_written(switched, tmp_path, capsys, arguments, message):
    before = set(switched.iterdir())
    assert main(["plot", str(switched), "-o", str(tmp_path / "out"), *arguments]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    assert {path.name for path in set(switched.iterdir()) - before if path.suffix in (".png", ".pdf", ".svg")} == set()


def test_two_directories_do_not_overwrite_each_others_plots(campaign, switched, tmp_path, capsys):
    assert main(["plot", str(campaign), str(switched), "-o", str(tmp_path)]) == 2
    assert "would have the same names there" in capsys.readouterr().err and not list(tmp_path.iterdir())


def test_a_file_that_cannot_be_written_is_named(campaign, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert main(["plot", str(campaign), "-k", "loss", "-o", str(tmp_path / "file")]) == 1
    assert f"{tmp_path / 'file' / 'packet_loss.png'}: cannot be written" in capsys.readouterr().err
    (tmp_path / "packet_loss.png").mkdir()
    assert main(["plot", str(campaign), "-k", "loss", "-o", str(tmp_path)]) == 1
    assert "packet_loss.png: cannot be written: Is a directory" in capsys.readouterr().err


def test_without_any_valid_trial_the_verdicts_are_told(tmp_path):
    example_campaign.fill_campaign(
        tmp_path, **{**SMALL, "vhosts": [False], "sizes": [1514], "interfaces": ["bridge"]}, rates=[200]
    )
    cases = cases_of(tmp_path)
    with pytest.raises(ResultsError, match="nothing to draw, no trial is valid or under-sent: disturbed"):
        drawn(cases, "latency")


def test_the_command_line_is_quick_where_nothing_is_drawn():
    code = "import autotest.cli.program, sys; print([name for name in sys.modules if name in ('matplotlib', 'numpy')])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


COMMANDS = re.findall(r"`autotest (plot results[^`]+)`", (Path(__file__).parents[2] / "docs" / "plots.md").read_text("utf-8"))


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    """A little of each value that the documented comparisons select."""
    directory = tmp_path_factory.mktemp("everything")
    example_campaign.fill_campaign(directory / "results", rates=[50, 100], repetitions=1, samples=200)
    written = read_results(directory / "results").trials
    for trial in written:
        changed = {"ioregionfdoff": "ioregionfdon"} if trial.parameters["machine"] == "microvm" else {"normal": "mine"}
        host = "host_pnic_" + trial.name.infix.partition("ioregionfdoff_")[2]
        ((old, new),) = changed.items()
        chosen = trial.name.infix.replace("vhostoff_ioregionfdoff_xdp", "vhostoff_ioregionfdoff_queues4_rxq512_xdp")
        several = trial.name.infix.replace("vhostoff_ioregionfdoff_xdp", "vhostoff_ioregionfdoff_guests2_xdp")
        for infix in {trial.name.infix.replace(old, new), chosen, several, host} - {trial.name.infix}:
            for kind in ("output", "histogram"):
                (directory / "results" / TrialName(infix, 0).file(kind)).write_bytes(trial.path(kind).read_bytes())
    return directory


@pytest.mark.default
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_of_the_documentation_draws(everything, tmp_path, monkeypatch, capsys, command):
    monkeypatch.chdir(everything)
    kind = [] if "--kind" in command else ["--kind", "latency"]
    assert main([*command.split(), *kind, "--format", "svg", "-o", str(tmp_path)]) == 0
    assert len(list(tmp_path.iterdir())) == len(capsys.readouterr().out.splitlines()) > 0


def test_the_documentation_has_a_command_for_each_comparison():
    compared = " ".join(COMMANDS)
    names = (
        "reflector",
        "interface",
        "machine",
        "vhost",
        "ioregionfd",
        "queues",
        "rx_queue_size",
        "size",
        "rate",
        "qemu",
        "guests",
    )
    for name in names:
        assert f"--by {name} " in f"{compared} "
    assert "--by vhost --side-by-side interface" in compared
