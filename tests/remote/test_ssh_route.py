"""The way to a destination, as ssh_config(5) tells it."""

from pathlib import Path

import pytest

from autotest.errors import ConnectError
from autotest.remote.ssh_config import route


def _hops(tmp_path: Path, text: str, alias: str) -> list[str]:
    config = tmp_path / "ssh_config"
    config.write_text(text)
    return [hop.alias for hop in route(alias, str(config))]


def test_a_jump_host_may_itself_be_behind_a_jump_host(tmp_path: Path) -> None:
    text = "Host target\n  ProxyJump inner\nHost inner\n  ProxyJump outer\n"
    assert _hops(tmp_path, text, "target") == ["outer", "inner", "target"]


def test_several_jumps_are_passed_in_their_order_and_only_the_first_ones_own_jump_counts(tmp_path: Path) -> None:
    text = "Host target\n  ProxyJump a,b\nHost a\n  ProxyJump outer\nHost b\n  ProxyJump elsewhere\n"
    assert _hops(tmp_path, text, "target") == ["outer", "a", "b", "target"]


def test_a_circle_of_jumps_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConnectError, match="back to itself"):
        _hops(tmp_path, "Host a\n  ProxyJump b\nHost b\n  ProxyJump a\n", "a")
