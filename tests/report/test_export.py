"""The exported table: its columns, what is missing in it, and that each format gives it back as it was."""

from __future__ import annotations

import argparse
import csv
import io
import json
from pathlib import Path
from typing import Any

import example
import pandas as pd
import pyarrow.parquet as pq
import pytest
from pandas.testing import assert_frame_equal

from autotest.cli.arguments import build_parser
from autotest.cli.program import main
from autotest.report.export import FORMATS, METADATA_KEY, Request, render, tidy
from autotest.report.metrics import METRICS
from autotest.report.trials import Trial, read_results
from autotest.results.figures import figures
from autotest.results.histogram import parse_histogram
from autotest.results.moongen import parse_moongen_output
from autotest.results.names import TrialName
from autotest.results.verdicts import Verdict

PLAIN = Request()
ACCEPT = Request(("results",), ("rate=10",), frozenset({Verdict.DISTURBED, Verdict.UNDER_SENT}))
INFIX = "pcvm_bridge_q_vhoston_ioregionfdoff_xdp_10kpps_60B_30s"
PARAMETERS = {
    "machine": "pcvm", "interface": "bridge", "qemu": "q", "vhost": True, "ioregionfd": False, "reflector": "xdp",
    "rate": 10, "size": 60, "runtime": 30,
}  # fmt: skip
HOSTILE = [
    'newline\nand "quotes", commas', "=cmd|' /C calc'!A0", "+1", "@SUM(A1)", "lone\rreturn", "dos\r\nend", " spaces ", "\ttab\t",
    '"', '""', ",", "\n", "z\x00ero", "NA", "nan", "null", "true", "0123", "1e5", "-", "\x1b[31mred\x07", "ümläut – 日本 🦊", "x" * 10_000,
]  # fmt: skip


def example_table(directory: Path, request: Request = PLAIN) -> pd.DataFrame:
    example.fill(directory)
    return tidy([read_results(directory).trials], request)


def trial(**changes: Any) -> Trial:
    fields: dict[str, Any] = {
        "directory": Path("d"),
        "name": TrialName(INFIX, 0),
        "parameters": PARAMETERS,
        "verdict": Verdict.VALID,
    }
    return Trial(**fields | changes)


def read_back(content: bytes, form: str, like: pd.DataFrame) -> pd.DataFrame:
    if form == "parquet":
        return pd.read_parquet(io.BytesIO(content))
    if form == "csv":
        types = {name: str(dtype) for name, dtype in like.dtypes.items()}
        return pd.read_csv(io.BytesIO(content), dtype=types, keep_default_na=False, na_values=[""])
    return pd.DataFrame(json.loads(content), columns=like.columns).astype(like.dtypes)


# -- the table ---------------------------------------------------------------------------------------------


def test_a_trial_has_one_row_with_a_column_for_each_parameter_and_figure(tmp_path: Path) -> None:
    table = example_table(tmp_path)
    assert len(table) == len(read_results(tmp_path).trials)
    assert not table.duplicated(["directory", "infix", "repetition"]).any()
    assert list(table.columns[3:12]) == list(PARAMETERS)
    assert {metric.column for metric in METRICS.values()} | {"sent", "received", "lost", "dropout_seconds"} <= set(table.columns)
    row = table[(table.interface == "bridge") & (table.rate == 40) & (table.repetition == 1)].iloc[0]
    assert (row.loss_percent, row.sent, row.lost, row.samples) == (20.0, 1_200_000, 240_000, 1000)
    assert (row.p50_us, row.vhost, row.ioregionfd) == (1600.499, True, False)


def test_what_is_missing_is_missing_and_not_0_or_an_empty_text(tmp_path: Path) -> None:
    table = example_table(tmp_path)
    assert set(map(str, table.dtypes)) == {"string", "Int64", "Float64", "boolean"}
    host = table[table.machine == "host"]
    assert host[["qemu", "vhost", "ioregionfd"]].isna().all(axis=None)
    valid = table[table.verdict == "valid"]
    assert valid.reason.isna().all() and table.testbed.isna().all() and table.accept.isna().all()
    nothing = tidy([[trial(figures=None, verdict=Verdict.INCOMPLETE)]], PLAIN)
    measured = [metric.column for metric in METRICS.values()] + ["sent", "received", "lost", "dropout_seconds"]
    assert nothing[measured].isna().all(axis=None)


def test_whole_numbers_that_a_table_cannot_hold_are_missing() -> None:
    output = parse_moongen_output(example.sample.output(9_999_999_999_999_999_999, 9_999_999_999_999_999_998))
    found = figures(output, parse_histogram(example.sample.histogram().encode(), "x"), 30.0)
    table = tidy([[trial(figures=found)]], PLAIN)
    assert table.sent.isna().all() and list(table.lost.fillna(-1)) == [found.lost if found.lost is not None else -1]
    for form in FORMATS:
        assert_frame_equal(read_back(render(table, form, PLAIN), form, table), table)


def test_the_table_tells_which_trials_the_figures_of_their_case_are_made_of(tmp_path: Path) -> None:
    table = example_table(tmp_path)
    assert list(table[table.used].verdict.unique()) == ["valid", "under-sent"]
    assert list(table[~table.used].verdict.unique()) == ["disturbed"]
    accepting = tidy([read_results(tmp_path).trials], ACCEPT)
    assert accepting.used.all() and set(accepting.accept) == {"under-sent,disturbed"}


def test_a_trial_that_was_accepted_when_it_was_measured_is_marked() -> None:
    table = tidy([[trial(verdict=Verdict.DISTURBED, accepted=True, reason="link went down")]], PLAIN)
    assert (table.verdict[0], table.reason[0], table.accepted[0], table.used[0]) == ("disturbed", "link went down", True, True)


def test_the_same_trial_from_two_sources_has_one_row(tmp_path: Path) -> None:
    example.fill(tmp_path)
    trials = read_results(tmp_path).trials
    again = read_results(tmp_path / ".." / tmp_path.name).trials
    assert len(tidy([trials, trials[:3], again], PLAIN)) == len(trials)


def test_directories_are_told_apart(tmp_path: Path) -> None:
    for name in ("a", "b"):
        example.fill(tmp_path / name)
    table = tidy([read_results(tmp_path / name).trials for name in ("a", "b")], PLAIN)
    assert list(table.directory.unique()) == [str(tmp_path / "a"), str(tmp_path / "b")]
    assert (table.directory.value_counts() == 10).all()


@pytest.mark.parametrize(
    "record",
    [
        {"identity": {"hash": "ab12", "determines": {"qemu.version": "8.2"}}, "versions": {"autotest": "1.0"},
         "machines": {"host": {"kernel": "6.1"}, "guest": {"kernel": "6.2"}, "loadgen": {"kernel": "6.3"}}},
        {"versions": {"autotest": "1.0", "kernel of host": "6.1", "kernel of loadgen": "6.3"}, "guest": {"qemu version": "8.2"}},
    ],
    ids=["version 2", "version 1"],
)  # fmt: skip
def test_what_the_records_of_both_formats_say_of_the_software_is_there(tmp_path: Path, record: dict[str, Any]) -> None:
    (tmp_path / f"trial_{INFIX}_rep0.json").write_text(json.dumps(record | {"ended": "2026-03-01T12:00:00+00:00"}))
    row = tidy([[trial(directory=tmp_path)]], PLAIN).iloc[0]
    assert (row.autotest, row.qemu_version, row.kernel_host, row.kernel_loadgen) == ("1.0", "8.2", "6.1", "6.3")
    assert row.ended == "2026-03-01T12:00:00+00:00"
    assert ("identity" in record) == (row.identity is not pd.NA) == (row.kernel_guest is not pd.NA)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"versions": 3, "machines": {"host": []}}', b"\xff", b"[" * 100_000])
def test_a_damaged_record_leaves_its_columns_empty(tmp_path: Path, content: bytes) -> None:
    (tmp_path / f"trial_{INFIX}_rep0.json").write_bytes(content)
    row = tidy([[trial(directory=tmp_path)]], PLAIN).iloc[0]
    assert row[["ended", "autotest", "qemu_version", "kernel_host", "identity"]].isna().all()


# -- the formats -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMATS)
def test_a_table_that_is_read_back_is_the_same(tmp_path: Path, form: str) -> None:
    table = example_table(tmp_path, ACCEPT)
    assert_frame_equal(read_back(render(table, form, ACCEPT), form, table), table)


@pytest.mark.parametrize("form", FORMATS)
def test_hostile_reasons_are_read_back_as_they_were(form: str) -> None:
    table = tidy([[trial(name=TrialName(INFIX, number), reason=reason) for number, reason in enumerate(HOSTILE)]], PLAIN)
    assert list(table.reason) == HOSTILE
    assert_frame_equal(read_back(render(table, form, PLAIN), form, table), table)


def test_hostile_reasons_are_one_field_for_other_readers_of_csv() -> None:
    table = tidy([[trial(name=TrialName(INFIX, number), reason=reason) for number, reason in enumerate(HOSTILE)]], PLAIN)
    text = render(table, "csv", PLAIN).decode()
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    assert [row["reason"] for row in rows] == HOSTILE


@pytest.mark.parametrize("form", FORMATS)
def test_half_a_character_is_written_as_its_number(form: str) -> None:
    table = tidy([[trial(reason="\ud83e broken")]], PLAIN)
    assert read_back(render(table, form, PLAIN), form, table).reason[0] == "\\ud83e broken"


@pytest.mark.parametrize("form", FORMATS)
def test_the_same_table_gives_the_same_bytes(tmp_path: Path, form: str) -> None:
    table = example_table(tmp_path)
    again = tidy([read_results(tmp_path).trials], PLAIN)
    assert render(table, form, ACCEPT) == render(again, form, ACCEPT)


@pytest.mark.parametrize("form", FORMATS)
def test_an_export_of_no_trials_has_columns_and_no_rows(form: str) -> None:
    table = tidy([[]], PLAIN)
    assert len(read_back(render(table, form, PLAIN), form, table)) == 0
    assert "verdict" in table.columns


def test_csv_has_a_header_and_switches_and_numbers_as_usual(tmp_path: Path) -> None:
    header, *lines = render(example_table(tmp_path), "csv", PLAIN).decode().splitlines()
    assert header.startswith(
        "directory,infix,repetition,machine,interface,qemu,vhost,ioregionfd,reflector,rate,size,runtime,verdict,"
    )
    (line,) = [line for line in lines if "macvtap" in line and ",10,60," in line]
    assert ",pcvm,macvtap,normal,true,false,xdp,10,60,30,valid,,false,,true,10.0,9.9999,0.001," in line


def test_json_is_a_list_of_records_with_null(tmp_path: Path) -> None:
    records = json.loads(render(example_table(tmp_path), "json", PLAIN))
    host = next(record for record in records if record["machine"] == "host")
    assert host["vhost"] is None and host["sent"] == 300_000 and host["used"] is True


def test_parquet_says_how_it_was_made(tmp_path: Path) -> None:
    content = render(example_table(tmp_path, ACCEPT), "parquet", ACCEPT)
    about = json.loads(pq.read_schema(io.BytesIO(content)).metadata[METADATA_KEY])
    assert about.pop("version")
    asked = {"select": ["rate=10"], "exclude": [], "section": []}
    assert about == {"sources": ["results"], **asked, "accept": ["under-sent", "disturbed"]}


# -- the command -------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    example.fill(tmp_path / "results")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("form", ["csv", "json"])
def test_nothing_but_the_table_is_on_standard_output(folder: Path, capsysbinary: pytest.CaptureFixture[bytes], form: str) -> None:
    assert main(["export", "results", "--format", form, "--select", "rate=10"]) == 0
    table = tidy([[found for found in read_results(Path("results")).trials if found.parameters["rate"] == 10]], PLAIN)
    assert_frame_equal(read_back(capsysbinary.readouterr().out, form, table), table)


@pytest.mark.parametrize(("name", "options", "form"), [("a.csv", [], "csv"), ("a.JSON", [], "json"), ("a.parquet", [], "parquet"),
                                                       ("a", [], "csv"), ("a.csv", ["--format", "json"], "json")])  # fmt: skip
def test_the_format_is_the_named_one_or_that_of_the_files_name(folder: Path, name: str, options: list[str], form: str) -> None:
    Path(name).write_text("an export of before")
    assert main(["export", "results", "-o", name, *options]) == 0
    table = tidy([read_results(Path("results")).trials], PLAIN)
    assert_frame_equal(read_back(Path(name).read_bytes(), form, table), table)


def test_parquet_needs_a_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "results", "--format", "parquet"]) == 2
    output = capsys.readouterr()
    assert output.out == "" and "-o trials.parquet" in output.err


@pytest.mark.parametrize(
    ("output", "problem"),
    [("results", "is a directory"), ("no/a.csv", "no directory no"), ("results/failures.jsonl", "result file"),
     (f"results/trial_{INFIX}_rep0.json", "result file"), ("tests.conf", "what is to be exported")],
)  # fmt: skip
def test_a_file_that_is_no_export_is_not_replaced(
    folder: Path, capsys: pytest.CaptureFixture[str], output: str, problem: str
) -> None:
    (folder / "tests.conf").write_text("[a]\nmachines=pcvm\n")
    before = sorted((path, path.stat().st_mtime_ns) for path in folder.rglob("*") if path.is_file())
    assert main(["export", "tests.conf" if output == "tests.conf" else "results", "-o", output]) == 2
    assert problem in capsys.readouterr().err
    assert sorted((path, path.stat().st_mtime_ns) for path in folder.rglob("*") if path.is_file()) == before


def test_an_export_that_is_interrupted_leaves_the_one_before(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("a.csv").write_text("before")

    def full_disk(*_: object) -> None:
        raise OSError(28, "No space left on device", "a.csv")

    monkeypatch.setattr("os.replace", full_disk)
    assert main(["export", "results", "-o", "a.csv"]) == 1
    assert Path("a.csv").read_text() == "before" and [path.name for path in folder.glob(".autotest*")] == []


def test_the_command_line_offers_every_format() -> None:
    parser = next(action for action in build_parser()._actions if isinstance(action, argparse._SubParsersAction)).choices[
        "export"
    ]
    (option,) = [action for action in parser._actions if action.dest == "format"]
    assert option.choices == FORMATS
