"""The HTML report, in the browser that Debian has: what it shows, and that nothing of it comes from elsewhere."""

import base64
import dataclasses
import gzip
import json
import os
import random
import re
import shutil
from pathlib import Path

import example
import example_campaign
import pytest
import sample_output as sample
from playwright.sync_api import expect
from viewed import MADE, Viewer, chips, column, middle, points, render, rows

from autotest.cli.program import main
from autotest.report.page import render_page
from autotest.report.trials import read_results

HOSTILE = "</script><script>window.hacked = 1</script><img src=x onerror='window.hacked=1'><b>bold</b>{{data}}"


def realistic_output(sent, received, **options):
    """Harder to compress than MoonGen's of 30 seconds: no two are alike."""

    def rate(direction, frames, share):
        mpps = frames / 30e6 * share
        return sample.rate_line(0, direction, f"{mpps:.4f}", f"{mpps * 51200:.0f}").replace("13098", f"{mpps * 67200:.0f}")

    shares = [share for _ in range(15) for half in [NOISE.uniform(0.5, 1)] for share in (half, 2 - half)]
    seconds = "".join(rate("RX", received, share) + rate("TX", sent, share * NOISE.uniform(0.99, 1.01)) for share in shares)
    return REAL_OUTPUT(sent, received, **options, seconds=seconds)


REAL_OUTPUT = sample.output
NOISE = random.Random(1)


def fill_small(directory: Path, **options) -> None:
    """One set-up at two rates, where nothing else is said."""
    small = {"machines": ["pcvm"], "interfaces": ["bridge"], "vhosts": [True], "reflectors": ["xdp"], "sizes": [60]}
    example_campaign.fill_campaign(directory, **{**small, "rates": [10, 50], **options})


@pytest.fixture(scope="module")
def campaign(tmp_path_factory):
    """48 trials of 16 cases in 4 set-ups; one has a disturbed repetition, some with macvtap are under-sent."""
    directory = tmp_path_factory.mktemp("campaign")
    example_campaign.fill_campaign(directory, machines=["pcvm"], reflectors=["xdp"], sizes=[60], rates=[10, 50, 200, 1000])
    return directory


@pytest.fixture(scope="module")
def report(campaign):
    render(campaign, campaign / "report.html")
    return campaign / "report.html"


@pytest.fixture(scope="module")
def opened(browser, report):
    page = browser.new_page(viewport={"width": 1400, "height": 1000})
    viewer = Viewer(page)
    viewer.open(report)
    yield viewer
    page.close()


@pytest.fixture
def page(opened):
    """The report of the campaign, opened once for all tests, without any filter."""
    yield opened.page
    opened.page.keyboard.press("Escape")
    if opened.page.locator("#clear").count():
        opened.page.click("#clear")
    opened.page.evaluate("scrollTo(0, 0)")
    opened.check()


# -- charts ------------------------------------------------------------------------------------------------


def test_every_case_with_figures_is_a_point_in_each_chart_and_the_summary_counts(page):
    assert points(page, "latency").count() == points(page, "loss").count() == points(page, "throughput").count() == 16
    tiles = page.locator("#summary").inner_text().split("\n")
    assert tiles[:4] == ["16", "test cases", "48", "trials"]
    assert tiles[tiles.index("✕ disturbed") - 1] == "1"
    assert len(rows(page)) == 48


def test_hovering_over_a_point_shows_the_trials_of_its_case_with_figures_and_distribution(page):
    page.get_by_label("rate", exact=True).select_option("10")
    page.get_by_label("interface").select_option("bridge")
    page.get_by_label("vhost").select_option("off")
    expect(points(page, "latency")).to_have_count(1)
    page.mouse.move(*middle(points(page, "latency").first))
    shown = page.locator("#chart-latency .hoverlayer .hovertext")
    shown.wait_for()
    text = shown.text_content()
    assert re.search(r"bridge, vhost off, 10 kpps.*3 of 3 repetitions used, 6000 samples", text)
    assert re.search(r"median latency: [0-9.]+ µs \([0-9.]+ to [0-9.]+\)", text)
    medians = dict(zip(column(page, "rep."), column(page, "median"), strict=True))
    assert "median latency: " + ", ".join(f"rep. {rep}: {medians[rep]}" for rep in "012") in text
    expect(page.locator("#chart-cdf .gtitle-subtitle")).to_contain_text("bridge, vhost off, 10 kpps")
    assert page.locator("#chart-cdf .scatterlayer path.js-line").count() == 3


def test_a_click_on_a_point_filters_the_table_and_a_second_one_or_clear_undoes_it(page):
    for undo in ("click", "clear"):
        point = middle(points(page, "loss").nth(5))
        page.mouse.click(*point)
        expect(page.locator("#trials tbody tr")).to_have_count(3)
        label = re.search(r"case: (.*) ✕", chips(page))[1]
        assert sorted(column(page, "rep.")) == ["0", "1", "2"]
        assert {
            f"{interface}, vhost {vhost}, {rate} kpps"
            for interface, vhost, rate in zip(column(page, "interface"), column(page, "vhost"), column(page, "rate"), strict=True)
        } == {label}
        if undo == "click":
            page.wait_for_timeout(400)  # or it is a double click
            page.mouse.click(*point)
        else:
            page.click("#clear")
        expect(page.locator("#trials tbody tr")).to_have_count(48)


def test_the_tail_of_the_distribution_ends_at_the_largest_sample(page):
    page.check("#tail")
    expect(page.locator("#chart-cdf .ytitle")).to_have_text("samples above [%]")
    drawn = page.evaluate("document.getElementById('chart-cdf').data.map(trace => [trace.x, trace.y])")
    page.uncheck("#tail")
    expect(page.locator("#chart-cdf .ytitle")).to_have_text("samples at or below [%]")
    whole = page.evaluate("document.getElementById('chart-cdf').data.map(trace => trace.x)")
    for (x, y), all_of_it in zip(drawn, whole, strict=True):
        assert x == all_of_it[: len(x)] and x[-1] > x[-2] and set(all_of_it[len(x) :]) == {x[-1]}
        assert y[0] == 100 and y[50] == 50


def test_under_sent_points_are_hollow(page):
    hollow = page.evaluate(
        "document.getElementById('chart-latency').data"
        ".filter(trace => String(trace.marker?.symbol).endsWith('-open') && trace.customdata).map(trace => trace.name)"
    )
    assert hollow and all(name.startswith("macvtap") for name in hollow)


# -- filters, search, sort ---------------------------------------------------------------------------------


def test_a_click_on_a_verdict_shows_its_trials(page):
    page.click("#summary button:has-text('disturbed')")
    (row,) = rows(page)
    assert "the load generator's clock jumped by +1.25 s" in " ".join(row)
    expect(points(page, "latency")).to_have_count(1)
    page.click("#summary button:has-text('disturbed')")
    assert len(rows(page)) == 48


def test_the_choice_of_a_parameter_filters_charts_and_table(page):
    page.get_by_label("interface").select_option("macvtap")
    page.get_by_label("rate", exact=True).select_option("200")
    assert set(column(page, "interface")) == {"macvtap"} and set(column(page, "rate")) == {"200"}
    expect(points(page, "latency")).to_have_count(2)
    assert "interface = macvtap" in chips(page) and "rate = 200" in chips(page)
    page.get_by_label("rate", exact=True).select_option("")
    assert set(column(page, "rate")) == {"10", "50", "200", "1000"}
    page.click("#clear")
    assert page.get_by_label("interface").input_value() == "" and len(rows(page)) == 48


def test_a_set_up_of_the_legend_filters_and_the_legend_has_what_the_other_filters_leave(page):
    page.get_by_label("vhost").select_option("on")
    expect(page.locator("#legend button:visible")).to_have_text(["■bridge, vhost on", "◆macvtap, vhost on"])
    page.click("#clear")
    page.click("#legend button:has-text('bridge, vhost on')")
    expect(points(page, "latency")).to_have_count(4)
    assert len(rows(page)) == 12


def test_the_search_finds_rows_with_all_words(page):
    page.fill("#search", "VHOST on  clock")
    expect(page.locator("#trials tbody tr")).to_have_count(1)
    assert column(page, "verdict") == ["✕ disturbed"]
    page.fill("#search", "no such trial")
    expect(page.locator("#trials tbody tr")).to_have_count(0)
    page.click("#clear")
    assert len(rows(page)) == 48 and page.input_value("#search") == ""


def test_what_some_leave_to_qemu_is_a_default_to_filter_by_and_sorts_apart_from_numbers(viewer, tmp_path):
    guest = {"machine": "pcvm", "interface": "bridge", "reflector": "xdp", "size": 60, "runtime": 30}
    guest |= {"qemu": "normal", "vhost": True, "ioregionfd": False}
    for number, chosen in enumerate(({"queues": 16}, {}, {"queues": 4})):
        example.add(tmp_path, {**guest, **chosen}, 10, 0, latency_ns=100_000 + number)
    example.add(tmp_path, example.HOST, 10, 0)
    render(tmp_path, tmp_path / "report.html")
    page = viewer.open(tmp_path / "report.html")
    page.locator("#trials th button", has_text="queues").click()
    assert column(page, "queues") == ["default", "4", "16", "–"]
    page.get_by_label("queues").select_option("default")
    assert column(page, "queues") == ["default"]
    page.get_by_label("queues").select_option("4")
    assert column(page, "queues") == ["4"]


def test_a_click_on_a_header_sorts_numbers_as_numbers_and_back(page):
    page.click("#trials th button:has-text('p99')")
    upwards = [float(text) for text in column(page, "p99")]
    assert upwards == sorted(upwards) and upwards[0] < 1000 < upwards[-1]
    page.click("#trials th button:has-text('p99')")
    assert [float(text) for text in column(page, "p99")] == upwards[::-1]
    assert page.locator("#trials th[aria-sort=descending]").inner_text().startswith("p99")


# -- one trial, environment --------------------------------------------------------------------------------


def test_a_row_opens_the_log_and_the_json_of_its_trial_also_from_the_keyboard(page, campaign):
    page.locator("#trials tbody tr").nth(40).click()
    shown = page.locator("#detail .JSON pre")
    shown.wait_for()
    record = json.loads(shown.text_content())
    name = f"{record['infix']}_rep{record['repetition']}"
    assert shown.text_content() == (campaign / f"trial_{name}.json").read_text()
    log = (campaign / f"output_{name}.log").read_text()
    assert page.locator("#detail .log pre").text_content() == re.sub(r"\x1b\[[0-9;]*m", "", log)
    for link in page.locator("#detail a").all():
        assert (campaign / link.get_attribute("href")).is_file()
    page.keyboard.press("Escape")
    assert page.locator("#detail").is_hidden()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    shown.wait_for()
    assert json.loads(shown.text_content()) != record


def test_what_differs_and_what_is_common_is_listed_and_a_value_filters(viewer, tmp_path):
    fill_small(tmp_path, interfaces=["bridge", "macvtap"], rates=[10], repetitions=2)
    next(tmp_path.glob("trial_*bridge*rep1.json")).unlink()
    for record in tmp_path.glob("trial_*macvtap*.json"):
        text = record.read_text().replace('"python": "3.11.2"', '"python": "3.13.0"')
        record.write_text(text.replace('"guest.vcpus": 4', '"guest.vcpus": 2') if "rep1" in record.name else text)
    render(tmp_path, tmp_path / "report.html")
    page = viewer.open(tmp_path / "report.html")
    text = page.locator("#differences").inner_text()
    assert "1 of 4 trials have no JSON" in text
    assert re.search(r"identity.guest.vcpus\s+differs between repetitions of a case\s+4 \(2\)\s*2 \(1\)", text)
    assert re.search(r"versions.python\s+3.13.0 \(2\)\s*3.11.2 \(1\)", text)
    assert re.search(r"guest.kernel\s+6.1.0-18-cloud-amd64", page.locator("#common").inner_text())
    page.click("#differences button:has-text('2 (1)')")
    assert column(page, "interface") == ["macvtap"]


def test_what_cannot_be_used_is_named(viewer, campaign, tmp_path):
    shutil.copytree(campaign, tmp_path, dirs_exist_ok=True)
    half = min(tmp_path.glob("trial_*.json"))
    half.write_text(half.read_text()[:100])
    (tmp_path / "output_something-else_rep0.log").write_text("")
    render(tmp_path, tmp_path / "report.html")
    page = viewer.open(tmp_path / "report.html")
    page.click("#complaints summary")
    assert half.name in page.locator("#complaints").inner_text()
    assert "output_something-else_rep0.log" in page.locator("#complaints").inner_text()
    page.click("#summary button:has-text('incomplete')")
    page.locator("#trials tbody tr").first.click()
    expect(page.locator("#detail .JSON pre")).to_have_text(half.read_text())


# -- hostile text, size ------------------------------------------------------------------------------------


def test_hostile_text_stays_text(viewer, tmp_path, monkeypatch):
    monkeypatch.setattr(sample, "output", lambda *arguments, **options: REAL_OUTPUT(*arguments, **options) + HOSTILE)
    fill_small(tmp_path, repetitions=1)
    for record in tmp_path.glob("trial_*.json"):
        record.write_text(record.read_text().replace('"3.11.2"', json.dumps(HOSTILE)))
    results = read_results(tmp_path)
    trials = [
        dataclasses.replace(trial, reason=HOSTILE, started=HOSTILE, parameters={**trial.parameters, "qemu": f"{HOSTILE}{number}"})
        for number, trial in enumerate(results.trials)
    ]
    render(tmp_path, tmp_path / "report.html", trials, command=HOSTILE)
    page = viewer.open(tmp_path / "report.html")
    page.mouse.move(*middle(points(page, "latency").first))
    page.locator("#chart-latency .hoverlayer .hovertext").wait_for()
    assert "<b>bold</b>" in page.locator("#chart-latency .hoverlayer .hovertext").text_content()
    page.locator("#trials tbody tr").first.click()
    page.locator("#detail .JSON pre").wait_for()
    assert HOSTILE in page.locator("#detail .log pre").inner_text()
    for place in ("#about", "#legend", "#choices", "#trials", "#detail", "#common"):
        assert HOSTILE in page.locator(place).text_content(), place
    assert page.evaluate("window.hacked") is None
    assert page.locator("img").count() == 0


def test_the_same_input_gives_the_same_page(campaign, report):
    assert render(campaign, campaign / "again.html") == report.read_bytes()


@pytest.mark.all
def test_2000_trials_are_under_10_mb_quick_to_open_and_all_reachable(viewer, tmp_path, monkeypatch):
    monkeypatch.setattr(sample, "output", realistic_output)
    count = example_campaign.fill_campaign(tmp_path, repetitions=11, samples=500)
    content = render(tmp_path, tmp_path / "report.html")
    assert count > 2000 and len(content) < 10_000_000
    assert '"shortened":0' in content.decode()
    page = viewer.open(tmp_path / "report.html")
    timing = page.evaluate("performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd")
    assert timing < 5000
    assert page.locator("#count").inner_text().startswith(f"{count} of {count} trials, the first 200")
    page.locator("#table-box").evaluate("box => box.scrollTo(0, box.scrollHeight)")
    expect(page.locator("#trials tbody tr")).to_have_count(400)


def test_a_browser_that_cannot_unpack_shows_the_table_and_where_the_files_are(viewer, report, campaign):
    viewer.page.add_init_script("delete window.DecompressionStream")
    viewer.page.goto(report.as_uri())
    expect(viewer.page.locator("#charts")).to_contain_text("It needs to be of 2023 or newer")
    assert len(rows(viewer.page)) == 48
    viewer.page.locator("#trials tbody tr").first.click()
    expect(viewer.page.locator("#detail .log pre")).to_contain_text("use the files beside it")
    assert all((campaign / link.get_attribute("href")).is_file() for link in viewer.page.locator("#detail a").all())


def opened_logs(content: bytes) -> list[str]:
    packed = re.findall(r'<script type="text/plain" id="logs-\d+">([^<]*)</script>', content.decode())
    return [log for chunk in packed for log in json.loads(gzip.decompress(base64.b64decode(chunk)))]


@pytest.mark.default
def test_logs_that_would_make_the_page_too_large_lose_their_middle_and_it_says_so(tmp_path):
    fill_small(tmp_path)
    noise = random.Random(1)
    long, *short = sorted(tmp_path.glob("output_*.log"))
    long.write_text("begins\n" + "".join(f"{noise.random()}\n" for _ in range(300_000)) + "ends\n")
    content = render(tmp_path, tmp_path / "report.html", page_bytes=3_500_000)
    assert len(content) < 3_500_000 and '"shortened":1' in content.decode()
    logs = {len(log): log for log in opened_logs(content)}
    cut = logs[max(logs)]
    assert cut.startswith("begins\n") and cut.endswith("ends\n") and len(cut) > 300_000
    left_out = int(re.search(r"\[\.\.\. (\d+) characters left out here; all of it is in " + re.escape(long.name), cut)[1])
    assert len(re.sub(r"\n\[\.\.\. .* \.\.\.\]\n", "", cut)) + left_out == long.stat().st_size
    assert {path.read_text() for path in short} < set(opened_logs(content))


# -- the command -------------------------------------------------------------------------------------------


def test_the_command_writes_the_page_into_the_directory_or_where_it_is_told(campaign, tmp_path, capsys):
    other = tmp_path / "other.html"
    source, options = f"{campaign}:interface=bridge", ["--select", "rate=10..50", "--accept", "disturbed"]
    assert main(["report", source, *options, "-o", str(other)]) == 0
    assert f"{other}: 12 trials" in capsys.readouterr().out
    index = json.loads(re.search(r'id="data">(.*?)</script>', other.read_text())[1])
    assert index["command"] == f"autotest report {campaign}:interface=bridge --select rate=10..50 --accept disturbed"
    assert {one["used"] for one in index["cases"]} == {3}
    assert {one["folder"] for one in index["cases"]} == {f"{os.path.relpath(campaign, tmp_path)}/"}
    assert main(["report", str(campaign)]) == 0
    assert (campaign / "report.html").is_file()


def test_two_directories_are_told_apart_and_a_trial_named_twice_is_there_once(campaign, tmp_path):
    fill_small(tmp_path, interfaces=["bridge", "macvtap"], vhosts=[False, True], rates=[10], repetitions=1)
    mine, other = read_results(tmp_path), read_results(campaign)
    content = render_page([(mine, mine.trials), (other, other.trials), (mine, mine.trials)], beside=tmp_path, made=MADE)
    index = json.loads(re.search(r'id="data">(.*?)</script>', content.decode())[1])
    assert len(index["trials"]) == 48 + 4 and index["keys"][0] == "directory"
    assert len(index["setUps"]) == 8 and index["setUps"][0].startswith(str(tmp_path))


def test_what_cannot_be_a_report_is_refused_before_anything_is_read(campaign, tmp_path, capsys):
    log = next(campaign.glob("output_*.log"))
    before = log.read_bytes()
    assert main(["report", str(campaign), "-o", str(log)]) == 2
    assert main(["report", str(campaign), "-o", str(tmp_path / "none" / "a.html")]) == 2
    assert log.read_bytes() == before
    errors = capsys.readouterr().err
    assert "use a name that ends in .html" in errors and f"no directory {tmp_path / 'none'}" in errors
    assert main(["report", str(tmp_path)]) == 2
    assert "no load latency trials" in capsys.readouterr().err and list(tmp_path.iterdir()) == []
    fill_small(tmp_path, interfaces=["bridge", "macvtap"], vhosts=[False, True], rates=[10], repetitions=1)
    assert main(["report", str(tmp_path), str(campaign)]) == 2
    assert "name the report's file, with -o" in capsys.readouterr().err
