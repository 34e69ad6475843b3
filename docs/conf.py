"""Configuration of Sphinx. `scripts/docs.sh` builds the pages; every warning is an error there.

The pages are plain Markdown that GitHub shows, too. Two things are filled in here: the contents, which are the links of index.md,
and the help of all commands, which the parser itself is asked for.
"""

from __future__ import annotations

import argparse
import os
import re
from pathlib import Path

from sphinx.application import Sphinx

from autotest import __version__
from autotest.cli.arguments import build_parser

project = "autotest"
version = release = __version__
extensions = ["myst_parser"]
myst_heading_anchors = 3  # headings are called as GitHub calls them: links to them work there and here, and are checked
nitpicky = True

html_theme = "furo"
html_title = f"autotest {__version__}"
html_static_path = ["static"]
html_css_files = ["pages.css"]
html_show_copyright = False
html_show_sphinx = False
pygments_style, pygments_dark_style = "default", "native"

_SECTION = re.compile(r"^## (.+)\n(?:(?!^## ).*\n?)*", re.MULTILINE)
_PAGE = re.compile(r"^- \[(.+?)\]\((\w[\w-]*)\.md\)", re.MULTILINE)
_HELP = "<!-- help of all commands -->"


def _with_contents(index: str) -> str:
    """index.md with a table of contents behind it, for the side bar: its sections, and the pages that their lists link to."""
    trees = []
    for section in _SECTION.finditer(index):
        pages = "\n".join(f"{title} <{page}>" for title, page in _PAGE.findall(section[0]))
        trees.append(f"```{{toctree}}\n:hidden:\n:caption: {section[1]}\n\n{pages}\n```\n")
    return "\n".join([index, *trees])


def _help_of_all_commands() -> str:
    """What ``--help`` says, of autotest and of each command, as Markdown."""
    os.environ |= {"COLUMNS": "92", "NO_COLOR": "1"}
    parser = build_parser()
    commands = next(action for action in parser._actions if isinstance(action, argparse._SubParsersAction)).choices
    texts = {"autotest": parser.format_help()}
    texts |= {f"autotest {name}": commands[name].format_help() for name in sorted(commands)}
    return "\n".join(f"### {name}\n\n```text\n{text}```\n" for name, text in texts.items())


def _fill_in(app: Sphinx, page: str, source: list[str]) -> None:
    if page == "index":
        source[0] = _with_contents(source[0])
    if _HELP in source[0]:
        source[0] = source[0].replace(_HELP, _help_of_all_commands())
        for file in (Path(app.confdir).parent / "autotest" / "cli").glob("*.py"):  # where it changes, the page is built anew
            app.env.note_dependency(str(file), docname=page)


def setup(app: Sphinx) -> None:
    app.connect("source-read", _fill_in)
