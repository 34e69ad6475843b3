"""Has the QEMU of this machine realise a command line: every device is made as it would be for a guest, which never starts."""

from __future__ import annotations

import functools
import itertools
import json
import re
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import vhost_user_peer

from autotest.network.links import Links
from autotest.remote.local import LocalTransport

_TIMEOUT = 20.0  # seconds until QEMU answers or ends
_MAC = "52:54:00:fa:00:60"

Option = tuple[str, str]


def read_options(text: str) -> tuple[str, dict[str, str]]:
    """The head of a value of QEMU's, like ``tap``, and its properties; commas in them are doubled (util/keyval.c)."""
    words = [word.replace("\0", ",") for word in text.replace(",,", "\0").split(",")]
    return words[0], dict(word.split("=", 1) for word in words[1:])


@dataclass(frozen=True)
class Realised:
    """What QEMU made of a command line.

    Attributes:
        refusal: what it wrote when it ended instead; None where it did not.
        status: of the machine, as in QMP's RunState.
        parts: of each ``-object`` and ``-device`` in their order what QEMU has: the type, and the properties that were given,
            of devices also whether they are realised.
        backends: identifiers of the network backends, one for each of their queues.
    """

    refusal: str | None = None
    status: str = ""
    parts: Sequence[dict[str, Any]] = ()
    backends: Sequence[str] = ()


@dataclass
class Bench:
    """A network namespace and a folder in which there is what a command line names.

    Attributes:
        netns: the namespace's name.
        folder: where files are that the command lines have below ``prefix``.
    """

    netns: str
    folder: Path
    prefix: str
    _taps: dict[str, bool] = field(default_factory=dict)
    _made: dict[tuple[str, tuple[Option, ...]], Realised] = field(default_factory=dict)

    def __post_init__(self) -> None:
        (self.folder / "root.img").write_bytes(bytes(65536))
        subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", self.folder / "root.qcow2", "1M"], check=True)
        (self.folder / "vmlinuz").write_bytes(_kernel())
        (self.folder / "initrd").write_bytes(bytes(512))
        for shared in ("home", "x,y"):
            (self.folder / shared).mkdir()
        self._ip("link", "add", "nic", "type", "veth", "peer", "name", "wire")

    def realise(self, program: str, options: tuple[Option, ...]) -> Realised:
        """Start the program with these options, but no guest; look at what it made, and end it. Once for the same options."""
        if (program, options) not in self._made:
            self._made[program, options] = self._realise(program, options)
        return self._made[program, options]

    def _realise(self, program: str, options: Sequence[Option]) -> Realised:
        transport = LocalTransport("bench", self.netns)
        control = self.folder / "qmp"
        control.unlink(missing_ok=True)
        arguments = [word.replace(self.prefix, str(self.folder)) for option in options for word in option if word]
        with self._peers(options), self._links(options) as opener:
            process = subprocess.Popen(
                transport.argv([*opener, program, "-S", *arguments]),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )
            with process:
                try:
                    return _look(process, str(control), options)
                finally:
                    process.kill()

    @contextmanager
    def _peers(self, options: Sequence[Option]) -> Iterator[None]:
        """Whoever QEMU waits for: a vhost-user device is made when its other end is connected."""
        values = [(option, *read_options(value)) for option, value in options]
        wanted = {given["chardev"] for option, kind, given in values if (option, kind) == ("-netdev", "vhost-user")}
        with ExitStack() as stack:
            for option, _, given in values:
                if option == "-chardev" and given["id"] in wanted:
                    stack.enter_context(vhost_user_peer.connected(given["path"].replace(self.prefix, str(self.folder))))
            yield

    @contextmanager
    def _links(self, options: Sequence[Option]) -> Iterator[list[str]]:
        """The taps and the macvtap that are named; gives what must go in front of a command that gets files of a macvtap."""
        files: list[str] = []
        for option, value in options:
            kind, values = read_options(value)
            if option != "-netdev" or kind != "tap":
                continue
            if "ifname" in values:
                self._tap(values["ifname"], "queues" in values)
            files += [each for key in ("fd", "fds") for each in values.get(key, "").split(":") if each]
        if not files:
            yield []
            return
        node = f"/dev/{self.netns}"  # device files elsewhere may not be opened
        major, minor = self._macvtap
        subprocess.run(["mknod", "-m", "600", node, "c", str(major), str(minor)], check=True)
        try:
            redirected = " ".join(f'{number}<>"$0"' for number in files)
            yield ["bash", "-c", f'exec "$@" {redirected}', node]
        finally:
            Path(node).unlink()

    @functools.cached_property
    def _macvtap(self) -> tuple[int, int]:
        """The device number of a macvtap."""
        links = Links(LocalTransport("bench", self.netns))
        links.add_macvtap("macvtap", "nic", _MAC)
        return links.macvtap_device("macvtap")[1:]

    def _tap(self, name: str, several: bool) -> None:
        """A tap is of one queue or of several from its beginning."""
        if self._taps.get(name) == several:
            return
        if name in self._taps:
            self._ip("link", "delete", name)
        self._ip("tuntap", "add", "dev", name, "mode", "tap", *(["multi_queue"] if several else []))
        self._taps[name] = several

    def _ip(self, *arguments: str) -> None:
        subprocess.run(["ip", "-n", self.netns, *arguments], check=True)


def _look(process: subprocess.Popen[str], control: str, options: Sequence[Option]) -> Realised:
    """Ask QEMU what it made of the options, and end it; where it ends by itself, why."""
    commands: list[dict[str, Any]] = [{"execute": "qmp_capabilities"}, {"execute": "query-status"}]
    commands.append({"execute": "human-monitor-command", "arguments": {"command-line": "info network"}})
    wanted = list(_wanted(options))
    for path, names in wanted:
        commands += [{"execute": "qom-get", "arguments": {"path": path, "property": name}} for name in names]
    assert process.stderr
    try:
        answers = _ask(process, control, [*commands, {"execute": "quit"}])
    except OSError:
        assert process.wait(_TIMEOUT) != 0
        return Realised(process.stderr.read())
    assert process.wait(_TIMEOUT) == 0, process.stderr.read()
    known = iter(answers[3:])
    parts = [{name: next(known) for name in names} for _, names in wanted]
    return Realised(None, answers[1]["status"], parts, re.findall(r"(\S+): index=\d+,type=(?!nic)", answers[2]))


def _wanted(options: Sequence[Option]) -> Iterator[tuple[str, list[str]]]:
    """Path and properties of each object and device."""
    unnamed = itertools.count()
    for option, value in options:
        _, given = read_options(value)
        names = ["type", *(name for name in given if name != "id")]
        if option == "-object":
            yield f"/objects/{given['id']}", names
        elif option == "-device" and "id" in given:
            yield f"/machine/peripheral/{given['id']}", ["realized", *names]
        elif option == "-device":
            yield f"/machine/peripheral-anon/device[{next(unnamed)}]", ["realized", *names]


def _ask(process: subprocess.Popen[str], control: str, commands: Sequence[dict[str, Any]]) -> list[Any]:
    """What QMP returns to the commands. Raises OSError where QEMU ends instead."""
    deadline = time.monotonic() + _TIMEOUT
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_TIMEOUT)
        while True:
            try:
                connection.connect(control)
                break
            except OSError:
                if process.poll() is not None:
                    raise
                assert time.monotonic() < deadline, "QEMU neither answers nor ends"
                time.sleep(0.005)
        asked = "".join(json.dumps(command) + "\n" for command in commands)
        connection.sendall(asked.encode())
        answers: list[Any] = []
        for line in connection.makefile():
            said = json.loads(line)
            assert "error" not in said, f"{commands[len(answers)]}: {said}"
            if "return" in said:
                answers.append(said["return"])
                if len(answers) == len(commands):
                    return answers
    raise ConnectionError("QEMU ended")


def _kernel() -> bytes:
    """What QEMU takes for a Linux kernel: the fields of the boot protocol 2.15, and no code.

    https://docs.kernel.org/arch/x86/boot.html, "The Real-Mode Kernel Header".
    """
    image = bytearray(16384)
    image[0x1F1] = 1  # setup_sects
    image[0x1FE:0x200] = b"\x55\xaa"
    image[0x202:0x206] = b"HdrS"
    image[0x206:0x208] = (0x020F).to_bytes(2, "little")
    image[0x211] = 1  # loadflags: LOADED_HIGH
    image[0x22C:0x230] = (0x7FFFFFFF).to_bytes(4, "little")  # initrd_addr_max
    return bytes(image)
