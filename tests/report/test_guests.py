"""Results of several guests, and of mixes of frame sizes, in everything but plots and pages."""

import shutil

import example
import example_guests
import older
import pandas as pd
import pytest

from autotest.cli.program import main
from autotest.errors import UsageError
from autotest.report import cache, reading, trials
from autotest.report.cases import along_guests, group_cases, shown
from autotest.report.compare import match, parse_metrics
from autotest.report.export import FORMATS, Request, render, tidy
from autotest.report.metrics import BETWEEN_GUESTS, METRICS
from autotest.report.selection import parse_selection
from autotest.report.summary import summarise
from autotest.report.trials import read_results
from autotest.results import signatures
from autotest.results.names import LoadLatencyCase, TrialName
from autotest.results.store import ResultStore
from autotest.results.verdicts import Verdict

SMALL = {"interfaces": ["bridge"], "rates": [50, 500], "repetitions": 2, "samples": 120}
MIX = "60:7+590:4+1514:1"


@pytest.fixture(scope="module")
def several(tmp_path_factory):
    """1, 2 and 4 guests at two rates, the second one too high for them."""
    directory = tmp_path_factory.mktemp("several") / "results"
    example_guests.fill_guests(directory, **SMALL)
    return directory


def cases_of(directory, *selected, accept=()):
    return group_cases(parse_selection(selected).apply(read_results(directory)), accept)


def only(cases):
    (case,) = cases
    return case


def value(figures, name):
    return METRICS[name].of(figures)


# -- reading -----------------------------------------------------------------------------------------------


def test_figures_of_each_guest_are_made_anew_from_the_lines_and_the_file_of_the_guests(several):
    trial = next(trial for trial in read_results(several).trials if trial.parameters.get("guests") == 4)
    recorded = trial.record()["figures"]
    assert [guest.guest for guest in trial.figures.guests] == [1, 2, 3, 4]
    assert [guest.to_dict() for guest in trial.figures.guests] == recorded["guests"]
    assert all(guest.samples == 120 and guest.p50_ns for guest in trial.figures.guests)
    assert sum(guest.sent for guest in trial.figures.guests) == trial.figures.sent
    assert trial.figures.to_dict() == recorded


def test_a_single_guest_and_the_host_have_no_figures_per_guest(several, tmp_path):
    example.add(tmp_path, example.HOST, 10, 0)
    alone = [trial for trial in read_results(several).trials if "guests" not in trial.parameters]
    for trial in (*read_results(tmp_path).trials, *alone):
        assert trial.figures.guests == () and not trial.path("guests").exists()
        assert [value(trial.figures, name) for name in BETWEEN_GUESTS] == [None, None, None]
        assert value(trial.figures, "mean_size") == 60


def test_where_guests_were_missing_the_numbers_of_the_others_come_from_the_record(tmp_path):
    case = {"interface": "bridge", "guests": 4, "rate": 50, "size": 60, "weights": "4:1:2:1"}
    example_guests.add(tmp_path, case, 0, missing={1: "no SSH", 3: "no SSH"})
    (trial,) = read_results(tmp_path).trials
    assert trial.verdict is Verdict.MISSING_GUESTS
    assert trial.reason == "2 of 4 guests were not there: guest: no SSH; guest3: no SSH"
    assert [(guest.guest, guest.mac[-2:]) for guest in trial.figures.guests] == [(2, "61"), (4, "63")]
    assert all(guest.samples == 400 and guest.p50_ns for guest in trial.figures.guests)
    assert value(trial.figures, "fairness") == pytest.approx(1)  # guests 2 and 4 have 1:1 of 4:1:2:1


def test_fairness_is_relative_to_the_weights(tmp_path):
    case = {"interface": "bridge", "guests": 2, "rate": 50, "size": 60, "weights": "3:1"}
    name = example_guests.add(tmp_path, case, 0)
    assert "_weights3:1_" in name.infix
    (trial,) = read_results(tmp_path).trials
    first, second = trial.figures.guests
    assert first.sent == pytest.approx(3 * second.sent, rel=1e-6) and value(trial.figures, "fairness") == pytest.approx(1)


def test_a_guests_file_that_is_gone_or_another_one_makes_the_trial_incomplete(several, tmp_path):
    for change in ("gone", "changed"):
        directory = tmp_path / change
        shutil.copytree(several, directory)
        file = min(directory.glob("guests_*.csv"))
        file.unlink() if change == "gone" else file.write_text("1,1000,400\n")
        results = read_results(directory)
        (trial,) = [trial for trial in results.trials if trial.verdict is Verdict.INCOMPLETE]
        assert trial.path("guests") == file and "guests" in trial.reason and trial.figures is None
        assert [str(complaint) for complaint in results.complaints] == [f"{trial.name.trial}: {trial.reason}"]


def test_lines_of_the_guests_that_contradict_the_histogram_make_the_trial_incomplete(tmp_path):
    """Also where the record says otherwise: figures are made from the files."""
    case = {"interface": "bridge", "guests": 2, "rate": 50, "size": 60}
    name = example_guests.add(tmp_path / "a", case, 0)
    files = {kind: (tmp_path / "a" / name.file(kind)).read_text() for kind in ("output", "histogram", "guests")}
    files["output"] = files["output"].replace("400 latency samples", "399 latency samples", 1)
    ResultStore(tmp_path / "b").commit(name, files, {"verdict": "valid", "reason": ""})
    (trial,) = read_results(tmp_path / "b").trials
    assert trial.verdict is Verdict.INCOMPLETE
    assert trial.reason == "the guests have 799 latency samples together, the histogram holds 800: not of one run"


def test_a_name_with_more_guests_than_anybody_can_have_is_read_in_no_time(tmp_path):
    example_guests.add(tmp_path, {"interface": "bridge", "guests": 2, "rate": 50, "size": 60}, 0)
    for path in list(tmp_path.iterdir()):
        path.write_text(path.read_text().replace("guests2", "guests999999999"))
        path.rename(tmp_path / path.name.replace("guests2", "guests999999999"))
    (trial,) = read_results(tmp_path).trials
    assert trial.verdict is Verdict.INCOMPLETE and "the output tells of 2" in trial.reason


def test_the_cache_keeps_the_figures_of_the_guests_and_notices_another_guests_file(several, tmp_path, monkeypatch):
    at_once = {"margin_ns": -(10**9)}
    monkeypatch.setattr(cache, "are_settled", lambda files, listed_ns: signatures.are_settled(files, listed_ns, **at_once))
    shutil.copytree(several, tmp_path / "results")
    first = read_results(tmp_path / "results")
    read = []

    def noted(directory, sources):
        read.extend(sources)
        return reading.read_trials(directory, sources)

    monkeypatch.setattr(trials, "read_trials", noted)
    assert read_results(tmp_path / "results") == first and not read
    changed = max((tmp_path / "results").glob("guests_*.csv"))
    changed.write_text("1,1000,400\n")
    assert read_results(tmp_path / "results") != first
    assert [source.name.file("guests") for source in read] == [changed.name]


def test_several_processes_read_the_guests_that_one_reads(several, monkeypatch, cache_home):
    alone = read_results(several)
    shutil.rmtree(cache_home)
    monkeypatch.setattr(reading, "_MANY", 1)
    monkeypatch.setattr(reading, "BATCH_BYTES", 1)
    assert read_results(several) == alone and any(trial.figures.guests for trial in alone.trials)


# -- figures over the repetitions --------------------------------------------------------------------------


def test_a_figure_of_a_guest_is_the_mean_over_the_repetitions_that_have_it(several):
    case = only(cases_of(several, "guests=2", "rate=500"))
    assert list(case.guests) == [1, 2] and all(len(figures) == 2 for figures in case.guests.values())
    for name in ("loss", "p50", "achieved"):
        found = [[value(guest, name) for guest in trial.figures.guests] for trial in case.used]
        assert list(case.of_guests(METRICS[name]).values()) == [pytest.approx(sum(both) / 2) for both in zip(*found, strict=True)]
    losses = case.of_guests(METRICS["loss"])
    assert losses[2] > losses[1] + 10
    assert case.estimate(METRICS["loss_spread"]).mean == pytest.approx(losses[2] - losses[1])
    assert only(cases_of(several, "guests=1", "rate=500")).of_guests(METRICS["loss"]) == {}


def test_the_metrics_of_several_guests_have_units_and_the_bit_rate_is_what_came_back(several):
    case = only(cases_of(several, "guests=4", "rate=500"))
    trial = case.used[0]
    assert 0.9 < value(trial.figures, "fairness") < 1
    assert value(trial.figures, "loss_spread") == pytest.approx(100 * trial.figures.loss_spread)
    assert value(trial.figures, "p50_spread") == trial.figures.p50_spread_ns / 1000 > 100
    assert value(trial.figures, "bit_rate") == pytest.approx(trial.figures.received * 64 * 8 / 30e6)
    metrics = [METRICS[name] for name in (*BETWEEN_GUESTS, "mean_size", "bit_rate")]
    assert [(metric.column, metric.better) for metric in metrics] == [
        ("fairness", "higher"), ("loss_spread_percent", "lower"), ("p50_spread_us", "lower"),
        ("mean_size_bytes", None), ("bit_rate_mbps", "higher"),
    ]  # fmt: skip


def test_cases_that_differ_only_in_their_guests_make_a_line(several, tmp_path):
    example.add(tmp_path, example.HOST, 50, 0)
    example_guests.fill_guests(tmp_path, **{**SMALL, "interfaces": ["macvtap"]}, guests=[2], weights={2: "3:1"})
    lines = along_guests([*cases_of(tmp_path), *cases_of(several)])
    assert [[(case.number_of_guests, case.load) for case in line] for line in lines] == [
        [(1, 50), (2, 50), (4, 50)], [(1, 500), (2, 500), (4, 500)],
    ]  # fmt: skip
    without = group_cases([trial for trial in read_results(several).trials if trial.parameters.get("guests") == 2])
    assert along_guests(without) == []


# -- texts -------------------------------------------------------------------------------------------------


def test_guests_weights_and_mixes_are_shown_for_people():
    guest = {"machine": "pcvm", "guests": 2, "reflector": "xdp", "weights": "3:1", "rate": 10, "size": "imix", "runtime": 30}
    assert shown(guest) == "pcvm, 2 guests, xdp, weights 3:1, 10 kpps, imix, 30 s"
    assert shown({"size": MIX}) == MIX and shown({"size": 60}) == "60 B" and shown({"size": "60~imix"}) == "60~imix"
    assert shown({"machine": "pcvm"}, ["guests", "weights"]) == "1 guest, weights even"
    assert shown({"machine": "host"}, ["guests", "weights"]) == ""


def test_a_summary_of_several_guests_has_a_table_of_what_is_between_them(several):
    text = summarise(read_results(several).trials)
    first, second = text.split("\noffered  fairness")
    assert "4 guests, xdp, 60 B, 30 s" in first and first.count("valid") == 6
    titles, units = (line.split() for line in second.splitlines()[:2])
    assert titles == ["loss", "spread", "median", "spread"] and units == ["[kpps]", "[%]", "[µs]"]
    assert second.count("2 guests") == second.count("4 guests") == 1 and "Jain's index" in second
    case = only(cases_of(several, "guests=2", "rate=500"))
    row = next(line for line in second.split("2 guests")[1].splitlines() if line.lstrip().startswith("500"))
    assert row.split()[1] == f"{case.estimate(METRICS['fairness']).mean:.3f}" and "mean size" not in text
    assert max(map(len, text.splitlines())) <= 100


def test_a_summary_of_mixes_has_their_mean_size_and_bit_rate(tmp_path):
    example_guests.fill_guests(tmp_path, **{**SMALL, "rates": [50]}, guests=[1], sizes=["imix", 60])
    text = summarise(read_results(tmp_path).trials)
    assert "fairness" not in text.lower()
    further = text.split("\noffered  mean size  bit rate\n")[1]
    assert "xdp, imix, 30 s" in further and "60 B" not in further
    row = next(line for line in further.splitlines() if line.startswith("     50"))
    assert row.split() == ["50", "358", f"{50e3 * 362 * 8 / 1e6:.0f}"]


def test_a_trial_with_missing_guests_does_not_count_and_says_why(tmp_path, capsys):
    case = {"interface": "bridge", "guests": 2, "rate": 50, "size": 60}
    example_guests.add(tmp_path, case, 0, missing={2: "no SSH after 60 s"})
    assert main(["summary", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert "0/1  missing-guests\n         missing-guests: 1 of 2 guests were not there: guest2: no SSH after 60 s" in text
    assert not only(cases_of(tmp_path)).used
    assert only(cases_of(tmp_path, accept=[Verdict.MISSING_GUESTS])).used
    example_guests.add(tmp_path, case, 1)
    assert only(cases_of(tmp_path)).verdicts() == "1 valid, 1 missing-guests"
    assert main(["summary", str(tmp_path), "--accept", "missing-guests"]) == 0
    assert "2/2" in capsys.readouterr().out


# -- selections --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "number"),
    [("guests=2", 2), ("guests=1", 2), ("guests=2..", 4), ("guests=1,4", 4), ("weights=even", 6), ("size=60", 6)],
)
def test_guests_are_selected_like_any_number(several, text, number):
    assert len(cases_of(several, text)) == number


def test_what_names_do_not_say_of_guests_can_be_selected_where_there_are_guests(tmp_path):
    older.write(tmp_path, older.name())
    assert len(cases_of(tmp_path, "guests=1", "weights=even")) == 1
    with pytest.raises(UsageError, match="guests is nowhere 2"):
        cases_of(tmp_path, "guests=2")
    with pytest.raises(UsageError) as caught:
        cases_of(tmp_path, "interface=x")
    assert "guests" not in str(caught.value)
    example.add(tmp_path / "host", example.HOST, 10, 0)
    with pytest.raises(UsageError, match="no parameter 'guests'"):
        cases_of(tmp_path / "host", "guests=1")


@pytest.fixture
def mixed(tmp_path):
    """Frame sizes of all kinds, as the older files are: without JSON."""
    for number, size in enumerate((1514, "imix", 60, MIX, "60~imix", "lan-0123abcd")):
        name = TrialName(LoadLatencyCase(rate=10, **{**older.SET_UP, "size": size}).infix, 0)
        older.write(tmp_path / "mixed", name, first_ns=10_000 + number)
    return tmp_path / "mixed"


@pytest.mark.parametrize(
    ("text", "number"),
    [("size=imix", 1), (f"size={MIX}", 1), ("size=60", 1), ("size=60,imix", 2), ("size=..2000", 2), ("size=60~imix", 1)],
)
def test_mixes_are_selected_by_their_names_and_ranges_are_of_single_sizes(mixed, text, number):
    assert len(cases_of(mixed, text)) == number


def test_a_mix_is_selected_behind_the_name_of_the_directory(mixed, capsys):
    assert main(["summary", f"{mixed}:size={MIX}:rate=10"]) == 0
    assert f"xdp, {MIX}, 30 s" in capsys.readouterr().out
    assert main(["summary", f"{mixed}:size=lan-0123abce"]) == 2
    assert "size is nowhere lan-0123abce (did you mean 'lan-0123abcd'?)" in capsys.readouterr().err


def test_sizes_come_in_their_order_and_mixes_after_them(mixed):
    assert read_results(mixed).parameters["size"] == [60, 1514, MIX, "60~imix", "imix", "lan-0123abcd"]


# -- comparison --------------------------------------------------------------------------------------------


def test_one_guest_can_be_compared_with_two(several, capsys):
    matching = match(cases_of(several, "guests=1"), cases_of(several, "guests=2"))
    assert matching.apart == {"guests": (1, 2)} and [pair.a.load for pair in matching.pairs] == [50, 500]
    assert main(["compare", f"{several}:guests=1", f"{several}:guests=2", "--metric", "p50,fairness"]) in (0, 1)
    text = capsys.readouterr().out
    assert "guests: 1 guest in A, 2 guests in B" in text and "\nfairness  " in text and "[]" not in text


def test_one_guest_has_not_lost_the_fairness_that_two_have(several, capsys):
    assert main(["compare", f"{several}:guests=2", f"{several}:guests=1", "--metric", "fairness,p50_spread"]) == 0
    assert "0.98" in capsys.readouterr().out
    assert main(["compare", f"{several}:guests=2:rate=50", f"{several}:guests=4:rate=50", "--metric", "fairness"]) == 0


def test_weights_are_compared_with_even_ones(several, tmp_path):
    example_guests.fill_guests(tmp_path, **SMALL, guests=[2], weights={2: "3:1"})
    matching = match(cases_of(several, "guests=2"), cases_of(tmp_path))
    assert matching.apart == {"weights": ("even", "3:1")} and len(matching.pairs) == 2


def test_fairness_and_spreads_are_compared_and_the_mean_size_is_not():
    assert [metric.name for metric in parse_metrics([",".join(BETWEEN_GUESTS), "bit_rate"])] == [*BETWEEN_GUESTS, "bit_rate"]
    with pytest.raises(UsageError, match="mean_size: neither more nor less of it is better"):
        parse_metrics(["mean_size"])


# -- export ------------------------------------------------------------------------------------------------


def test_the_exported_table_has_what_is_between_the_guests_and_their_number(several):
    table = tidy([read_results(several).trials], Request())
    assert list(table.columns)[8:10] == ["guests", "reflector"] and "weights" not in table
    assert set(table.guests) == {1, 2, 4} and str(table.guests.dtype) == "Int64"
    alone, together = table[table.guests == 1], table[table.guests > 1]
    names = [METRICS[name].column for name in BETWEEN_GUESTS]
    assert alone[names].isna().all(axis=None) and together[names].notna().all(axis=None)
    assert (table.mean_size_bytes == 60).all() and (table.sent_bytes == 64 * table.sent).all() and (table.bit_rate_mbps > 0).all()


def test_weights_are_a_column_where_any_are_not_even(several, tmp_path):
    example_guests.fill_guests(tmp_path, **SMALL, guests=[2], weights={2: "3:1"})
    example.add(tmp_path, example.HOST, 10, 0)
    table = tidy([read_results(directory).trials for directory in (several, tmp_path)], Request())
    assert dict(table.groupby("guests").weights.agg(lambda found: ",".join(sorted(set(found.fillna("-")))))) == {
        1: "-", 2: "3:1,even", 4: "even",
    }  # fmt: skip
    assert table[table.machine == "host"][["guests", "weights"]].isna().all(axis=None)


def test_per_guest_a_row_is_a_guest_of_a_trial(several):
    trials = read_results(several).trials
    table = tidy([trials], Request(per_guest=True))
    assert len(table) == sum(trial.parameters.get("guests", 1) for trial in trials) == 4 * (1 + 2 + 4)
    assert not table.duplicated(["infix", "repetition", "guest"]).any() and str(table.guest.dtype) == "Int64"
    trial = next(trial for trial in trials if trial.parameters.get("guests") == 4 and trial.parameters["rate"] == 500)
    rows = table[(table.infix == trial.name.infix) & (table.repetition == trial.name.repetition)]
    for (_, row), guest in zip(rows.iterrows(), trial.figures.guests, strict=True):
        assert (row.guest, row.mac, row.sent, row.received_bytes, row.samples) == (
            guest.guest, guest.mac, guest.sent, guest.received_bytes, guest.samples,
        )  # fmt: skip
        assert (row.p50_us, row.loss_percent) == (guest.p50_ns / 1000, 100 * guest.loss)
    assert {"fairness", "std_us", "dropout_seconds"}.isdisjoint(table.columns)


def test_per_guest_a_single_guest_has_the_figures_of_the_trial_and_the_host_has_no_guest(tmp_path):
    example_guests.fill_guests(tmp_path, **{**SMALL, "rates": [50], "repetitions": 1}, guests=[1])
    example.add(tmp_path, example.HOST, 10, 0)
    trials = {trial.parameters["machine"]: trial for trial in read_results(tmp_path).trials}
    table = tidy([list(trials.values())], Request(per_guest=True)).set_index("machine")
    assert table.guest["pcvm"] == 1 and table.p50_us["pcvm"] == trials["pcvm"].figures.p50_ns / 1000
    assert table.sent_bytes["pcvm"] == trials["pcvm"].figures.sent_bytes
    assert table.loc["host"][["guest", "mac", "p50_us", "sent"]].isna().all() and table.verdict["host"] == "valid"


def test_per_guest_those_that_were_missing_have_no_row_and_unusable_trials_have_one(tmp_path):
    example_guests.add(tmp_path, {"interface": "bridge", "guests": 3, "rate": 50, "size": 60}, 0, missing={1: "gone"})
    broken = example_guests.add(tmp_path, {"interface": "bridge", "guests": 3, "rate": 50, "size": 60}, 1)
    (tmp_path / broken.output).unlink()
    table = tidy([read_results(tmp_path).trials], Request(per_guest=True))
    assert [(row.repetition, row.verdict, None if pd.isna(row.guest) else row.guest) for row in table.itertuples()] == [
        (0, "missing-guests", 2), (0, "missing-guests", 3), (1, "incomplete", None),
    ]  # fmt: skip


@pytest.mark.parametrize("form", FORMATS)
def test_each_format_has_the_rows_per_guest(several, tmp_path, form):
    target = tmp_path / f"guests.{form}"
    assert main(["export", f"{several}:guests=2", "--per-guest", "-o", str(target)]) == 0
    expected = tidy([parse_selection(["guests=2"]).apply(read_results(several))], Request(per_guest=True))
    read = {"csv": pd.read_csv, "json": pd.read_json, "parquet": pd.read_parquet}[form](target)
    assert list(read.columns) == list(expected.columns) and list(read.guest) == list(expected.guest)
    assert list(read.p99_us) == pytest.approx(list(expected.p99_us))
    assert render(expected, "json", Request(per_guest=True)).count(b'"guest": 2') == 4
