"""Configuration files that appear together or not at all, and never in the place of others."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from autotest.errors import UsageError
from autotest.remote.transport import temporary_beside


def require_absent(folder: Path, names: Iterable[str]) -> None:
    """Raises UsageError, which names them, where there are files of these names, or the folder is none."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"-o {folder}: is not a folder")
    if there := [str(folder / name) for name in names if os.path.lexists(folder / name)]:
        exists = "exists already, and is" if len(there) == 1 else "exist already, and are"
        raise UsageError(f"{' and '.join(there)} {exists} not overwritten: use -o DIR for another folder, or move them away")


def write_new(folder: Path, contents: Mapping[str, str]) -> None:
    """Write files that are not there yet, by name, into a folder, which is made where it is missing: all of them, or none.

    Raises:
        UsageError: one of them is there.
        OSError: one cannot be written; it names the file.
    """
    require_absent(folder, contents)
    folder.mkdir(parents=True, exist_ok=True)
    temporary = {name: Path(temporary_beside(str(folder / name))) for name in contents}
    made: list[Path] = []
    try:
        for name, content in contents.items():
            with open(temporary[name], "x", encoding="utf-8") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        for name in contents:
            _appear(temporary[name], folder / name)
            made.append(folder / name)
    except BaseException:
        for path in made:
            path.unlink()
        raise
    finally:
        for path in temporary.values():
            with suppress(FileNotFoundError):
                path.unlink()


def _appear(temporary: Path, path: Path) -> None:
    """Under its own name, but not over another file: that is what link(2) does, and rename(2) does not."""
    try:
        os.link(temporary, path)
    except FileExistsError:  # since we looked
        require_absent(path.parent, (path.name,))
        raise
