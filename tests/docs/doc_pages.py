"""The pages of the documentation, as Markdown: their code blocks and inline code, and what of it is a command."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

PROJECT = Path(__file__).resolve().parents[2]
PAGES = sorted([PROJECT / "CONTRIBUTING.md", PROJECT / "README.md", *(PROJECT / "docs").glob("*.md")])

_PROGRAMS = "autotest|pip3?|python3?|pytest|apt(?:-get)?|git|ssh|scp|tmux|mmdebstrap"
COMMAND = re.compile(rf"\s*(?:\$ )?(?:sudo |env |[A-Z_]+=\S* )*(?:(?:\S*/)?(?:{_PROGRAMS})|\S*scripts/\S+\.sh)(?:\s|$)")
"""The beginning of a line that a reader would type."""
_MARK = re.compile(r"<!-- not run: (.+?) -->")
_FILE = re.compile(r"# (\w[\w./-]*\.(?:conf|csv|sh|py))\n")


@dataclass(frozen=True)
class Block:
    """A code block.

    Attributes:
        line: where it begins in the page, from 1.
        info: the language behind the fence; empty for an indented block.
        not_run: why its commands cannot be run by the tests, from the comment before it; empty where they can.
    """

    page: Path
    line: int
    info: str
    text: str
    not_run: str

    @property
    def where(self) -> str:
        return f"{self.page.name}:{self.line}"

    @property
    def file(self) -> str | None:
        """The file that the reader is asked to write this into: its first line is a comment with that name alone."""
        match = _FILE.match(self.text)
        return match[1] if match else None


@dataclass(frozen=True)
class Step:
    """A command line of a ``console`` block, and the lines that are shown below it."""

    command: str
    shown: tuple[str, ...]


def blocks(page: Path) -> list[Block]:
    """All code blocks, in their order."""
    found, mark = [], ""
    for token in MarkdownIt("gfm-like", {"linkify": False}).parse(page.read_text()):
        if token.type == "html_block":
            match = _MARK.fullmatch(token.content.strip())
            mark = match[1] if match else ""
        elif token.type in ("fence", "code_block"):
            assert token.map
            found.append(Block(page, token.map[0] + 1, token.info.strip(), token.content, mark))
            mark = ""
        elif token.level == 0 and token.nesting >= 0:
            mark = ""
    return found


def steps(block: Block) -> list[Step]:
    """The commands of a ``console`` block: lines behind ``$ ``, which go on behind a backslash and in lines behind ``> ``."""
    found: list[tuple[list[str], list[str]]] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            found.append(([line.removeprefix("$ ")], []))
        else:
            assert found, f"{block.where}: begins with no `$ command`"
            command, shown = found[-1]
            if not shown and (line.startswith("> ") or command[-1].endswith("\\")):
                command.append(line.removeprefix("> "))
            else:
                shown.append(line)
    return [Step("\n".join(command), tuple(shown)) for command, shown in found]


def inline_code(page: Path) -> Iterator[tuple[int, str]]:
    """Code within text and tables, with the line of the paragraph or row that it is in."""
    for token in MarkdownIt("gfm-like", {"linkify": False}).parse(page.read_text()):
        if token.type == "inline" and token.map:
            yield from ((token.map[0] + 1, child.content) for child in _code(token))


def _code(token: Token) -> Iterator[Token]:
    for child in token.children or ():
        if child.type == "code_inline":
            yield child
