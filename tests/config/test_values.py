"""A value is data: whatever could be an option, a command or another thing's name is refused, with what would be right."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from autotest.config import values

EVERYWHERE = ["-x", "--help", "a b", "a\tb", "a\nb", "a\0b", "a\x1b[2J", "a\u2028b", "\ud800"]
SHELL = ["$(x)", "`x`", "a;x", "a|x", "a&x", "a>x", "a'x", 'a"x', "a*", "a?", "a{b,c}", "~x", "#x", "!x", "a\\", "a$x"]


@pytest.mark.parametrize(
    ("parse", "right", "wrong"),
    [
        (
            values.iface,
            ["eth0", "br-test", "eth0.100", "veth@x", "a" * 15],
            [*EVERYWHERE, "a/b", ".", "..", "tap%d", "a:1", "a,b", "ü", "a" * 16],
        ),
        (
            values.plain_name,
            ["n", "vfio-pci", "uio_pci_generic", "a.b", "u@h"],
            [*EVERYWHERE, *SHELL, "a/b", ".", "..", ".x", "a:b", "a%h", "ü", "a" * 65],
        ),
        (
            values.tmux_socket,
            ["autotest", "autotest-me", "/tmp/x/tmux.sock"],
            [*EVERYWHERE, *SHELL, ".", "..", "a:b", "../x", "a/b", "./a", "/", "/tmp/..", "/a/../b", "/tmp/.x",
             "/" + "a" * 107],
        ),
        (
            values.machine,
            ["localhost", "host.example.org", "me@h", "DOM\\me@h", "a@dom@h", "10.0.0.1", "::1", "fe80::1%eth0", "h:22",
             "[::1]:22", "bücher.example", "my_host"],
            [*EVERYWHERE, *SHELL, "@h", "me@", "-oProxyCommand=x", "me@-oProxyCommand=x", "-l@h", "a/b", "a,b", "h" * 256],
        ),
        (
            values.path,
            ["/a/b", "a", "/a b", "/a;b", "../a", "~/x"],
            ["-x", "--help", "a\nb", "a\0b", "a\x1bb", "/" + "a" * 256, "/a" * 2048],
        ),
        (
            values.lab_directory,
            ["/run/x", "/tmp/a/b", "/var/tmp/x"],
            ["/", "/run", "/tmp", "/home/me", "/etc", "/run/..", "/run/../etc", "run/x", "x", "/run/a b", "/run/$x",
             "/run/%h", "/run/.x"],
        ),
        (
            values.mac,
            ["52:54:00:fa:00:60", "B4:96:91:00:00:01"],
            ["01:00:5e:00:00:01", "ff:ff:ff:ff:ff:ff", "00:00:00:00:00:00", "52:54", "52-54-00-fa-00-60",
             "٥2:54:00:fa:00:60", "52:54:00:fa:00:60\n"],
        ),
        (values.pci_address, ["51:00.0", "0000:51:1f.7"], ["51:00", "51:20.0", "51:00.8", "../51:00.0", "51:00.0\n"]),
        (
            values.ip_net,
            ["10.0.0.1/24", "fd00::1/64"],
            ["10.0.0.1", "10.0.0.1/33", "10.0.0.1/-1", "10.0.0.1/٣", "224.0.0.1/4", "0.0.0.0/0", "::/0", "fe80::1%a;b/64",
             "a/b"],
        ),
        (
            values.fs_devices,
            ["home:/home", "a:/x, b:/y z", "a:/x,"],
            ["home", ":/x", "a b:/x", "-a:/x", "a:", "a:-x", "a:/x,a:/y", "a=b:/x", "t" * 32 + ":/x"],
        ),
        (values.integer(0, 10), ["0", "10", "+5", "007"], ["-1", "11", "1_0", "٣", "1e1", "0x1", "", "1" * 5000, "nan"]),
        (
            values.seconds_or_switch(25.0),
            ["0", "1.5", ".5", "5.", "true", "off"],
            ["-1", "3601", "nan", "inf", "1e1", "1_0", "٣", "1" * 5000],
        ),
        (
            values.percentage(0, 100),
            ["1 %", "0.5%", "100 %", "0 %", "+1 %", ".5 %"],
            ["1", "0.01", "%", " %", "1 % 2", "1 %%", "-1 %", "101 %", "nan %", "1e1 %", "٣ %", "1" * 5000 + " %", "1 percent", ""],
        ),
        (values.words, ["a  b\n c", "console=ttyS0 a=$b"], ["a\0b", "a\x1bb"]),
    ],
    ids=lambda argument: getattr(argument, "__name__", ""),
)  # fmt: skip
def test_what_is_taken_and_what_is_refused(parse: Callable[[str], object], right: list[str], wrong: list[str]) -> None:
    for value in right:
        parse(value)
    for value in wrong:
        with pytest.raises(ValueError) as caught:
            parse(value)
        assert type(caught.value) is ValueError, value
        message = str(caught.value)
        assert message.isprintable() and len(message) < 250, value


@pytest.mark.parametrize(("text", "fraction"), [("1 %", 0.01), ("0.001 %", 1e-5), ("100%", 1.0), ("2.5 %", 0.025)])
def test_a_percentage_is_a_fraction_without_rounding(text: str, fraction: float) -> None:
    assert values.percentage(0, 100)(text) == fraction


def test_a_multicast_address_is_called_so() -> None:
    with pytest.raises(ValueError, match="multicast"):
        values.mac("01:00:5e:00:00:01")


def test_a_path_of_this_machine_may_begin_with_a_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert values.path_here("~/x") == str(Path("/home/me/x")) and values.path_here("a/~") == "a/~"
    with pytest.raises(ValueError, match="home folder of nobody"):
        values.path_here("~nobody-has-this/x")


def test_a_long_value_is_cut_in_a_message() -> None:
    assert values.quoted("a" * 100) == f"'{'a' * 60}'..." and values.quoted("a\n") == "'a\\n'"
