"""The tests of the documentation find what they are there to find."""

from __future__ import annotations

from pathlib import Path

import pytest
from doc_pages import blocks, steps
from doc_terminal import Terminal, missing_line


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    (tmp_path / "work").mkdir()
    return Terminal(tmp_path / "work", tmp_path / "state", {"WORD": "yes"}, timeout=10)


def test_folder_environment_and_exit_code_last_from_line_to_line(terminal: Terminal) -> None:
    terminal.run("mkdir a && cd a && OTHER='two words'")
    assert terminal.run("pwd; echo $WORD $OTHER") == f"{terminal.folder}\nyes two words\n"
    assert terminal.folder.name == "a"
    assert terminal.run("(exit 3)") == "" and terminal.code == 3
    assert terminal.run("echo $?") == "3\n" and terminal.code == 0


def test_a_line_that_does_not_end_fails(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    terminal = Terminal(tmp_path / "work", tmp_path / "state", {}, timeout=0.2)
    with pytest.raises(AssertionError, match="not done within"):
        terminal.run("echo begun; exec sleep 60")


PRINTED = "12:30:01 INFO 16 trials, 3 done, 13 to do\n\x1b[1mmedian\x1b[0m   104.2 us\nend\n"


@pytest.mark.parametrize(
    "shown",
    [
        ["09:00:00 INFO 8 trials, 0 done, 8 to do"],
        ["...", "median 97 us"],
        ["... 13 to do", "end"],
        ["12:30:01 INFO 16 trials ... to do"],
        [],
    ],
)
def test_what_is_shown_may_differ_in_numbers_and_leave_out(shown: list[str]) -> None:
    assert missing_line(shown, PRINTED) is None


@pytest.mark.parametrize("shown", [["median of us"], ["end", "median 1 us"], ["12:30:01 INFO 16 trials"], ["end", "end"]])
def test_other_words_another_order_and_more_lines_are_found(shown: list[str]) -> None:
    assert missing_line(shown, PRINTED) is not None


PAGE = """\
# A page

<!-- not run: it needs a real NIC -->

```console
$ autotest one \\
    --more
shown
$ cat >file <<END
> text
> END
```

Text between.

```console
$ autotest two
```
"""


def test_commands_marks_and_what_is_shown_are_read_from_a_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    first, second = blocks(page)
    assert first.not_run == "it needs a real NIC" and second.not_run == ""
    assert [(step.command, step.shown) for step in steps(first)] == [
        ("autotest one \\\n    --more", ("shown",)),
        ("cat >file <<END\ntext\nEND", ()),
    ]
    assert [step.command for step in steps(second)] == ["autotest two"]
