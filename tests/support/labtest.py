"""The end-to-end tests' own lab, beside any other on this machine, and the check that nothing is left behind."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
AUTOTEST = [sys.executable, "-m", "autotest"]


def interruptible() -> None:
    """What runs in the background of a shell, as CI may, inherits that SIGINT is ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@dataclass(frozen=True)
class LabCommand:
    """autotest on one configuration of the lab."""

    config: Path

    def start(self, *arguments: str, **options) -> subprocess.Popen:
        return subprocess.Popen(
            [*AUTOTEST, "-c", str(self.config), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"NO_COLOR": "1"},
            preexec_fn=interruptible,
            **options,
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


def own_lab(source: Path, target: Path, name: str) -> Path:
    """The configuration with names of its own, so that a user's lab is left alone."""
    text = source.read_text()
    for old, new in (
        ("/run/autotest-lab", f"/run/{name}-lab"),
        ("autotest-ssh", f"{name}-ssh"),
        ("autotest-host", f"{name}-host"),
        ("autotest-loadgen", f"{name}-loadgen"),
        ("tmux_socket = autotest\n", f"tmux_socket = {name}\n"),
        ("moonprogs_dir = moonprogs\n", f"moonprogs_dir = {PROJECT}/moonprogs\n"),
        ("moonprogs_dir = ../moonprogs\n", f"moonprogs_dir = {PROJECT}/moonprogs\n"),
    ):
        text = text.replace(old, new)
    target.write_text(text)
    return target


def lab_command(config: Path) -> Iterator[LabCommand]:
    before = traces()
    command = LabCommand(config)
    try:
        yield command
    finally:
        command.run("lab", "down")
        left = traces() - before
    assert not left, f"left behind: {sorted(left)}"


def traces() -> set[str]:
    """What the lab could leave on this machine: namespaces, links, mounts, processes, sessions, temporary files."""
    found = {f"namespace {name}" for name in _names(Path("/run/netns")) if "at-test" in name or "autotest" in name}
    found |= {f"link {name}" for name in _names(Path("/sys/class/net"))}
    found |= {f"temporary {name}" for name in _names(Path("/tmp")) if name.startswith("autotest-")}
    found |= {f"directory {name}" for name in _names(Path("/run")) if name.startswith("at-test")}
    found |= {f"mount {line.split()[1]}" for line in Path("/proc/mounts").read_text().splitlines() if "at-test" in line}
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if "at-test" in command and "pytest" not in command:
                found.add(f"process {command[:150]}")
    return found


def _names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()] if folder.exists() else []


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
