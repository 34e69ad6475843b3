"""The examples that lie beside the pages: what a page shows is in them, and QEMU makes what the new interface asks for."""

from __future__ import annotations

import runpy
from pathlib import Path

import golden
import pytest
from doc_pages import PAGES, blocks
from labtest import PROJECT
from realised import Bench

EXAMPLES = PROJECT / "docs" / "examples"


@pytest.mark.parametrize("page", [page for page in PAGES if page.name.startswith("add-")], ids=lambda page: page.name)
def test_what_a_page_shows_of_an_example_is_in_it(page: Path) -> None:
    shown = [block for block in blocks(page) if block.info == "py"]
    texts = [example.read_text() for example in EXAMPLES.glob("*.py")]
    assert shown
    for block in shown:
        assert any(block.text in text for text in texts), block.where


def test_qemu_realises_the_interface_of_the_example(shared_netns: str, tmp_path: Path) -> None:
    kind = runpy.run_path(str(EXAMPLES / "pcnet.py"))["KIND"]
    bench = Bench(shared_netns, tmp_path, golden.FILES)
    (line,) = golden.lines_of(kind)
    made = bench.realise("qemu-system-x86_64", line.options)
    assert made.refusal is None
    assert [part for part in made.parts if part["type"] == "pcnet" and part["realized"]]
