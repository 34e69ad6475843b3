"""Which test cases share a line, and which lines a panel."""

from itertools import chain, combinations, product
from pathlib import Path

import pytest

from autotest.errors import UsageError
from autotest.report.cases import group_cases
from autotest.report.plots.layout import arrange
from autotest.report.trials import Trial
from autotest.results.names import LoadLatencyCase, TrialName
from autotest.results.verdicts import Verdict

GUEST = {"machine": "pcvm", "interface": "bridge", "qemu": "normal", "vhost": False, "ioregionfd": False}
GUEST |= {"reflector": "xdp", "rate": 10, "size": 60, "runtime": 30}
HOST = {"machine": "host", "interface": "pnic", "reflector": "xdp", "rate": 10, "size": 60, "runtime": 30}


def cases(*many, verdict=Verdict.VALID, base=GUEST):
    """Test cases that differ from the base like this, in this order; a verdict of their own under that key."""
    trials = []
    for changes in many:
        parameters = {**base, **changes}
        judged = parameters.pop("verdict", verdict)
        trials.append(Trial(Path("x"), TrialName(LoadLatencyCase(**parameters).infix, 0), parameters, judged))
    return group_cases(trials)


def matrix(**lists):
    return [dict(zip(lists, values, strict=True)) for values in product(*lists.values())]


def shape(layout):
    """Panels by title, each with its lines and their rates."""
    return {
        panel.title: {series.label: [case.load for case in series.cases] for series in panel.series} for panel in layout.panels
    }


EVERYTHING = matrix(
    machine=["pcvm", "microvm"], interface=["bridge", "macvtap"], vhost=[False, True], size=[60, 1514], rate=[10, 20]
)
SUBSETS = list(chain.from_iterable(combinations(["machine", "interface", "vhost", "size"], n) for n in range(5)))


@pytest.mark.parametrize("by", SUBSETS)
@pytest.mark.parametrize("beside", ["", "interface", "size"])
def test_no_line_ever_mixes_set_ups_and_every_case_is_drawn_once(by, beside):
    if beside in by:
        return
    found = cases(*EVERYTHING, {"machine": "host", "interface": "pnic", "qemu": "a"} | {"machine": "pcvm"})
    layout = arrange(found, by, beside)
    lines = [series for panel in layout.panels for series in panel.series]
    assert all(len({case.set_up for case in series.cases}) == 1 for series in lines)
    assert len({series.cases[0].set_up for series in lines}) == len(lines)
    assert sorted(map(id, layout.cases)) == sorted(map(id, found))
    assert all(len({series.number for series in panel.series}) == len(panel.series) for panel in layout.panels)
    assert len({(panel.row, panel.column) for panel in layout.panels}) == len(layout.panels)


def test_without_by_each_set_up_is_a_line_labelled_by_what_differs():
    layout = arrange(cases(*matrix(interface=["bridge", "macvtap"], vhost=[False, True], rate=[20, 10])))
    labels = ["bridge, vhost off", "bridge, vhost on", "macvtap, vhost off", "macvtap, vhost on"]
    assert shape(layout) == {"": {label: [10, 20] for label in labels}}
    assert layout.constants == {key: GUEST[key] for key in ("machine", "qemu", "ioregionfd", "reflector", "size", "runtime")}


def test_a_single_set_up_is_labelled_in_full():
    assert shape(arrange(cases({}))) == {"": {"pcvm, bridge, QEMU normal, vhost off, ioregionfd off, xdp, 60 B, 30 s": [10]}}


def test_with_by_what_else_differs_makes_panels():
    layout = arrange(cases(*matrix(interface=["bridge", "macvtap"], vhost=[True, False], size=[1514, 60])), ["vhost"])
    assert list(shape(layout)) == ["bridge, 60 B", "bridge, 1514 B", "macvtap, 60 B", "macvtap, 1514 B"]
    assert all(lines == {"vhost off": [10], "vhost on": [10]} for lines in shape(layout).values())
    assert (layout.rows, layout.columns) == (2, 2)


def test_side_by_side_puts_the_values_into_columns_and_the_rest_into_rows():
    found = cases(*matrix(interface=["bridge", "macvtap"], vhost=[False, True], size=[60, 1514]))
    layout = arrange(found, ["vhost"], "interface")
    assert [(panel.title, panel.row, panel.column) for panel in layout.panels] == [
        ("bridge, 60 B", 0, 0),
        ("macvtap, 60 B", 0, 1),
        ("bridge, 1514 B", 1, 0),
        ("macvtap, 1514 B", 1, 1),
    ]
    assert shape(arrange(cases(*matrix(interface=["bridge", "macvtap"], vhost=[False, True])), beside="interface")) == {
        "bridge": {"vhost off": [10], "vhost on": [10]},
        "macvtap": {"vhost off": [10], "vhost on": [10]},
    }


def test_a_line_has_the_same_number_in_every_panel_also_where_others_are_missing():
    layout = arrange(cases({"vhost": False}, {"vhost": True}, {"interface": "macvtap", "vhost": True}), ["vhost"], "interface")
    assert [[(one.number, one.label) for one in panel.series] for panel in layout.panels] == [
        [(0, "vhost off"), (1, "vhost on")],
        [(1, "vhost on")],
    ]


def test_what_follows_from_the_series_is_named_with_it_and_makes_no_panels():
    """The host has its own interface and no QEMU: compared by machine, both stand in one panel."""
    trials = cases({"rate": 10}) + cases({}, base=HOST)
    layout = arrange(trials, ["machine"])
    assert shape(layout) == {"": {"pcvm, bridge, QEMU normal, vhost off, ioregionfd off": [10], "host, pnic": [10]}}
    beside = arrange(trials, beside="machine")
    assert [panel.title for panel in beside.panels] == ["pcvm, bridge, QEMU normal, vhost off, ioregionfd off", "host, pnic"]


def test_a_parameter_that_does_not_apply_is_said_so():
    layout = arrange(cases({"vhost": True}, {"vhost": False}) + cases({}, base=HOST), ["vhost"], "machine")
    assert [[series.label for series in panel.series] for panel in layout.panels] == [
        ["vhost off", "vhost on"],
        ["without vhost"],
    ]


def test_several_parameters_can_be_the_series():
    layout = arrange(cases(*matrix(interface=["bridge", "macvtap"], vhost=[False, True])), ["vhost", "interface"])
    assert layout.labels == ("vhost off, bridge", "vhost off, macvtap", "vhost on, bridge", "vhost on, macvtap")


def test_a_case_without_a_usable_trial_leaves_a_gap_in_its_line_and_is_counted():
    found = cases({"rate": 10}, {"rate": 20, "verdict": Verdict.DISTURBED}, {"rate": 40})
    layout = arrange(found)
    (series,) = layout.panels[0].series
    assert [(case.load, bool(case.used)) for case in series.cases] == [(10, True), (20, False), (40, True)]
    assert layout.missing == 1


def test_a_set_up_without_any_usable_trial_is_no_line_and_changes_no_label():
    found = cases({"rate": 10}, {"interface": "macvtap", "verdict": Verdict.INCOMPLETE})
    assert [series.label for series in arrange(found, ["interface"]).panels[0].series] == ["bridge"]


def test_where_the_load_is_no_axis_it_is_a_parameter_like_the_others():
    found = cases(*matrix(interface=["bridge", "macvtap"], rate=[10, 100, 20]))
    layout = arrange(found, ["rate"], axis="")
    assert shape(layout) == {title: {"10 kpps": [10], "20 kpps": [20], "100 kpps": [100]} for title in ("bridge", "macvtap")}
    assert list(shape(arrange(found, ["interface"], axis=""))) == ["10 kpps", "20 kpps", "100 kpps"]
    assert layout.differ == ("interface", "rate")


def test_an_unknown_parameter_is_refused_with_those_that_differ():
    found = cases(*matrix(interface=["bridge", "macvtap"], size=[60, 1514]))
    with pytest.raises(UsageError, match=r"'vhosts'.*interface \(bridge, macvtap\), size \(60, 1514\)"):
        arrange(found, ["vhosts"])
    with pytest.raises(UsageError, match="'colour'"):
        arrange(found, [], "colour")
    with pytest.raises(UsageError, match="named twice"):
        arrange(found, ["size"], "size")


def test_more_panels_than_can_be_read_are_refused_with_what_to_select():
    found = cases(*matrix(size=range(60, 73), interface=["bridge", "macvtap"]))
    with pytest.raises(UsageError, match=r"13 panels .*at most 12.*size \(60, 61, .*--select size=60"):
        arrange(found, ["interface"])
