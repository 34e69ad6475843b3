"""Fixtures of the end-to-end tests: the lab, and a tests.conf for it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from labtest import PROJECT, CampaignFile, LabCommand, lab_command, own_lab
from traces import clear


@pytest.fixture(scope="session", autouse=True)
def cleared() -> None:
    """A test run that was ended halfway leaves its lab; the next one begins without it."""
    clear()


@pytest.fixture(scope="session")
def config(tmp_path_factory) -> Path:
    return own_lab(PROJECT / "autotest.conf", tmp_path_factory.mktemp("lab") / "autotest.conf")


@pytest.fixture(scope="session")
def ssh_config(tmp_path_factory) -> Path:
    return own_lab(PROJECT / "configs/lab-ssh.conf", tmp_path_factory.mktemp("ssh") / "autotest.conf")


@pytest.fixture
def lab(config: Path) -> Iterator[LabCommand]:
    """The lab, brought up by whatever command needs it first and taken down after each test, with nothing left."""
    yield from lab_command(config)


@pytest.fixture
def ssh_lab(ssh_config: Path) -> Iterator[LabCommand]:
    yield from lab_command(ssh_config)


@pytest.fixture
def tests(tmp_path: Path) -> Iterator[CampaignFile]:
    campaign = CampaignFile(tmp_path / "tests.conf", tmp_path / "results")
    yield campaign
    assert list(campaign.results.rglob(".autotest-tmp.*")) == []
