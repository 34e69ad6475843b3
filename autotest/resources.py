"""The files that come along with autotest and are no Python: MoonGen programs, softmoon, example configurations."""

from __future__ import annotations

from pathlib import Path
from typing import Final

_PACKAGE = Path(__file__).resolve().parent
_INSTALLED = _PACKAGE / "share"

PROJECT_DIRECTORY: Final = _INSTALLED if _INSTALLED.is_dir() else _PACKAGE.parent
"""The folder that holds ``moonprogs``, ``configs``, ``autotest.conf`` and ``tests.conf``: the checkout, or where the wheel has
put them (``pyproject.toml``)."""
