"""HTML reports in a browser: pages that note what they say and ask for, and what is in them."""

from datetime import UTC, datetime
from pathlib import Path

from playwright.sync_api import Page

from autotest.report.page import render_page
from autotest.report.trials import read_results

CHROMIUM = "/usr/bin/chromium"
MADE = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def render(directory: Path, target: Path, trials=None, **options) -> bytes:
    results = read_results(directory)
    content = render_page([(results, trials or results.trials)], beside=target.parent, made=MADE, **options)
    target.write_bytes(content)
    return content


class Viewer:
    """A browser page that notes what it says and what it asks for."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.said: list[str] = []
        self.asked: list[str] = []
        page.on("console", lambda message: self.said.append(message.text))
        page.on("pageerror", lambda error: self.said.append(str(error)))
        page.on("request", lambda request: self.asked.append(request.url))

    def open(self, path: Path) -> Page:
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("#chart-cdf .scatterlayer path.js-line")
        return self.page

    def check(self) -> None:
        assert not self.said
        assert [url for url in self.asked if not url.startswith(("file:", "data:", "blob:"))] == []
        assert sum(url.startswith("file:") for url in self.asked) == 1


def rows(page: Page) -> list[list[str]]:
    return page.locator("#trials tbody tr").evaluate_all("all => all.map(row => [...row.cells].map(cell => cell.innerText))")


def column(page: Page, title: str) -> list[str]:
    titles = page.locator("#trials th button").evaluate_all("all => all.map(one => one.firstChild.textContent)")
    return [row[titles.index(title)] for row in rows(page)]


def points(page: Page, chart: str):
    return page.locator(f"#chart-{chart} .scatterlayer path.point")


def middle(locator) -> tuple[float, float]:
    locator.scroll_into_view_if_needed()
    box = locator.bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def chips(page: Page) -> str:
    return page.locator("#chips").inner_text()
