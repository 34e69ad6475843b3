"""Queues and ring sizes in all reports: told apart where test cases differ in them, unmentioned where all leave them to QEMU."""

import random

import measured
import older
import pytest
from example import BRIDGE, HOST, add

from autotest.cli.program import main
from autotest.errors import UsageError
from autotest.report.cases import differing, group_cases, shown
from autotest.report.compare import match
from autotest.report.export import Request, tidy
from autotest.report.parameters import names_of, value_of
from autotest.report.plots.layout import arrange
from autotest.report.selection import parse_selection, split_source
from autotest.report.summary import count_open_failures
from autotest.report.trials import read_results
from autotest.results.store import ResultStore

MANY = {"queues": 16, "rx_queue_size": 1024}


@pytest.fixture
def mixed(tmp_path):
    """Guests with the queues that QEMU gives them, with 4 and with 16, and the host, which has none."""
    add(tmp_path, BRIDGE, 10, 0)
    add(tmp_path, {**BRIDGE, "queues": 4}, 10, 0, latency_ns=90_000)
    add(tmp_path, {**BRIDGE, **MANY}, 10, 0, latency_ns=80_000)
    add(tmp_path, HOST, 10, 0, latency_ns=9_000)
    return tmp_path


@pytest.fixture
def left(tmp_path):
    """Guests of which all leave it to QEMU: what there was before there was a choice."""
    directory = tmp_path / "left"
    add(directory, BRIDGE, 10, 0, latency_ns=102_000)
    add(directory, {**BRIDGE, "vhost": False}, 10, 0)
    older.write(directory, older.name(40), rate=40)
    return directory


def cases_of(directory, *selected):
    return group_cases(parse_selection(selected).apply(read_results(directory)))


def labels(directory, *selected, **options):
    return list(arrange(cases_of(directory, *selected), **options).labels)


# -- reading -----------------------------------------------------------------------------------------------


def test_a_name_without_queues_says_nothing_of_them(left):
    for trial in read_results(left).trials:
        assert not {"queues", "rx_queue_size", "tx_queue_size"} & trial.parameters.keys()


def test_parameters_come_in_the_order_of_the_tree_whichever_trial_comes_first(mixed):
    several = [trial.parameters for trial in read_results(mixed).trials]
    for many in (several, [one for one in several if one["machine"] == "pcvm"][::-1]):
        names = names_of(many)
        assert names.index("ioregionfd") + 1 == names.index("queues") == names.index("rx_queue_size") - 1
    assert list(read_results(mixed).parameters)[4:8] == ["ioregionfd", "queues", "rx_queue_size", "reflector"]


def test_what_a_guest_leaves_to_qemu_is_its_default_and_what_the_host_has_not_is_none(mixed):
    many = [trial.parameters for trial in read_results(mixed).trials]
    found = {parameters["machine"]: parameters for parameters in many if "queues" not in parameters}
    assert value_of(found["pcvm"], "queues") == "default" and value_of(found["host"], "queues") is None
    assert value_of(found["pcvm"], "vhost") is True and value_of(found["host"], "vhost") is None
    assert read_results(mixed).parameters["queues"] == [4, 16, "default"]
    chosen = {**found["pcvm"], "queues": 4}
    assert differing([found["pcvm"], chosen]) == ["queues"] and differing([found["pcvm"], found["pcvm"]]) == []


# -- guests, weights and mixes -----------------------------------------------------------------------------


@pytest.fixture
def crowd(tmp_path):
    """One guest, as in older directories, and several: with even and other weights, and mixes of sizes; and the host."""
    directory = tmp_path / "crowd"
    add(directory, BRIDGE, 10, 0)
    add(directory, {**BRIDGE, "size": 590}, 10, 0, latency_ns=91_000)
    add(directory, {**BRIDGE, "guests": 2}, 10, 0, latency_ns=92_000)
    add(directory, {**BRIDGE, "guests": 4, "size": "imix"}, 10, 0, latency_ns=93_000)
    add(directory, {**BRIDGE, "guests": 2, "weights": "3:1", "size": "60~60:7+590:4"}, 10, 0, latency_ns=94_000)
    add(directory, {**HOST, "size": "dc-0123abcd"}, 10, 0, latency_ns=9_000)
    return directory


def test_a_guest_whose_names_say_nothing_is_one_with_even_weights_and_the_host_has_none(crowd):
    many = [trial.parameters for trial in read_results(crowd).trials]
    (bare_metal,) = [one for one in many if one["machine"] == "host"]
    alone = next(one for one in many if one["machine"] != "host" and "guests" not in one)
    assert (value_of(alone, "guests"), value_of(alone, "weights")) == (1, "even")
    assert value_of(bare_metal, "guests") is value_of(bare_metal, "weights") is None
    assert not {"guests", "weights"} & alone.keys()


def test_guests_and_weights_stand_where_the_tree_has_them_whichever_trial_comes_first(crowd):
    several = [trial.parameters for trial in read_results(crowd).trials]
    for many in (several, several[::-1]):
        names = names_of(many)
        assert names[names.index("ioregionfd") + 1] == "guests" and names[names.index("reflector") + 1] == "weights"
    guests_alone = [one for one in several if one["machine"] != "host"]
    names = names_of(guests_alone)
    assert names[names.index("ioregionfd") + 1 :][:4] == ["guests", "reflector", "weights", "rate"]
    everything = [{"rate": 10, "reflector": "xdp", "machine": "pcvm"}, {"weights": "3:1", "tx_queue_size": 256, "guests": 2}]
    assert names_of(everything) == ["rate", "reflector", "weights", "machine", "tx_queue_size", "guests"]
    found = names_of([{"reflector": "xdp", "rate": 10}, {"guests": 2, "weights": "3:1"}])
    assert found == ["guests", "reflector", "weights", "rate"]


def test_values_of_guests_and_sizes_are_listed_numbers_first(crowd):
    found = read_results(crowd).parameters
    assert found["guests"] == [1, 2, 4] and found["weights"] == ["3:1", "even"]
    assert found["size"] == [60, 590, "60~60:7+590:4", "dc-0123abcd", "imix"]


@pytest.mark.parametrize(
    ("text", "number"),
    [("guests=2..4", 3), ("guests=1", 2), ("guests=..2", 4), ("guests=1,4", 3), ("weights=even", 4), ("weights=3:1", 1),
     ("size=imix", 1), ("size=60..590", 3), ("size=60", 2), ("size=60~60:7+590:4", 1), ("size=dc-0123abcd,imix", 2),
     ("size=..", 3), ("size=600..", 0)],
)  # fmt: skip
def test_guests_weights_and_mixes_are_selected_like_any_parameter(crowd, text, number):
    if number:
        assert len(cases_of(crowd, text)) == number
    else:
        with pytest.raises(UsageError, match="size is nowhere 600.."):
            cases_of(crowd, text)


def test_an_older_directory_is_selected_as_one_guest(left):
    assert len(cases_of(left, "guests=1")) == len(cases_of(left, "weights=even")) == 3
    with pytest.raises(UsageError, match="guests is nowhere 2"):
        cases_of(left, "guests=2")


def test_a_source_with_a_mix_and_weights_in_it_is_taken_apart(tmp_path):
    path, texts = split_source(f"{tmp_path}:size=60:7+590:4+1514:1:guests=2..4:weights=3:1")
    assert path == tmp_path and texts == ["size=60:7+590:4+1514:1", "guests=2..4", "weights=3:1"]


def test_a_failure_noted_of_one_guest_is_made_up_for_by_one_guest_and_not_by_two(tmp_path):
    what = "guest (machine pcvm, interface bridge, qemu normal, vhost on, ioregionfd off"
    for text in (f"{what})", f"{what}, guests 2)"):
        ResultStore(tmp_path).note_failure(text, "reason")
    store = ResultStore(tmp_path)
    for still, name in zip((1, 0), (older.name(guests=2, weights="3:1"), older.name()), strict=True):
        content = older.write(tmp_path / "other", name)
        files = {kind: (tmp_path / "other" / content.file(kind)).read_text() for kind in ("output", "histogram")}
        store.commit(name, files, {"verdict": "valid", "reason": "", "started": "2999-01-01T00:00:00+00:00"})
        assert count_open_failures(read_results(tmp_path)) == still


# -- texts -------------------------------------------------------------------------------------------------


def test_a_summary_has_a_block_for_each(mixed, capsys):
    assert main(["summary", str(mixed)]) == 0
    blocks = [line for line in capsys.readouterr().out.splitlines() if line.startswith(("pcvm", "host"))]
    assert sorted(blocks) == [
        "host, pnic, moongen, 60 B, 30 s",
        "pcvm, bridge, QEMU normal, vhost on, ioregionfd off, queues 16, rx queue size 1024, xdp, 60 B, 30 s",
        "pcvm, bridge, QEMU normal, vhost on, ioregionfd off, queues 4, xdp, 60 B, 30 s",
        "pcvm, bridge, QEMU normal, vhost on, ioregionfd off, xdp, 60 B, 30 s",
    ]


def test_nothing_is_said_where_all_leave_it_to_qemu(left, capsys):
    assert labels(left) == ["vhost off", "vhost on"]
    for command in (["summary"], ["export"], ["compare", "--metric", "p50", f"{left}:vhost=off"]):
        source = f"{left}:vhost=on" if command[0] == "compare" else str(left)
        main([*command, source])
        assert "queue" not in capsys.readouterr().out


def test_a_failure_noted_of_a_guest_is_made_up_for_by_that_guest_alone(tmp_path):
    guest = "machine pcvm, interface bridge, qemu normal, vhost on, ioregionfd off"
    started = {"started": "2999-01-01T00:00:00+00:00"}
    for what in (f"guest ({guest})", f"guest ({guest}, queues 4)"):
        ResultStore(tmp_path).note_failure(what, "reason")
    store, names = ResultStore(tmp_path), [older.name(), older.name(queues=4)]
    assert count_open_failures(read_results(tmp_path)) == 2
    for still, name in zip((1, 0), reversed(names), strict=True):
        content = older.write(tmp_path / "other", name)
        files = {kind: (tmp_path / "other" / content.file(kind)).read_text() for kind in ("output", "histogram")}
        store.commit(name, files, {"verdict": "valid", "reason": "", **started})
        assert count_open_failures(read_results(tmp_path)) == still


# -- plots -------------------------------------------------------------------------------------------------


def test_a_legend_tells_them_apart_and_numbers_ascend(mixed):
    add(mixed, {**BRIDGE, "queues": 4}, 40, 0)
    assert labels(mixed, "machine=pcvm", "queues=default,4") == ["queues default", "queues 4"]
    assert labels(mixed, "machine=pcvm") == [
        "queues default, rx queue size default", "queues 4, rx queue size default", "queues 16, rx queue size 1024",
    ]  # fmt: skip
    assert labels(mixed, "machine=pcvm", by=("rx_queue_size",)) == ["rx queue size default", "rx queue size 1024"]
    with pytest.raises(UsageError, match=r"queues \(default, 4, 16\), rx_queue_size \(default, 1024\)"):
        labels(mixed, "machine=pcvm", by=("nothing",))


def test_what_all_have_is_not_in_the_legend(mixed):
    layout = arrange(cases_of(mixed, "queues=4"))
    assert layout.constants["queues"] == 4 and layout.differ == ()
    assert "queues 4" in shown(layout.constants)


def test_the_host_has_no_queues_in_a_legend(mixed):
    found = labels(mixed, by=("machine", "queues"))
    (host,) = [label for label in found if label.startswith("host")]
    assert "queue" not in host


# -- selections --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "number"),
    [("queues=4", 1), ("queues=4,16", 2), ("queues=default", 1), ("queues=2..", 2), ("queues=default,4", 2),
     ("rx_queue_size=default", 2), ("rx_queue_size=1024", 1), ("tx_queue_size=default", 3)],
)  # fmt: skip
def test_they_are_selected_like_any_parameter(mixed, text, number):
    assert len(cases_of(mixed, text)) == number


def test_an_older_directory_is_selected_as_what_qemu_chose(left):
    assert len(cases_of(left, "queues=default")) == len(cases_of(left)) == 3
    with pytest.raises(UsageError, match="queues is nowhere 4"):
        cases_of(left, "queues=4")
    with pytest.raises(UsageError) as caught:
        cases_of(left, "interface=x")
    assert "queues" not in str(caught.value)


def test_where_there_is_only_the_host_there_are_no_queues(tmp_path):
    add(tmp_path, HOST, 10, 0)
    with pytest.raises(UsageError, match="no parameter 'queues'"):
        cases_of(tmp_path, "queues=default")


# -- comparison --------------------------------------------------------------------------------------------


def test_only_the_same_queues_are_compared_with_each_other(mixed, left):
    matching = match(cases_of(left), cases_of(mixed, "machine=pcvm"))
    assert [value_of(pair.a.parameters, "queues") for pair in matching.pairs] == ["default"]
    assert [value_of(case.parameters, "queues") for case in matching.only_b] == [16, 4]


def test_queues_are_what_is_compared_where_each_side_has_one_number(tmp_path):
    chance = random.Random(1)
    for directory, parameters in (("a", {}), ("b", {"queues": 4})):
        measured.measure(tmp_path / directory, 3, chance, rates=(10,), **parameters)
    matching = match(cases_of(tmp_path / "a"), cases_of(tmp_path / "b"))
    assert matching.apart == {"queues": ("default", 4)} and len(matching.pairs) == 1


def test_the_text_of_a_comparison_tells_its_cases_apart(tmp_path, capsys):
    chance = random.Random(1)
    for directory in ("a", "b"):
        for parameters in ({}, {"queues": 4}):
            measured.measure(tmp_path / directory, 3, chance, rates=(10,), **parameters)
    assert main(["compare", "--metric", "p50", str(tmp_path / "a"), str(tmp_path / "b")]) in (0, 1)
    text = capsys.readouterr().out
    assert "\nqueues default, 10 kpps\n" in text and "\nqueues 4, 10 kpps\n" in text


# -- export ------------------------------------------------------------------------------------------------


def test_the_exported_columns_are_whole_numbers_in_the_order_of_the_tree(mixed):
    table = tidy([read_results(mixed).trials], Request())
    columns = list(table.columns)
    assert columns[columns.index("ioregionfd") + 1 :][:3] == ["queues", "rx_queue_size", "reflector"]
    assert str(table.queues.dtype) == str(table.rx_queue_size.dtype) == "Int64"
    assert sorted(table.queues.dropna()) == [4, 16] and table.rx_queue_size.dropna().tolist() == [1024]
    assert set(table[table.queues.isna()].machine) == {"host", "pcvm"}
