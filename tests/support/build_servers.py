"""What GitHub and GitLab do with this repository's nightly jobs, so far as these jobs use it: a fresh checkout for each run, caches
that outlast it, and then the steps literally as they stand in the YAML files, with the variables that a runner sets."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from glob import glob
from hashlib import sha256
from pathlib import Path
from typing import Any

import yaml

from autotest.lab.lab import image_cache

PROJECT = Path(__file__).resolve().parents[2]
_IN_A_CHECKOUT = ("autotest", "autotest.conf", "configs", "moonprogs", "pyproject.toml", "scripts")


def check_out(target: Path, autotest: str) -> Path:
    """A copy of what of this checkout is run, in which everything is installed already; ``autotest`` is the script that stands for the program."""
    for name in _IN_A_CHECKOUT:
        if (PROJECT / name).is_dir():
            shutil.copytree(PROJECT / name, target / name, ignore=shutil.ignore_patterns("__pycache__"), symlinks=True)
        else:
            shutil.copy(PROJECT / name, target / name)
    program = target / ".venv/bin/autotest"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\nexport PYTHONPATH={shlex.quote(str(target))}\n{autotest}\n")
    program.chmod(0o755)
    wanted = sha256((target / "pyproject.toml").read_bytes()).hexdigest()
    (target / ".venv/.installed-for").write_text(f"{wanted}\n")  # as scripts/lib.sh notes it
    return target


@dataclass
class Ran:
    """What came out of one run.

    Attributes:
        code: the exit code of the job's first step that failed, else 0.
        steps: the exit code of each step that was run, by its script.
        output: everything that was printed.
        checkout: where it ran.
        artifacts: where what it published is.
        summary: what its page shows, in Markdown.
    """

    code: int = 0
    steps: dict[str, int] = field(default_factory=dict)
    output: str = ""
    checkout: Path = Path()
    artifacts: Path = Path()
    summary: str = ""

    def published(self, name: str) -> Path:
        """The one file of that name among the artifacts."""
        [found] = self.artifacts.rglob(name)
        return found


@dataclass
class BuildServer:
    """A repository's server with its caches and artifacts.

    Attributes:
        folder: for all of it.
        autotest: see :func:`check_out`.
        variables: those that the user of the job sets.
        files: what the user has in the repository besides, by path.
    """

    folder: Path
    autotest: str
    variables: dict[str, str]
    files: dict[str, str] = field(default_factory=dict)
    runs: int = 0

    def run(self, night: str, accept: bool = False) -> Ran:
        """Run the job for a night, once more where the night's name is not new; by hand with ``accept``."""
        self.runs += 1
        ran = Ran(
            checkout=check_out(self.folder / f"run-{self.runs}", self.autotest), artifacts=self.folder / f"artifacts-{self.runs}"
        )
        ran.artifacts.mkdir()
        for path, text in self.files.items():
            (ran.checkout / path).parent.mkdir(exist_ok=True)
            (ran.checkout / path).write_text(text)
        self.job(night, ran, accept)
        return ran

    def job(self, night: str, ran: Ran, accept: bool) -> None:
        raise NotImplementedError

    def _shell(self, ran: Ran, script: str, environment: dict[str, str]) -> None:
        ended = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
            cwd=ran.checkout,
            env=os.environ | {"CI": "true", "NO_COLOR": "1"} | environment | self.variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
            check=False,
        )
        ran.output += ended.stdout
        ran.steps[script] = ended.returncode
        ran.code = ran.code or ended.returncode

    def _save(self, ran: Ran, key: str, path: str) -> None:
        target = self.folder / "caches" / key
        if target.exists():
            shutil.rmtree(target)
        if (ran.checkout / path).exists():
            shutil.copytree(ran.checkout / path, target, symlinks=True)

    def _restore(self, ran: Ran, key: str, path: str) -> None:
        if (self.folder / "caches" / key).exists():
            shutil.copytree(self.folder / "caches" / key, ran.checkout / path, symlinks=True)

    @staticmethod
    def _publish(ran: Ran, path: str) -> None:
        for found in map(Path, glob(str(ran.checkout / path))):
            target = ran.artifacts / found.relative_to(ran.checkout)
            if found.is_dir():
                shutil.copytree(found, target, dirs_exist_ok=True)
            else:
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(found, target)


class GitHub(BuildServer):
    """``.github/workflows/nightly.yml``. A cache's key is written once; the newest one that begins with a restore key is taken."""

    def job(self, night: str, ran: Ran, accept: bool) -> None:
        [job] = yaml.safe_load((PROJECT / ".github/workflows/nightly.yml").read_text())["jobs"].values()
        context = {"github.run_id": night, "github.run_attempt": str(self.runs)}
        page = self.folder / "step-summary.md"
        page.write_text("")
        environment = {name: _evaluated(str(value), context) for name, value in job["env"].items()}
        environment |= {"GITHUB_ACTIONS": "true", "GITHUB_WORKSPACE": str(ran.checkout), "GITHUB_STEP_SUMMARY": str(page)}
        for step in job["steps"]:
            if not self._is_due(step.get("if", "success()"), ran, accept):
                continue
            if "run" in step:
                self._shell(ran, step["run"], environment)
            else:
                options = {name: _evaluated(str(value), context) for name, value in step.get("with", {}).items()}
                self._use(step["uses"].partition("@")[0], ran, options)
        ran.summary = page.read_text()

    @staticmethod
    def _is_due(condition: str, ran: Ran, accept: bool) -> bool:
        """Every condition but always() holds only where nothing failed before."""
        return {"always()": True, "success()": ran.code == 0, "inputs.accept": ran.code == 0 and accept}[condition]

    def _use(self, action: str, ran: Ran, options: Mapping[str, str]) -> None:
        if action == "actions/cache/save":
            assert not (self.folder / "caches" / options["key"]).exists(), "GitHub keeps the older one"
            self._save(ran, options["key"], options["path"])
        elif action == "actions/cache/restore":
            caches = sorted(
                (self.folder / "caches").glob(f"{options['restore-keys']}*"), key=lambda path: path.stat().st_ctime_ns
            )
            if caches:
                self._restore(ran, caches[-1].name, options["path"])
        elif action == "actions/upload-artifact":
            self._publish(ran, options["path"])
        elif action == "actions/cache":
            _link_guest_image(ran, options["path"])
        else:
            assert action in ("actions/checkout", "mikepenz/action-junit-report"), action


def _evaluated(text: str, context: Mapping[str, str]) -> str:
    return re.sub(r"\$\{\{ (.+?) \}\}", lambda found: context.get(found[1], f"<{found[1]}>"), text)


class GitLab(BuildServer):
    """``.gitlab-ci.yml``: all lines are one script, a cache's key is written again and again."""

    def job(self, night: str, ran: Ran, accept: bool) -> None:
        job: dict[str, Any] = yaml.safe_load((PROJECT / ".gitlab-ci.yml").read_text())["nightly"]
        context = {"CI_PIPELINE_ID": night, "CI_PROJECT_DIR": str(ran.checkout)}
        environment = context | {name: _expanded(str(value), context) for name, value in job["variables"].items()}
        environment |= {"GITLAB_CI": "true", **({"NIGHTLY_ACCEPT": "yes"} if accept else {})}
        results, downloads = job["cache"]
        _link_guest_image(ran, downloads["paths"][0])
        self._restore(ran, results["key"], results["paths"][0])
        self._shell(ran, "\n".join([*job["before_script"], *job["script"]]), environment)
        assert results["when"] == "always", "a night that is not good must be kept as well"
        self._save(ran, results["key"], results["paths"][0])
        for path in [*job["artifacts"]["paths"], job["artifacts"]["reports"]["junit"]]:
            self._publish(ran, _expanded(path, context))
        ran.summary = ran.published("summary.md").read_text()


def _link_guest_image(ran: Ran, cache: str) -> None:
    """The cache of downloads holds this machine's guest image, which takes long to build."""
    images = ran.checkout / cache / "autotest/images"
    images.parent.mkdir(parents=True)
    images.symlink_to(image_cache())


def _expanded(text: str, variables: Mapping[str, str]) -> str:
    for name, value in variables.items():
        text = text.replace(f"${name}", value)
    return text
