"""Summary and comparison in Markdown. markdown-it renders them as GitHub does: CommonMark with tables."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html import unescape
from pathlib import Path

import example
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from autotest.cli.program import main
from autotest.report.markdown import MOST_ROWS, escape, folded, table
from autotest.report.summary import summarise
from autotest.report.summary_markdown import summarise_in_markdown
from autotest.report.trials import Trial, read_results
from autotest.results.names import TrialName
from autotest.results.verdicts import Verdict

RENDERER = MarkdownIt("commonmark").enable("table")
HOSTILE = [
    "a | b", "`code`", "``", "**bold** _em_", "<script>alert(1)</script>", "</details>", "![x](http://a/b.png)", "[x](y)", "\\|",
    "&lt;", "http://a.b www.a.b", "# title", "- item", "1. item", "> quote", "~~~", "a\nb", "a\r\n\r\n# b", "$x$", "@somebody", "\x1b[31m",
]  # fmt: skip


def shown(markdown: str) -> str:
    """The text of what is rendered."""
    return unescape(re.sub(r"<[^>]*>", "", RENDERER.render(markdown))).strip()


def tags(markdown: str) -> set[str]:
    return set(re.findall(r"<(\w+)", RENDERER.render(markdown)))


@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_text_is_shown_as_it_is_in_a_line_an_item_and_a_table(text: str):
    expected = " ".join(text.split()).replace("\x1b[31m", "")
    assert shown(escape(text)) == expected and tags(escape(text)) <= {"p"}
    assert shown(f"- {escape(text)}") == expected and tags(f"- {escape(text)}") <= {"ul", "li"}
    cells = table(["one", "two"], [[text, "second"]], align="lr")
    html = RENDERER.render("\n".join(cells))
    assert set(re.findall(r"<(\w+)", html)) == {"table", "thead", "tbody", "tr", "th", "td"} and html.count("<td") == 2
    assert unescape(re.findall(r"<td[^>]*>(.*?)</td>", html)[0]) == expected


@given(st.text(max_size=30))
def test_no_text_at_all_becomes_markup(text: str):
    html = RENDERER.render("\n".join(table(["one", "two"], [[text, "x"]], align="lr")))
    assert set(re.findall(r"<(\w+)", html)) == {"table", "thead", "tbody", "tr", "th", "td"} and html.count("<td") == 2
    assert tags(escape(text)) <= {"p"}


def test_what_is_folded_is_markdown_inside():
    html = RENDERER.render("\n".join(folded("a <b>", table(["x"], [["1"]], align="l"))))
    assert "<details>" in html and "<summary>a &#60;b&#62;</summary>" in html and "<table>" in html and "</details>" in html


# --- the summary -------------------------------------------------------------------------------------------------------


def summary_of(folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["summary", str(folder), "--format", "markdown"]) == 0
    return capsys.readouterr().out


def test_the_summary_has_what_is_not_valid_above_the_figures(tmp_path: Path, capsys):
    example.fill(tmp_path)
    markdown = summary_of(tmp_path, capsys)
    text = shown(markdown)
    assert text.startswith("7 test cases, 10 trials: ")
    assert markdown.index("Not valid: 3 test cases") < markdown.index("Figures of 7 test cases")
    first = markdown.split("Not valid")[1].splitlines()[4]
    assert "1 valid, 1 disturbed" in first and "disturbed: link went down" in first
    html = RENDERER.render(markdown)
    assert html.count("<table>") == 2 and html.count("<tr>") == 2 + 3 + 7
    assert "under-sent" in markdown.split("Not valid")[1].split("Figures")[0].splitlines()[-3]  # a finding: below the failures


def test_the_figures_are_those_of_the_text(tmp_path: Path, capsys):
    example.fill(tmp_path)
    html = RENDERER.render(summary_of(tmp_path, capsys))
    rows = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in html.split("<tr>")]
    [cells] = [cells for cells in rows if cells[1:] and "bridge" in cells[0] and cells[1] == "40"]
    text = summarise(read_results(tmp_path).trials)
    [line] = [line for line in text.split("pcvm, bridge")[1].split("macvtap")[0].splitlines() if line.startswith("     40")]
    assert unescape(" ".join(cells[1:])).split() == line.split() and line.split()[2:4] == ["15.0", "±63.5"]


def test_a_long_table_is_folded(tmp_path: Path):
    for rate in range(1, MOST_ROWS + 2):
        example.add(tmp_path, example.BRIDGE, rate, 0, latency_ns=1000 + rate)
    markdown = summarise_in_markdown(read_results(tmp_path).trials)
    assert f"<summary>Figures of {MOST_ROWS + 1} test cases</summary>" in markdown


def test_nothing_measured_is_said(tmp_path: Path):
    assert summarise_in_markdown([], open_failures=2).startswith("No load latency trials.\n\n2 failures are noted")


def test_hostile_names_and_reasons_stay_text(tmp_path: Path):
    example.fill(tmp_path)
    trials = read_results(tmp_path).trials
    hostile = [
        replace(trial, parameters=dict(trial.parameters) | {"qemu": HOSTILE[number % len(HOSTILE)]}, reason=HOSTILE[-number],
                verdict=Verdict.DISTURBED)
        for number, trial in enumerate(trials)
    ]  # fmt: skip
    markdown = summarise_in_markdown(hostile)
    assert tags(markdown) <= {"p", "strong", "table", "thead", "tbody", "tr", "th", "td", "details", "summary"}
    assert isinstance(hostile[0], Trial) and isinstance(hostile[0].name, TrialName)


# --- the comparison ----------------------------------------------------------------------------------------------------


def nights(folder: Path, *latencies: int, rates: tuple[int, ...] = (10, 20)) -> list[Path]:
    """Directories with six repetitions of these latencies in ns; the last one's lower rate is that of the first."""
    directories = [folder / f"night-{number}" for number in range(len(latencies))]
    for number, (directory, latency) in enumerate(zip(directories, latencies, strict=True)):
        directory.mkdir()
        for rate in rates:
            for repetition in range(6):
                found = latencies[0] if rate == rates[0] else latency
                example.add(directory, example.BRIDGE, rate, repetition, latency_ns=found + 10 * repetition + number)
    return directories


def test_a_comparison_has_what_is_worse_on_top_and_everything_folded_below(tmp_path: Path, capsys):
    a, b = nights(tmp_path, 100_000, 150_000)
    assert main(["compare", str(a), str(b), "--format", "markdown", "--threshold", "p50=5%", "--threshold", "p99=5%"]) == 1
    markdown = capsys.readouterr().out
    html = RENDERER.render(markdown)
    assert shown(markdown).startswith("Worse: 2 figures. 8 comparisons of 2 test cases:")
    assert html.count("<table>") == 2
    top, below = html.split("<details>", 1)
    assert top.count("<tr>") == 1 + 2 and '<td style="text-align:left">20 kpps</td>' in top and "regression" in top
    assert "<summary>All: 8 figures</summary>" in below and below.count("<tr>") == 1 + 8
    assert "Better" not in markdown


def test_a_comparison_without_differences_says_that_nothing_is_worse(tmp_path: Path, capsys):
    a, b = nights(tmp_path, 100_000, 100_000)
    assert main(["compare", str(a), str(b), "--format", "markdown"]) == 0
    assert shown(capsys.readouterr().out).startswith("Nothing is worse.")


def test_that_too_few_repetitions_were_measured_to_find_anything_stands_in_the_first_line(tmp_path: Path, capsys):
    a, b = nights(tmp_path, 100_000, 100_000)
    for rest in list(b.glob("*_rep[3-5].*")):
        rest.unlink()
    assert main(["compare", str(a), str(b), "--format", "markdown"]) == 0
    assert shown(capsys.readouterr().out).startswith("Nothing is worse, but 8 figures could not be compared.")


def test_what_was_better_not_matched_or_not_valid_is_told(tmp_path: Path, capsys):
    a, b = nights(tmp_path, 150_000, 100_000)
    example.add(a, example.MACVTAP, 10, 0)
    example.add(b, example.BRIDGE, 10, 6, disturbed="link | went <down>", latency_ns=7)
    assert main(["compare", str(a), str(b), "--format", "markdown"]) == 0
    text = shown(capsys.readouterr().out)
    assert "Better: 2 figures" in text and "only in A: 1 test case" in text and "left out: 1 disturbed in B" in text


@pytest.mark.default
def test_what_determines_the_result_and_is_not_the_same_in_both_is_named_once(tmp_path: Path, capsys):
    a, b = nights(tmp_path, 100_000, 100_000)
    for directory, version in ((a, "7.2.1"), (b, "8.0.0")):
        for path in directory.glob("trial_*.json"):
            determines = {"qemu.version": version, "host.cpu": "EPYC | 7763"}
            path.write_text(json.dumps(json.loads(path.read_text()) | {"identity": {"hash": "x", "determines": determines}}))
    assert main(["compare", str(a), str(b), "--format", "markdown"]) == 0
    assert shown(capsys.readouterr().out).count("not the same in both: QEMU: 7.2.1 in A, 8.0.0 in B") == 1
    assert main(["compare", str(a), str(b)]) == 0
    text = capsys.readouterr().out
    assert text.count("not the same in both: QEMU: 7.2.1 in A, 8.0.0 in B\n") == 1 and "EPYC" not in text


def test_a_case_that_is_gone_is_worse(tmp_path: Path, capsys):
    a, b = nights(tmp_path, 100_000, 100_000, rates=(10,))
    for repetition in range(2):
        example.add(a, example.BRIDGE, 40, repetition)
        example.add(b, example.BRIDGE, 40, repetition, disturbed="gone", latency_ns=9 + repetition)
    assert main(["compare", str(a), str(b), "--format", "markdown"]) == 1
    text = shown(capsys.readouterr().out)
    assert "Worse: 4 figures" in text and "nothing usable in B" in text
