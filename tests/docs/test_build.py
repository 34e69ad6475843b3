"""The pages are built without a warning, and a link to nothing is one."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from doc_pages import PAGES, PROJECT

from autotest.cli.arguments import build_parser

pytestmark = pytest.mark.default

SPHINX = [sys.executable, "-m", "sphinx", "--fail-on-warning", "--keep-going", "--quiet"]


def build(source: Path, target: Path) -> subprocess.CompletedProcess[str]:
    command = [*SPHINX, "--builder", "html", str(source), str(target)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=PROJECT, check=False)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("built")
    done = build(PROJECT / "docs", target)
    assert done.returncode == 0, done.stderr
    return target


def test_every_page_is_built_and_stands_in_the_contents(built: Path) -> None:
    contents = (built / "index.html").read_text()
    pages = [page.stem for page in PAGES if page.parent.name == "docs"]
    assert len(pages) > 20
    for page in pages:
        assert (built / f"{page}.html").is_file()
        assert page == "index" or f'class="reference internal" href="{page}.html"' in contents, page


def test_the_help_of_each_command_is_shown(built: Path) -> None:
    page = re.sub(r"<[^>]+>", "", (built / "commands.html").read_text())
    names = re.findall(r"^    ([a-z][a-z-]+)", build_parser().format_help(), re.MULTILINE)
    assert len(names) > 15
    for name in names:
        assert f"usage: autotest {name} " in page


@pytest.mark.parametrize(
    "link",
    [
        "[a page](nowhere.md)",
        "[a heading](verdicts.md#no-such-heading)",
        "[a heading of this page](#no-such-heading)",
        "[a file](../configs/no-such.conf)",
        "![a picture](no-such.png)",
    ],
)
def test_a_link_to_nothing_is_an_error(tmp_path: Path, link: str) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    for name in ("conf.py", "verdicts.md"):
        shutil.copy(PROJECT / "docs" / name, docs)
    shutil.copytree(PROJECT / "docs" / "static", docs / "static")
    (docs / "verdicts.md").write_text("# Verdicts\n\n## Each in short\n\nText.\n")
    (docs / "index.md").write_text("# Index\n\n## Pages\n\n[A](verdicts.md#each-in-short) [B](#pages)\n\n- [C](verdicts.md)\n")
    assert build(docs, tmp_path / "good").returncode == 0
    (docs / "verdicts.md").write_text(f"# Verdicts\n\n## Each in short\n\n{link}\n")
    bad = build(docs, tmp_path / "bad")
    assert bad.returncode != 0 and "WARNING" in bad.stderr, bad.stderr


ADDRESSES = [(page.name, address) for page in PAGES for address in re.findall(r"\bhttps?:[^\s)>\"`']+", page.read_text())]


def test_addresses_of_other_sites_are_well_formed() -> None:
    for page, address in ADDRESSES:
        assert re.fullmatch(r"https://[a-z0-9.-]+\.[a-z]+(?:/[\w./~%?=&#$+-]*)?", address), f"{page}: {address}"
    assert ADDRESSES
