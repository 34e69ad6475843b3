"""Plots along the number of guests, read from the figures."""

from dataclasses import replace
from itertools import pairwise

import example
import example_guests
import numpy as np
import pytest
from plotted import bars, cases_of, drawn, line, panels, texts

from autotest.cli.program import main
from autotest.errors import UsageError
from autotest.report.cases import Case, group_cases
from autotest.report.metrics import METRICS
from autotest.report.plots import DEFAULT_KINDS, View
from autotest.report.plots.files import default_kinds
from autotest.report.plots.layout import arrange
from autotest.report.trials import read_results
from autotest.results.verdicts import Verdict

SMALL = {"rates": [50, 500], "repetitions": 2, "samples": 120}


@pytest.fixture(scope="module")
def campaign(tmp_path_factory):
    """Bridge and macvtap, 1, 2 and 4 guests; at 500 kpps loss with a bridge, and under-sent with macvtap."""
    directory = tmp_path_factory.mktemp("campaign") / "results"
    example_guests.fill_guests(directory, **SMALL)
    return directory


def bridge(campaign, rate):
    return cases_of(campaign, interface="bridge", rate=rate)


def by_number(cases):
    return sorted(cases, key=lambda case: case.number_of_guests)


def bands(axes, label):
    """Number of guests to lower and upper end of what is shaded."""
    (band,) = [one for one in axes.collections if one.get_label() == f"{label}: guests, range"]
    corners = band.get_paths()[0].vertices
    heights = {float(x): corners[corners[:, 0] == x][:, 1] for x in set(corners[:, 0])}
    return {x: (there.min(), there.max()) for x, there in heights.items()}


@pytest.mark.parametrize(("metric", "at"), [("p50", 0), ("loss", 1)])
def test_latency_and_loss_are_drawn_over_the_number_of_guests_with_their_intervals(campaign, metric, at):
    cases = by_number(bridge(campaign, 500))
    figure = drawn(bridge(campaign, 500), "guests")
    assert len(panels(figure)) == 2
    axes, label = panels(figure)[at], texts(figure)[0][0]
    wanted = [case.estimate(METRICS[metric]) for case in cases]
    found = line(axes, f"{label}: {METRICS[metric].label}")
    assert list(found.get_xdata()) == [1, 2, 4] and list(found.get_ydata()) == [one.mean for one in wanted]
    intervals = bars(axes, f"{label}: {METRICS[metric].label}, interval")
    highest = 100 if metric == "loss" else 1e9
    for case, one in zip(cases, wanted, strict=True):
        assert intervals[case.number_of_guests] == (pytest.approx(max(one.low, 0)), pytest.approx(min(one.high, highest)))


@pytest.mark.parametrize(("metric", "at"), [("p50", 0), ("loss", 1)])
def test_the_band_goes_from_the_lowest_to_the_highest_guest_and_each_guest_is_a_point(campaign, metric, at):
    cases = by_number(bridge(campaign, 500))
    figure = drawn(bridge(campaign, 500), "guests")
    axes, label = panels(figure)[at], texts(figure)[0][0]
    shaded = bands(axes, label)
    points = line(axes, f"{label}: guests")
    for case in cases:
        each = list(case.of_guests(METRICS[metric]).values())
        drawn_there = [y for x, y in zip(points.get_xdata(), points.get_ydata(), strict=True) if x == case.number_of_guests]
        assert drawn_there == each and len(each) == (case.number_of_guests if case.number_of_guests > 1 else 0)
        ends = each or [case.estimate(METRICS[metric]).mean]
        assert shaded[case.number_of_guests] == (pytest.approx(min(ends)), pytest.approx(max(ends)))
    low, high = axes.get_ylim()
    assert low < min(points.get_ydata()) and max(points.get_ydata()) < high


def test_both_panels_share_the_axis_that_has_the_numbers_of_guests_there_are(campaign):
    figure = drawn(bridge(campaign, 50), "guests")
    upper, lower = panels(figure)
    assert upper.get_xlim() == lower.get_xlim() and upper.get_xlim()[0] < 1 and upper.get_xlim()[1] > 4
    figure.draw_without_rendering()
    assert [text.get_text() for text in lower.get_xticklabels()] == ["1", "2", "4"]
    assert [axes.xaxis.get_tick_params()["labelbottom"] for axes in (upper, lower)] == [False, True]
    assert (upper.get_yscale(), lower.get_yscale()) == ("log", "linear")
    assert (upper.get_ylabel(), lower.get_ylabel()) == ("round-trip latency [µs]", "loss [% of the frames sent]")
    assert figure.subfigs[0].get_supxlabel() == "number of guests" and figure.subfigs[0].get_supylabel() == ""


def test_each_set_up_at_each_rate_is_a_line(campaign):
    figure = drawn(cases_of(campaign), "guests")
    assert texts(figure)[0][:4] == ["bridge, 50 kpps", "bridge, 500 kpps", "macvtap, 50 kpps", "macvtap, 500 kpps"]
    assert "pcvm, QEMU normal, vhost on, ioregionfd off, xdp, 60 B, 30 s. Each point: 2 repetitions" in texts(figure)[1]
    beside = drawn(cases_of(campaign), "guests", View(("rate",), "interface"))
    assert [axes.get_title(loc="left") for axes in panels(beside)] == ["bridge", "macvtap", "", ""]
    assert texts(beside)[0][:2] == ["50 kpps", "500 kpps"]


def test_under_sent_points_are_hollow_without_a_line_and_the_caption_says_what_they_sent(campaign):
    cases = cases_of(campaign, interface="macvtap", rate=500)
    assert all(case.under_sent for case in cases)
    figure = drawn(cases, "guests")
    label = texts(figure)[0][0]
    for axes, metric in zip(panels(figure), ("p50", "loss"), strict=True):
        apart = line(axes, f"{label}: {METRICS[metric].label}, under-sent")
        assert list(apart.get_xdata()) == [1, 2, 4] and (apart.get_linestyle(), apart.get_markerfacecolor()) == ("None", "white")
        assert np.isnan(line(axes, f"{label}: {METRICS[metric].label}").get_ydata()).all()
        ranges = [one for one in axes.collections if one.get_label() == f"{label}: guests, range" and len(one.get_paths()) == 3]
        assert len(ranges) == 1  # a bar for each point
    assert "hollow: under-sent, less sent than offered" in texts(figure)[0]
    assert "Under-sent [kpps]: 1 guest sent 440; 2 guests sent 440; 4 guests sent 440." in texts(figure)[1]


def test_a_point_without_a_neighbour_shows_its_range_as_a_bar(campaign):
    cases = [case if case.number_of_guests != 2 else replace(case, used=()) for case in bridge(campaign, 500)]
    figure = drawn(cases, "guests")
    (latency, _), label = panels(figure), texts(figure)[0][0]
    ranges = [one for one in latency.collections if one.get_label() == f"{label}: guests, range"]
    bars_there = [one for one in ranges if hasattr(one, "get_segments")]
    four = next(case for case in cases if case.number_of_guests == 4)
    each = list(four.of_guests(METRICS["p50"]).values())
    ends = {float(segment[0][0]): (segment[0][1], segment[1][1]) for segment in bars_there[0].get_segments()}
    assert ends[4.0] == (pytest.approx(min(each)), pytest.approx(max(each)))
    assert "Not drawn, for want of a valid trial: 1 test case." in texts(figure)[1]


def test_what_has_one_number_of_guests_only_is_not_drawn_and_counted(campaign, tmp_path):
    example.add(tmp_path, example.HOST, 50, 0)
    example_guests.fill_guests(tmp_path, interfaces=["bridge"], guests=[2], weights={2: "3:1"}, **SMALL)
    cases = [*cases_of(campaign, interface="bridge"), *cases_of(tmp_path)]
    figure = drawn(cases, "guests")
    assert texts(figure)[0][:2] == ["50 kpps", "500 kpps"] and "weights" not in " ".join(texts(figure)[0])
    assert "Not drawn, for want of another number of guests: 3 test cases." in texts(figure)[1]
    lone = drawn(bridge(campaign, 50)[1:2], "guests")  # asked for, so drawn
    assert len(line(panels(lone)[0], f"{texts(lone)[0][0]}: median latency").get_xdata()) == 1


def test_it_is_drawn_without_being_asked_for_only_where_there_are_several_numbers(campaign):
    cases = cases_of(campaign)
    assert default_kinds(cases, View()) == (*DEFAULT_KINDS, "guests")
    assert default_kinds([case for case in cases if case.number_of_guests == 2], View()) == DEFAULT_KINDS
    unused = [case if case.number_of_guests == 2 else Case(case.parameters, case.trials, ()) for case in cases]
    assert default_kinds(unused, View()) == DEFAULT_KINDS
    for view in (View(("guests",)), View(beside="guests")):
        assert default_kinds(cases, view) == DEFAULT_KINDS


def test_without_being_asked_for_it_is_left_out_with_a_warning_where_it_would_be_a_crowd(campaign, caplog):
    (case,) = [case for case in bridge(campaign, 50) if case.number_of_guests == 1]
    many = [
        replace(case, parameters={**case.parameters, "qemu": f"build{number}", **guests})
        for number in range(64)
        for guests in ({}, {"guests": 2})
    ]
    assert default_kinds(many, View()) == DEFAULT_KINDS
    assert "not drawn: over_guests: 64 lines in one panel" in caplog.text
    with pytest.raises(UsageError, match="over_guests: 64 lines"):
        drawn(many, "guests")


def test_a_logarithmic_scale_of_the_losses_keeps_zero(campaign):
    figure = drawn(cases_of(campaign), "guests", View(log=True))
    assert panels(figure)[1].get_yscale() == "symlog" and "scale: linear below 0.001 %" in texts(figure)[0]


def test_the_titles_and_legends_lie_within_the_page(campaign):
    figure = drawn(cases_of(campaign), "guests", View(("rate",), "interface"))
    figure.draw_without_rendering()
    for legend in figure.subfigs[1].legends:
        box = legend.get_window_extent()
        assert figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1
    below = [axes.get_window_extent() for axes in panels(figure)[::2]]
    assert all(lower.y1 < upper.y0 for upper, lower in pairwise(below))


def test_other_plots_treat_guests_like_any_parameter(campaign):
    cases = cases_of(campaign, interface="bridge")
    assert list(arrange(cases).labels) == ["1 guest", "2 guests", "4 guests"]
    figure = drawn(cases, "latency", View(beside="guests"))
    assert [axes.get_title(loc="left") for axes in panels(figure)] == ["1 guest", "2 guests", "4 guests"]
    assert texts(drawn(cases_of(campaign, interface="bridge", rate=50), "cdf"))[0][:3] == ["1 guest", "2 guests", "4 guests"]


def test_sizes_ascend_in_a_legend_and_mixes_come_after_them(tmp_path):
    for size in (1514, "imix", 60):
        example_guests.fill_guests(tmp_path, **{**SMALL, "rates": [50]}, interfaces=["bridge"], guests=[1], sizes=[size])
    assert list(arrange(cases_of(tmp_path)).labels) == ["60 B", "1514 B", "imix"]


def test_trials_with_missing_guests_are_left_out_of_the_line_and_told_of(tmp_path):
    example_guests.fill_guests(tmp_path, **{**SMALL, "rates": [50]}, interfaces=["bridge"], guests=[1, 2])
    example_guests.add(tmp_path, {"interface": "bridge", "guests": 2, "rate": 50, "size": 60}, 2, missing={2: "no SSH"})
    example_guests.add(tmp_path, {"interface": "bridge", "guests": 4, "rate": 50, "size": 60}, 0, missing={2: "no SSH"})
    caption = texts(drawn(cases_of(tmp_path), "guests"))[1]
    assert "Trials left out: 1 missing-guests." in caption and "for want of a valid trial: 1 test case" in caption
    accepted = drawn(group_cases(read_results(tmp_path).trials, [Verdict.MISSING_GUESTS]), "guests")
    label = texts(accepted)[0][0]
    assert list(line(panels(accepted)[0], f"{label}: median latency").get_xdata()) == [1, 2, 4]


# -- the command -------------------------------------------------------------------------------------------


@pytest.mark.default
def test_the_command_draws_it_by_itself_and_names_the_file(campaign, tmp_path, capsys):
    assert main(["plot", f"{campaign}:rate=50", "--format", "svg", "-o", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == str(tmp_path / "over_guests_rate-50.svg")
    assert main(["plot", f"{campaign}:rate=50:guests=2", "--format", "svg", "-o", str(tmp_path)]) == 0
    assert "over_guests" not in capsys.readouterr().out
    assert "number of guests" in (tmp_path / "over_guests_rate-50.svg").read_text(encoding="utf-8")


def test_its_files_beside_the_results_are_no_strangers_there(campaign):
    assert main(["plot", str(campaign), "--kind", "guests", "--format", "svg"]) == 0
    assert not read_results(campaign).complaints
    (campaign / "over_guests.svg").unlink()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--kind", "guests", "--by", "guests"], "guests is the x axis of --kind guests: it tells lines apart only in"),
        (["--kind", "latency", "--by", "rate"], "rate is the x axis of --kind latency: it tells lines apart only in"),
    ],
)
def test_what_is_the_axis_tells_no_lines_apart(campaign, tmp_path, capsys, arguments, message):
    assert main(["plot", str(campaign), "-o", str(tmp_path), *arguments]) == 2
    assert message in capsys.readouterr().err and not list(tmp_path.iterdir())


def test_the_host_alone_has_no_guests_to_draw(tmp_path, capsys):
    example.add(tmp_path, example.HOST, 10, 0)
    assert main(["plot", str(tmp_path), "--kind", "guests"]) == 2
    assert "--kind guests: no test case has guests" in capsys.readouterr().err
