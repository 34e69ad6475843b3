"""One autotest at a time works on a testbed."""

import os
from pathlib import Path

import pytest

from autotest.config.testbed import GuestConfig, HostConfig, LoadGenConfig, Testbed
from autotest.errors import TestbedError
from autotest.run.lock import testbed_lock as lock  # under its own name it would look like a test


def _testbed(socket: str) -> Testbed:
    fqdn = "nobody.invalid"
    return Testbed(Path("x"), HostConfig(fqdn, tmux_socket=socket), GuestConfig(fqdn), LoadGenConfig(fqdn))


def test_a_second_one_is_refused_with_who_holds_it_and_may_follow(request: pytest.FixtureRequest) -> None:
    socket = f"lock-test-{os.getpid()}"
    with lock(_testbed(socket)):
        with pytest.raises(TestbedError, match=rf"in use by process {os.getpid()} \(autotest .*\) since \d{{4}}-"):
            with lock(_testbed(socket)):
                raise AssertionError("held twice")
        with lock(_testbed(socket + "-other")):
            pass
    with lock(_testbed(socket)):
        pass
