"""The end-to-end tests' own lab, beside any other on this machine, and the check that nothing is left behind."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from traces import NAME, TEMPORARY, left_since, traces

PROJECT = Path(__file__).resolve().parents[2]
AUTOTEST = [sys.executable, "-m", "autotest"]


def interruptible() -> None:
    """What runs in the background of a shell, as CI may, inherits that SIGINT is ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@dataclass(frozen=True)
class LabCommand:
    """autotest on one configuration of the lab.

    Attributes:
        config: its file.
        before: the traces of before the test.
        program: autotest itself.
    """

    config: Path
    before: frozenset[str] = frozenset()
    program: tuple[str, ...] = tuple(AUTOTEST)

    def start(self, *arguments: str, **options) -> subprocess.Popen:
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        return subprocess.Popen(
            [*self.program, "-c", str(self.config), *arguments],
            text=True,
            env=os.environ | {"NO_COLOR": "1", "AUTOTEST_TEST_LAB": NAME, "TMPDIR": str(TEMPORARY)},
            preexec_fn=interruptible,
            **(pipes | options),
        )

    def run(self, *arguments: str, code: int = 0, input: str = "", timeout: float = 240) -> str:
        """Run to the end; returns everything printed, the log last."""
        process = self.start(*arguments)
        try:
            stdout, stderr = process.communicate(input, timeout)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        assert process.returncode == code, f"exit code {process.returncode}\n{stdout}\n{stderr}"
        return stdout + stderr


def own_lab(source: Path, target: Path, name: str = NAME) -> Path:
    """The configuration with names of its own, so that a user's lab is left alone."""
    text = source.read_text()
    for old, new in (
        ("/run/autotest-lab", f"/run/{name}-lab"),
        ("autotest-ssh", f"{name}-ssh"),
        ("autotest-iommu", f"{name}-iommu"),
        ("autotest-host", f"{name}-host"),
        ("autotest-loadgen", f"{name}-loadgen"),
        ("tmux_socket = autotest\n", f"tmux_socket = {name}\n"),
    ):
        text = text.replace(old, new)
    target.write_text(text)
    return target


def lab_command(config: Path, program: tuple[str, ...] = tuple(AUTOTEST)) -> Iterator[LabCommand]:
    TEMPORARY.mkdir(exist_ok=True)
    before = frozenset(traces())
    command = LabCommand(config, before, program)
    try:
        yield command
    finally:
        try:
            command.run("lab", "down")
            left = left_since(before)
        finally:
            shutil.rmtree(TEMPORARY)
    assert not left, f"left behind: {left}"


@dataclass(frozen=True)
class CampaignFile:
    """A tests.conf, and where its results go."""

    file: Path
    results: Path

    def write(self, **lists: str) -> "CampaignFile":
        values = {
            "machines": "pcvm",
            "interfaces": "bridge",
            "reflectors": "xdp",
            "rates": "5",
            "sizes": "60",
            "runtimes": "1",
            "repetitions": "1",
            "outputdir": str(self.results),
        } | lists
        self.file.write_text("[test]\n" + "".join(f"{key} = {value}\n" for key, value in values.items()))
        return self

    def trials(self) -> list[Path]:
        return sorted(self.results.glob("trial_*.json"))
