"""The HTML report of several guests: their tables and the chart along their number, in a browser."""

import json
import re

import example
import example_guests
import pytest
from playwright.sync_api import expect
from viewed import Viewer, column, middle, render

from autotest.report.metrics import METRICS
from autotest.report.trials import read_results

SMALL = {"rates": [50, 500], "repetitions": 2, "samples": 120}


@pytest.fixture(scope="module")
def campaign(tmp_path_factory):
    """Bridge with 1, 2 and 4 guests, of 60 bytes and imix, macvtap with 2; at 500 kpps too much."""
    directory = tmp_path_factory.mktemp("campaign")
    example_guests.fill_guests(directory, interfaces=["bridge"], sizes=[60, "imix"], **SMALL)
    example_guests.fill_guests(directory, interfaces=["macvtap"], guests=[2], **SMALL)
    example_guests.add(directory, {"interface": "macvtap", "guests": 4, "rate": 50, "size": 60}, 0, missing={2: "no SSH"})
    return directory


@pytest.fixture(scope="module")
def opened(browser, campaign):
    render(campaign, campaign / "report.html")
    page = browser.new_page(viewport={"width": 1400, "height": 1000})
    viewer = Viewer(page)
    viewer.open(campaign / "report.html")
    yield viewer
    page.close()


@pytest.fixture
def page(opened):
    yield opened.page
    opened.page.locator("#metric").select_option("p50")
    if opened.page.locator("#clear").count():
        opened.page.click("#clear")
    opened.page.evaluate("scrollTo(0, 0)")
    opened.check()


def drawn(page):
    """The traces of the chart along the number of guests: their names, axes, x and y."""
    return page.evaluate(
        "document.getElementById('chart-guests').data.map(one => ({name: one.name, y: one.y, x: one.x, axis: one.yaxis ?? 'y',"
        " mode: one.mode, fill: one.fill, symbol: one.marker?.symbol, legend: one.showlegend}))"
    )


def case_of(campaign, page, **wanted):
    """The test case of the page's index."""
    index = json.loads(page.locator("#data").text_content())
    return next(one for one in index["cases"] if wanted.items() <= one["parameters"].items())


def table(page, set_up):
    """Rows of a set-up's table, as texts."""
    details = page.locator("#guest-tables details", has=page.get_by_text(set_up, exact=True))
    if not details.evaluate("one => one.open"):
        details.locator("summary").click()
    details.locator("tbody tr").first.wait_for()  # they are made when the table is opened
    return details.locator("tbody tr").evaluate_all("all => all.map(row => [...row.cells].map(cell => cell.innerText))")


def test_each_set_up_with_several_guests_has_a_table_of_its_guests(page, campaign):
    set_ups = page.locator("#guest-tables summary").all_inner_texts()
    assert sorted(set_ups) == ["bridge, 2 guests, 60 B", "bridge, 2 guests, imix", "bridge, 4 guests, 60 B",
                               "bridge, 4 guests, imix", "macvtap, 2 guests, 60 B"]  # fmt: skip
    rows = table(page, "bridge, 4 guests, 60 B")
    assert [row[0].split()[0] for row in rows] == ["50", "1", "2", "3", "4", "500", "1", "2", "3", "4"]
    one = case_of(campaign, page, guests=4, rate=500, size=60)
    trials = [trial for trial in read_results(campaign).trials if trial.name.infix == one["infix"]]
    for row, guests in zip(rows[6:], zip(*(trial.figures.guests for trial in trials), strict=True), strict=True):
        assert row[1] == str(round(sum(guest.sent for guest in guests) / 2))
        assert row[2] == str(round(sum(guest.received for guest in guests) / 2))
        for cell, name in zip(row[3:], ("achieved", "loss", "p50", "p99"), strict=True):
            mean = sum(METRICS[name].of(guest) for guest in guests) / 2
            assert float(cell) == pytest.approx(mean, rel=0.01)


def test_fairness_and_spreads_stand_over_the_guests_with_their_intervals(page, campaign):
    one = case_of(campaign, page, guests=2, rate=500, size="imix")
    head = table(page, "bridge, 2 guests, imix")[3][0]
    fairness, spreads = r"fairness 0\.9\d\d \(0\.\d+ to \d\.\d+\)", r"loss spread [\d.]+ % \(.*\)\s*median spread \d+ µs \(.*\)"
    assert re.search(rf"^500 kpps\s*{fairness}\s*{spreads}$", head)
    shown = re.search(r"loss spread ([\d.]+) % \(([\d.]+) to ([\d.]+)\)", head)
    assert list(map(float, shown.groups())) == pytest.approx(one["figures"]["loss_spread"][:3], rel=0.01)
    assert "under-sent" in table(page, "macvtap, 2 guests, 60 B")[3][0]


def test_the_chart_along_the_number_of_guests_has_lines_bands_and_a_point_for_each_guest(page, campaign):
    traces = drawn(page)
    labels = ["60 B, 50 kpps", "60 B, 500 kpps", "imix, 50 kpps", "imix, 500 kpps"]
    assert [trace["name"] for trace in traces if trace["legend"]] == labels
    one = case_of(campaign, page, guests=4, rate=500, size=60)
    for axis, metric in (("y", "p50"), ("y2", "loss")):
        mine = [trace for trace in traces if trace["axis"] == axis]
        (main,) = [trace for trace in mine if trace["name"] == labels[1]]
        assert main["x"] == [1, 2, 4] and main["y"][2] == one["figures"][metric][0]
        low, high, points, _ = mine[mine.index(main) - 3 : mine.index(main) + 1]
        assert (low["y"][2], high["y"][2]) == (min(one["guests"][metric]), max(one["guests"][metric]))
        assert low["y"][0] == high["y"][0] == main["y"][0] and high["fill"] == "tonexty"
        assert points["x"] == [2] * 2 + [4] * 4 and points["y"][2:] == one["guests"][metric]


def test_filters_hold_for_the_tables_and_the_chart_along_the_number_of_guests(page):
    page.get_by_label("size", exact=True).select_option("imix")
    page.get_by_label("rate", exact=True).select_option("500")
    expect(page.locator("#guest-tables summary")).to_have_text(["bridge, 2 guests, imix", "bridge, 4 guests, imix"])
    page.wait_for_function("document.getElementById('chart-guests').data.filter(one => one.showlegend).length === 1")
    page.get_by_label("guests", exact=True).select_option("1")
    expect(page.locator("#guests")).to_be_hidden()
    page.click("#clear")
    page.get_by_label("interface").select_option("macvtap")
    expect(page.locator("#chart-guests")).to_be_hidden()


def test_the_chosen_latency_is_that_of_the_chart_too_and_a_spread_is_none_of_a_guest(page, campaign):
    one = case_of(campaign, page, guests=4, rate=500, size=60)
    for chosen, shown in (("p99", "p99"), ("p50_spread", "p50")):
        page.locator("#metric").select_option(chosen)
        label = METRICS[shown].label
        expect(page.locator("#chart-guests .gtitle")).to_contain_text(f"{label} and loss over the number of guests")
        (main,) = [trace for trace in drawn(page) if trace["name"] == "60 B, 500 kpps" and trace["axis"] == "y"]
        assert main["y"][2] == one["figures"][shown][0]


def test_hovering_over_a_guest_tells_which_one_and_its_figure(page, campaign):
    page.locator("#chart-guests").scroll_into_view_if_needed()
    points = page.locator("#chart-guests .scatterlayer .trace path.point")
    smallest = min(points.all(), key=lambda one: one.bounding_box()["width"])
    page.mouse.move(*middle(smallest))
    shown = page.locator("#chart-guests .hoverlayer .hovertext")
    shown.wait_for()
    figure = r"guest [1-4]\s*(median latency|loss): [\d.]+ (µs|%)$"
    assert re.search(rf"\d guests, (60 B|imix), \d+ kpps\s*{figure}", shown.text_content())


def test_the_trials_have_columns_of_what_is_between_their_guests_and_of_mixes(page):
    assert set(column(page, "size")) == {"60", "imix"} and set(column(page, "guests")) == {"1", "2", "4"}
    fairness = dict(zip(zip(column(page, "guests"), column(page, "rate"), strict=True), column(page, "fairness"), strict=True))
    assert fairness["1", "500"] == "–" and fairness["2", "50"] == "1" and re.fullmatch(r"0\.9\d\d", fairness["4", "500"])
    sizes = dict(zip(column(page, "size"), column(page, "mean size"), strict=True))
    assert sizes == {"60": "60.0", "imix": "358"}


def test_trials_with_missing_guests_are_shown_with_the_reason(page):
    page.click("#summary button:has-text('missing-guests')")
    assert column(page, "verdict") == ["✕ missing-guests"]
    assert column(page, "reason") == ["1 of 4 guests were not there: guest2: no SSH"]
    assert page.locator("#guests").is_hidden()  # they are part of no figures


def test_nothing_speaks_of_guests_where_there_is_one(viewer, tmp_path):
    example.fill(tmp_path)
    render(tmp_path, tmp_path / "report.html")
    page = viewer.open(tmp_path / "report.html")
    assert page.locator("#guests").is_hidden() and page.locator("#chart-guests").is_hidden()
    assert page.locator("#metric option[value=p50_spread]").count() == 0
    assert not {"guests", "fairness", "mean size"} & set(page.locator("#trials th").all_inner_texts())


def test_of_many_guests_the_first_are_listed_and_the_range_is_of_all(viewer, tmp_path):
    for number in (1, 40):
        example_guests.add(tmp_path, {"interface": "bridge", "guests": number, "rate": 500, "size": 60}, 0, samples=120)
    render(tmp_path, tmp_path / "report.html")
    page = viewer.open(tmp_path / "report.html")
    rows = table(page, "40 guests")
    assert len(rows) == 1 + 32 + 1 and rows[-1] == ["and 8 more guests: autotest export --per-guest has them"]
    trial = next(trial for trial in read_results(tmp_path).trials if trial.figures.guests)
    losses = [100 * guest.loss for guest in trial.figures.guests]
    low, high, points = [trace["y"] for trace in drawn(page) if trace["axis"] == "y2"][:3]
    assert points == []  # the first ones alone would look like all
    assert (low[1], high[1]) == (pytest.approx(min(losses)), pytest.approx(max(losses)))
