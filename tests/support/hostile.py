"""Values that would be commands, options or ends of something wherever they are not data; and who records what arrives."""

from __future__ import annotations

import json
import socket
import string
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from hypothesis import strategies as st

from autotest.remote.transport import Result, Transport, full_command, require_text

HOSTILE = (
    "$(touch pwned)", "`touch pwned`", "; touch pwned", "&& touch pwned", "| tee pwned", "> pwned", "a\nb", "a\r\nb", "\t", " ",
    "'", '"', "'\"'\"'", "\\", "\\n", "a;", "a\\;", ";", "-", "--", "-n", "-rf", "--help", "-c", "=ls", "a=b", "PATH=/nowhere", "",
    "*", "?", "[a-z]", "{a,b}", "~", "~root", "#x", "!1", "!!", "%s", "%n", "%h", "#{pid}", "#(touch pwned)", "$HOME", "${IFS}",
    "a,b", "a,,b", ",readonly=on", "a:b", "!!EXEC:touch pwned", "json:{}", "nbd:h:1", "dev", "up", "nomaster", "help", "?",
    "{histogram}", "\x01", "\x1b]0;x\x07", "\x7f", "\u2028", "\u202e", "üñí🙂", "é,é", "\udcff\udc80", "x" * 3000,
)  # fmt: skip

_NO_CHARACTERS = {"exclude_categories": ["Cs"], "exclude_characters": "\0"}

#: Any text that a program can be given.
texts = st.one_of(st.sampled_from(HOSTILE), st.text(st.characters(**_NO_CHARACTERS), max_size=30))
#: Any name of a file.
file_names = st.one_of(
    st.sampled_from([text for text in HOSTILE if len(text) < 100]),
    st.text(st.characters(**_NO_CHARACTERS), min_size=1, max_size=15),
).map(lambda text: text.replace("/", "-").replace("\0", "-") or "-").filter(lambda name: name not in (".", ".."))  # fmt: skip
#: What a machine may answer instead of what it should.
answers = st.one_of(
    texts,
    st.sampled_from(
        ["-1", "0", "1", "1 1", "-1 1", "2 2", "1.5 1", "12 ", "9" * 5000, "٣ ٣", "1e9", "0x10", "nan inf", "[" * 5000]
    ),
    st.text(string.digits + " -\n.", max_size=12),
)
#: JSON that a machine may answer instead of what it should.
json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=8), st.just([]), st.just({})),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=3)),
    max_leaves=6,
)


def recorder(folder: Path) -> str:
    """A program that writes the arguments that it gets, each ended by a zero byte, and nothing else."""
    program = folder / "record"
    program.write_text('#!/bin/sh\n[ $# -eq 0 ] || printf "%s\\0" "$@"\n')
    program.chmod(0o755)
    return str(program)


def recorded(output: str) -> list[str]:
    """The arguments that the recorder got."""
    return output.split("\0")[:-1]


def as_read(values: Sequence[str]) -> list[str]:
    """The values as they come back in a program's output, where bytes that are no UTF-8 show as the sign for that."""
    return [value.encode("utf-8", "surrogateescape").decode("utf-8", "replace") for value in values]


class FakeMachine(Transport):
    """A machine that runs nothing: it records each command and answers what the test says.

    Attributes:
        commands: the arguments of what was run.
        files: what there is to read, by path.
    """

    is_local = False

    def __init__(self, answer: Callable[[Sequence[str]], str | int] = lambda command: "") -> None:
        super().__init__("far")
        self._answer = answer
        self.commands: list[list[str]] = []
        self.files: dict[str, str] = {}

    @property
    def is_root(self) -> bool:
        return True

    def argv(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        sudo: bool = False,
    ) -> list[str]:
        return full_command(command, env=env, cwd=cwd)

    def connect(self, timeout: float | None = None) -> None:
        pass

    def _execute(self, command: Sequence[str], argv: Sequence[str], data: bytes | None, timeout: float) -> Result:
        self.commands.append(list(command))
        answer = self._answer(command)
        code, text = (answer, "") if isinstance(answer, int) else (0, answer)
        return Result(tuple(command), code, text, "")

    def put(self, source: Path, target: str, mode: int = 0o644) -> None:
        self.files[target] = source.read_text()

    def get(self, source: str, target: Path) -> None:
        target.write_text(self.files[source])

    def read(self, source: str) -> str | None:
        require_text("a path", source)
        return self.files.get(source)

    def read_from(self, source: str, start: int) -> bytes:
        return (self.read(source) or "").encode()[start:]

    def write(self, target: str, content: str, mode: int = 0o644) -> None:
        self.files[target] = content

    def connect_unix(self, path: str, timeout: float) -> AbstractContextManager[socket.socket]:
        raise NotImplementedError

    def ping(self, timeout: float) -> float:
        return 0.0

    def close(self) -> None:
        pass


def link_answer(name: str, **more: object) -> str:
    """What ``ip -json -details link show`` prints of a link."""
    return json.dumps([{"ifindex": 5, "ifname": name, "flags": ["UP", "LOWER_UP"], **more}])
