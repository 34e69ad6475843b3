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
