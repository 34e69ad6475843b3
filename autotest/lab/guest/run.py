"""Running the programs that an image is built with."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from autotest.errors import ImageError

_STDERR_LINES = 20


def run(
    command: Sequence[str | Path],
    *,
    timeout_s: float = 60.0,
    stdin: bytes = b"",
    env: Mapping[str, str] | None = None,
) -> bytes:
    """Standard output of ``command``; ``env`` is added to the environment.

    The command runs in a session of its own, all of which is killed when it takes longer than ``timeout_s`` or when this
    process is interrupted.

    Raises:
        ImageError: it is not installed, ended with another exit code than 0, or took too long.
    """
    argv = [str(part) for part in command]
    environment = {**os.environ, "LC_ALL": "C.UTF-8", **(env or {})}
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )
    except OSError as error:
        raise ImageError(f"cannot run {argv[0]}: {error}") from error
    with process:
        try:
            output, errors = process.communicate(stdin, timeout=timeout_s)
        except subprocess.TimeoutExpired:
            _kill_session(process)
            _, errors = process.communicate()
            raise ImageError(_message(argv, f"was not done after {timeout_s:g} s", errors)) from None
        except BaseException:
            _kill_session(process)
            raise
    if process.returncode != 0:
        raise ImageError(_message(argv, f"ended with exit code {process.returncode}", errors))
    return output


def _kill_session(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)


def _message(argv: Sequence[str], what: str, errors: bytes) -> str:
    tail = errors.decode(errors="replace").strip().splitlines()[-_STDERR_LINES:]
    return "\n".join([f"{shlex.join(argv)} {what}", *tail])
