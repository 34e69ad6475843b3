"""What is drawn, read from the figures."""

from dataclasses import replace
from itertools import pairwise

import example_campaign
import numpy as np
import pytest
from plotted import SMALL, bars, cases_of, drawn, line, panels, texts

from autotest.errors import UsageError
from autotest.report.cases import group_cases
from autotest.report.metrics import METRICS
from autotest.report.plots import View
from autotest.report.plots.figure import draw
from autotest.report.plots.layout import arrange
from autotest.report.plots.style import COLOURS, DISTINCT, line_style
from autotest.report.trials import read_results
from autotest.results.names import TrialName


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


# -- along the load ----------------------------------------------------------------------------------------


def test_latency_shows_median_interval_band_and_99_percent_of_the_estimates(campaign):
    cases = cases_of(campaign, interface="bridge")
    (axes,) = panels(drawn(cases, "latency"))
    label = texts(drawn(cases, "latency"))[0][0]
    wanted = {name: [case.estimate(METRICS[name]) for case in cases] for name in ("p25", "p50", "p75", "p99")}
    median = line(axes, f"{label}: median latency")
    assert list(median.get_xdata()) == [10, 20, 50, 100, 200, 400, 700, 1000]
    assert list(median.get_ydata()) == [one.mean for one in wanted["p50"]]
    assert list(line(axes, f"{label}: 99 %").get_ydata()) == [one.mean for one in wanted["p99"]]
    (band,) = [one for one in axes.collections if one.get_label() == f"{label}: 25 to 75 %"]
    corners = band.get_paths()[0].vertices
    for case, low, high in zip(cases, wanted["p25"], wanted["p75"], strict=True):
        heights = corners[corners[:, 0] == case.load][:, 1]
        assert (heights.min(), heights.max()) == (pytest.approx(low.mean), pytest.approx(high.mean))
    intervals = bars(axes, f"{label}: median latency, interval")
    assert len(intervals) == 8
    for case, one in zip(cases, wanted["p50"], strict=True):
        assert intervals[case.load] == (pytest.approx(max(one.low, 0)), pytest.approx(one.high))


def test_under_sent_points_are_hollow_at_the_rate_that_was_sent_and_no_line_leads_to_them(campaign):
    cases = cases_of(campaign, interface="macvtap")
    under_sent = [case for case in cases if case.under_sent]
    assert [case.load for case in under_sent] == [1000]
    for kind, metric in (("latency", "p50"), ("loss", "loss")):
        figure = drawn(cases, kind)
        (axes,) = panels(figure)
        label = f"{texts(figure)[0][0]}: {METRICS[metric].label}"
        apart = line(axes, f"{label}, under-sent")
        assert list(apart.get_xdata()) == [under_sent[0].estimate(METRICS["achieved"]).mean]
        assert 680 < apart.get_xdata()[0] < 740
        assert list(apart.get_ydata()) == [under_sent[0].estimate(METRICS[metric]).mean]
        assert (apart.get_linestyle(), apart.get_markerfacecolor()) == ("None", "white")
        assert line(axes, label).get_markerfacecolor() != "white"
        assert np.isnan(line(axes, label).get_ydata()[-1]) and not np.isnan(line(axes, label).get_ydata()[:-1]).any()
        assert any(text.startswith("hollow: under-sent") for text in texts(figure)[0])
        assert figure.subfigs[0].get_supxlabel() == "offered rate (hollow points: achieved rate) [kpps]"


def test_an_under_sent_point_in_the_middle_leaves_a_gap_and_its_neighbour_alone_keeps_its_spread(tmp_path):
    example_campaign.fill_campaign(tmp_path, **{**SMALL, "interfaces": ["macvtap"]}, rates=[500, 1000], repetitions=1)
    example_campaign.fill_campaign(tmp_path, **{**SMALL, "interfaces": ["macvtap"]}, rates=[20], repetitions=1)
    name = next(trial.name for trial in read_results(tmp_path).trials if trial.parameters["rate"] == 1000)
    above = TrialName(name.infix.replace("1000kpps", "750kpps"), 0)  # as if twice as fast a generator had been there
    for kind in ("output", "histogram"):
        (tmp_path / above.file(kind)).write_bytes((tmp_path / name.file(kind)).read_bytes())
    cases = cases_of(tmp_path)
    assert [(case.load, case.under_sent) for case in cases] == [(20, False), (500, False), (750, True), (1000, True)]
    (axes,) = panels(drawn(cases, "latency"))
    (median,) = [one for one in axes.get_lines() if one.get_label().endswith(": median latency")]
    assert [bool(np.isnan(y)) for y in median.get_ydata()] == [False, False, True, True]
    (alone,) = [one for one in axes.collections if one.get_label().endswith(": 25 to 75 %") and len(one.get_paths()) == 2]
    assert sorted(float(path.vertices[0][0]) for path in alone.get_paths()) == pytest.approx([713, 713], rel=0.03)


def test_the_legend_explains_the_dash_of_a_lone_point_where_there_is_one(campaign):
    entry = "99th percentile of a lone point"
    assert entry in texts(drawn(cases_of(campaign, interface="macvtap"), "latency"))[0]  # under-sent
    assert entry in texts(drawn(cases_of(campaign, interface="bridge", rate=10), "latency"))[0]
    assert entry not in texts(drawn(cases_of(campaign, interface="bridge"), "latency"))[0]


def test_a_case_without_a_valid_trial_breaks_the_line_and_is_counted_in_the_caption(campaign):
    cases = cases_of(campaign, interface="bridge")
    hidden = [case if case.load != 100 else type(case)(case.parameters, case.trials, ()) for case in cases]
    figure = drawn(hidden, "latency")
    (axes,) = panels(figure)
    (median,) = [one for one in axes.get_lines() if one.get_label().endswith(": median latency")]
    assert np.flatnonzero(np.isnan(median.get_ydata())).tolist() == [3]
    assert "Not drawn, for want of a valid trial: 1 test case." in texts(figure)[1]


def test_loss_is_the_mean_over_repetitions_in_percent_with_its_interval_between_0_and_100(campaign):
    cases = cases_of(campaign, interface="bridge")
    (axes,) = panels(drawn(cases, "loss"))
    (losses,) = [one for one in axes.get_lines() if one.get_label().endswith(": loss")]
    assert list(losses.get_ydata()) == [case.estimate(METRICS["loss"]).mean for case in cases]
    assert 30 < losses.get_ydata()[-1] < 45
    (label,) = {one.get_label() for one in axes.containers}
    intervals = bars(axes, label)
    for case in cases:
        one = case.estimate(METRICS["loss"])
        assert intervals[case.load] == (pytest.approx(max(0, one.low)), pytest.approx(min(100, one.high)))
    assert axes.get_yscale() == "linear" and axes.get_ylim()[1] <= 102


def test_intervals_of_losses_end_at_0_and_at_100_percent(campaign):
    losses = {200: (0.0, 0.0, 0.3), 700: (0.7, 1.0, 1.0)}
    cases = []
    for case in cases_of(campaign, interface="bridge"):
        if case.load in losses:
            pairs = zip(case.used, losses[case.load], strict=True)
            used = tuple(replace(trial, figures=replace(trial.figures, loss=loss)) for trial, loss in pairs)
            cases.append(replace(case, used=used))
    assert cases[0].estimate(METRICS["loss"]).low < 0 and cases[1].estimate(METRICS["loss"]).high > 100
    (axes,) = panels(drawn(cases, "loss"))
    (label,) = {one.get_label() for one in axes.containers}
    intervals = bars(axes, label)
    assert intervals[200][0] == 0 and intervals[700][1] == 100


def test_little_loss_makes_no_mountain_and_the_log_scale_keeps_zero(campaign):
    cases = cases_of(campaign, interface="macvtap")
    (axes,) = panels(drawn(cases, "loss"))
    assert axes.get_ylim()[1] >= 1
    figure = drawn(cases, "loss", View(log=True))
    (axes,) = panels(figure)
    assert axes.get_yscale() == "symlog" and axes.get_ylim()[0] < 0
    assert "scale: linear below 0.001 %" in texts(figure)[0]


@pytest.mark.parametrize("kind", ["latency", "loss", "throughput", "cdf", "histogram"])
@pytest.mark.parametrize("wanted", [{"rate": 50}, {"rate": 1000}, {"interface": "bridge"}, {"interface": "macvtap"}], ids=str)
def test_the_legend_lies_within_the_page(campaign, kind, wanted):
    figure = drawn(cases_of(campaign, **wanted), kind)
    figure.draw_without_rendering()
    for legend in figure.subfigs[1].legends:
        box = legend.get_window_extent()
        assert figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1


def test_the_titles_of_panels_do_not_run_into_each_other(campaign):
    layout = arrange(cases_of(campaign, interface="bridge", rate=50))
    title = "microvm, QEMU default, vhost off, ioregionfd off"
    beside = tuple(replace(layout.panels[0], title=title, column=column) for column in range(3))
    figure = draw("loss", replace(layout, panels=beside), "", log=False)
    figure.draw_without_rendering()
    ends = [axes._left_title.get_window_extent() for axes in panels(figure)]
    assert all(left.x1 < right.x0 for left, right in pairwise(ends)) and ends[-1].x1 <= figure.bbox.x1


def test_one_rate_has_the_diagonal_too(campaign):
    (axes,) = panels(drawn(cases_of(campaign, rate=50), "throughput"))
    diagonal = line(axes, "received = offered")
    assert list(diagonal.get_xdata()) == list(diagonal.get_ydata()) == [0, 50]


def test_throughput_is_what_came_back_over_what_was_offered_with_the_diagonal_in_every_panel(campaign):
    figure = drawn(cases_of(campaign), "throughput", View(beside="interface"))
    for axes, interface in zip(panels(figure), ("bridge", "macvtap"), strict=True):
        cases = cases_of(campaign, interface=interface)
        diagonal = line(axes, "received = offered")
        assert list(diagonal.get_xdata()) == list(diagonal.get_ydata()) == [10, 1000]
        points = {
            float(x): float(y)
            for one in axes.get_lines()
            if ": throughput" in str(one.get_label())
            for x, y in zip(one.get_xdata(), one.get_ydata(), strict=True)
            if np.isfinite(y)
        }
        assert points == {case.load: case.estimate(METRICS["throughput"]).mean for case in cases}
        assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    hollow = [one for one in panels(figure)[1].get_lines() if str(one.get_label()).endswith("under-sent")]
    assert list(hollow[0].get_xdata()) == [1000]


def test_a_single_repetition_has_no_interval_and_the_legend_speaks_of_none(campaign):
    trials = [trial for trial in read_results(campaign).trials if trial.name.repetition == 0]
    for kind in ("latency", "loss", "throughput"):
        figure = drawn(group_cases(trials), kind)
        assert not panels(figure)[0].containers
        assert not any("confidence" in text for text in texts(figure)[0])
        assert "Each point: 1 repetition, 300 latency samples" in texts(figure)[1]


def test_axes_have_units_and_are_logarithmic_where_the_rates_span(campaign):
    wide, narrow = cases_of(campaign), [case for case in cases_of(campaign) if 100 <= case.load <= 400]
    for kind, y_label in (
        ("latency", "round-trip latency [µs]"),
        ("loss", "loss [% of the frames sent]"),
        ("throughput", "throughput: received rate [kpps]"),
    ):
        figure = drawn(wide, kind)
        assert figure.subfigs[0].get_supylabel() == y_label
        assert panels(figure)[0].get_xscale() == "log"
        figure = drawn(narrow, kind)
        assert figure.subfigs[0].get_supxlabel() == "offered rate [kpps]"
        assert (panels(figure)[0].get_xscale(), panels(figure)[0].get_xlim()[0]) == ("linear", 0)


def test_a_few_percent_of_latency_make_no_mountain(campaign):
    flat = [case for case in cases_of(campaign, interface="bridge") if case.load == 700]
    low, high = panels(drawn(flat, "latency"))[0].get_ylim()
    assert high / low >= 8.9


def test_as_fast_as_possible_is_drawn_at_the_achieved_rate(tmp_path):
    example_campaign.fill_campaign(tmp_path, **{**SMALL, "interfaces": ["bridge"]}, rates=[200], repetitions=1)
    (trial,) = read_results(tmp_path).trials
    fast = TrialName(trial.name.infix.replace("200kpps", "0kpps"), 0)
    for kind in ("output", "histogram"):
        (tmp_path / fast.file(kind)).write_bytes(trial.path(kind).read_bytes())
    figure = drawn([case for case in cases_of(tmp_path) if case.load == 0], "throughput")
    (points,) = [one for one in panels(figure)[0].get_lines() if str(one.get_label()).endswith(": throughput")]
    assert points.get_xdata()[0] == pytest.approx(200, rel=0.01)
    assert "Offered rate 0 is as fast as possible" in texts(figure)[1]


# -- series and panels -------------------------------------------------------------------------------------


def test_side_by_side_panels_share_their_axes_and_a_series_looks_the_same_in_each(switched):
    figure = drawn(cases_of(switched), "latency", View(("vhost",), "interface"))
    left, right = panels(figure)
    assert [axes.get_title(loc="left") for axes in (left, right)] == ["bridge", "macvtap"]
    assert left.get_ylim() == right.get_ylim() and left.get_xlim() == right.get_xlim()
    for label in ("vhost off", "vhost on"):
        first, second = (line(axes, f"{label}: median latency") for axes in (left, right))
        assert first.get_color() == second.get_color() and first.get_marker() == second.get_marker()
        assert first.get_linestyle() == second.get_linestyle()
    assert texts(figure)[0][:2] == ["vhost off", "vhost on"]


def test_the_first_lines_differ_in_colour_and_in_marker_and_no_63_look_alike():
    looks = [line_style(number) for number in range(DISTINCT)]
    assert len({look["color"] for look in looks[: len(COLOURS)]}) == len({look["marker"] for look in looks[:9]}) - 2 == 7
    assert len({(look["color"], look["marker"]) for look in looks}) == 63 == DISTINCT


def test_crowded_panels_are_warned_of_and_what_cannot_be_told_apart_is_refused(tmp_path, caplog):
    trials = []
    example_campaign.fill_campaign(tmp_path, **{**SMALL, "interfaces": ["bridge"]}, rates=[50], repetitions=1)
    (trial,) = read_results(tmp_path).trials
    for number in range(64):
        infix = trial.name.infix.replace("normal", f"build{number}")
        trials.append(replace(trial, name=TrialName(infix, 0), parameters={**trial.parameters, "qemu": f"build{number}"}))
    drawn(group_cases(trials[:7]), "latency")
    assert not caplog.records
    drawn(group_cases(trials[:8]), "latency")
    assert "8 lines" in caplog.text and "--select" in caplog.text and "qemu (build0, " in caplog.text
    with pytest.raises(UsageError, match=r"load_latency: 64 lines .*at most 63.*--by or --side-by-side: qemu"):
        drawn(group_cases(trials), "latency")


# -- distributions -----------------------------------------------------------------------------------------


def test_the_cdf_is_of_all_samples_of_all_repetitions(campaign):
    cases = cases_of(campaign, interface="bridge", rate=50)
    figure = drawn(cases, "cdf")
    (axes,) = panels(figure)
    curve = axes.get_lines()[0]
    pooled = cases[0].histogram()
    assert pooled.samples == 600  # of three repetitions one is disturbed
    assert curve.get_ydata()[-1] == pytest.approx(100) and (np.diff(curve.get_ydata()) >= 0).all()
    assert curve.get_xdata()[-1] == pooled.max / 1000
    assert curve.get_drawstyle() == "steps-post"  # it rises where the sample is
    half = np.searchsorted(curve.get_ydata(), 50)
    assert curve.get_xdata()[half] == pooled.percentile(50) / 1000
    (marks,) = [one for one in axes.get_lines() if str(one.get_label()).endswith(": marks")]
    assert list(marks.get_xdata()) == [value / 1000 for value in pooled.percentiles([25, 50, 75])]
    assert axes.get_xscale() == "log" and figure.subfigs[0].get_supxlabel() == "round-trip latency [µs]"
    assert figure.subfigs[0].get_supylabel() == "share of samples at or below [%]"
    assert "Each line: 2 repetitions, 600 latency samples, of all repetitions together." in texts(figure)[1]


def test_the_histogram_counts_every_sample_in_bins_that_are_the_same_in_every_plot(campaign):
    edges = []
    for interface in ("bridge", "macvtap"):
        cases = cases_of(campaign, interface=interface, rate=20)
        figure = drawn(cases, "histogram", View(log=interface == "macvtap"))
        (axes,) = panels(figure)
        (steps,) = axes.patches
        assert steps.get_data().values.sum() == pytest.approx(100)
        assert steps.get_data().values * 900 / 100 == pytest.approx(np.round(steps.get_data().values * 9))  # of 900 samples
        edges.append(steps.get_data().edges)
        exponents = np.log10(edges[-1] * 1000) * 20
        assert exponents == pytest.approx(np.round(exponents))
    assert set(np.round(edges[0], 6)) & set(np.round(edges[1], 6))
    assert axes.get_yscale() == "log" and axes.get_xscale() == "log"
    assert figure.subfigs[0].get_supylabel() == "share of samples per bin, 20 bins per decade [%]"


def test_a_histogram_with_a_repetition_left_out_is_as_high_as_one_with_all(campaign):
    (case,) = cases_of(campaign, interface="bridge", rate=20)
    fewer = replace(case, used=case.used[:2])
    for one in (case, fewer):
        (axes,) = panels(drawn([one], "histogram", View(log=True)))
        (steps,) = axes.patches
        shares = steps.get_data().values
        assert shares.sum() == pytest.approx(100)
        assert 0 < axes.get_ylim()[0] < shares[shares > 0].min()


def test_a_distribution_per_rate_marks_under_sent_ones_and_says_what_they_sent(campaign):
    for kind in ("cdf", "histogram"):
        figure = drawn(cases_of(campaign, interface="macvtap"), kind, View(("rate",)))
        (axes,) = panels(figure)
        assert texts(figure)[0][:8] == [f"{rate} kpps" for rate in example_campaign.RATES]
        hollow = {one.get_label(): one.get_markerfacecolor() for one in axes.get_lines() if "marks" in str(one.get_label())}
        assert [label for label, colour in hollow.items() if colour == "white"] == ["1000 kpps: marks, under-sent"]
        assert "Under-sent [kpps]: 1000 kpps sent 7" in texts(figure)[1]


def test_too_many_lines_of_distributions_are_refused_with_how_many_and_what_to_select(campaign):
    with pytest.raises(UsageError, match=r"latency_cdf: 16 lines .*at most 12.*interface \(bridge, macvtap\), rate \(10, 20"):
        drawn(cases_of(campaign), "cdf")
