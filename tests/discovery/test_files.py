"""Both files are written or none, and never in the place of others."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from autotest.discovery import files
from autotest.discovery.files import write_new
from autotest.errors import UsageError

CONTENTS = {"autotest.conf": "[host]\n", "tests.conf": "[test]\n"}


def test_both_appear_in_a_folder_that_is_made(tmp_path: Path) -> None:
    folder = tmp_path / "new/er"
    write_new(folder, CONTENTS)
    assert {path.name: path.read_text() for path in folder.iterdir()} == CONTENTS


@pytest.mark.parametrize("there", [["tests.conf"], ["autotest.conf"], ["autotest.conf", "tests.conf"]])
def test_files_that_are_there_are_named_and_stay(tmp_path: Path, there: list[str]) -> None:
    for name in there:
        (tmp_path / name).write_text("mine\n")
    with pytest.raises(UsageError, match=" and ".join(str(tmp_path / name) for name in there) + " exist.*-o DIR"):
        write_new(tmp_path, CONTENTS)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == dict.fromkeys(there, "mine\n")


def test_a_link_that_leads_nowhere_is_no_free_place(tmp_path: Path) -> None:
    (tmp_path / "tests.conf").symlink_to("nowhere")
    with pytest.raises(UsageError, match="tests.conf exists"):
        write_new(tmp_path, CONTENTS)


def test_a_file_that_appears_meanwhile_is_not_overwritten_and_the_other_one_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.link

    def link(source: Path, target: Path) -> None:
        if target.name == "tests.conf":
            target.write_text("somebody else's\n")
        real(source, target)

    monkeypatch.setattr(files.os, "link", link)
    with pytest.raises(UsageError, match=r"tests\.conf exists"):
        write_new(tmp_path, CONTENTS)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"tests.conf": "somebody else's\n"}


def test_an_interruption_between_the_two_leaves_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.link

    def link(source: Path, target: Path) -> None:
        if target.name == "tests.conf":
            raise KeyboardInterrupt
        real(source, target)

    monkeypatch.setattr(files.os, "link", link)
    with pytest.raises(KeyboardInterrupt):
        write_new(tmp_path, CONTENTS)
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="is not a folder"):
        write_new(tmp_path / "file", CONTENTS)
