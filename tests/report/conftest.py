import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "results"))
sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def cache_home(tmp_path_factory, monkeypatch):
    """The user's cache folder, of this test alone."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    return folder


@pytest.fixture(scope="module")
def browser():  # not for the whole session: its event loop would be in the way of other tests
    from playwright.sync_api import sync_playwright
    from viewed import CHROMIUM

    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=sandbox)
        yield browser
        browser.close()


@pytest.fixture
def viewer(browser):
    from viewed import Viewer

    page = browser.new_page(viewport={"width": 1400, "height": 1000})
    viewer = Viewer(page)
    yield viewer
    page.close()
    viewer.check()
