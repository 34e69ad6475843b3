"""A value is data: whatever could be an option, a command or another thing's name is refused, with what would be right."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotest.config import quantities, values

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
            values.nics,
            ["51:00.1 52:54:00:12:34:57", "51:00.1 52:54:00:12:34:57, 0000:52:00.0 52:54:00:12:34:58,"],
            ["51:00.1", "52:54:00:12:34:57 51:00.1", "51:00.1 53:54:00:12:34:57", "51:00.1 52:54:00:12:34:57 eth1",
             "51:00.1 52:54:00:12:34:57, 0000:51:00.1 52:54:00:12:34:58", "51:00.1 52:54:00:aa:00:01, 51:00.2 52:54:00:AA:00:01"],
        ),
        (
            values.pci_addresses,
            ["51:00.0", "0000:51:00.0, 0000:51:00.1", "51:00.0,"],
            ["51:00", "0000:51:00.0 0000:51:00.1", "51:00.0;51:00.1", "51:00.0,eth1"],
        ),
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
        (values.power_of_two(256, 1024), ["256", "512", "1024", "+512"], ["0", "128", "255", "300", "2048", "", "default"]),
        (values.or_default(values.integer(1, 10)), ["default", "1", "10"], ["0", "11", "", "Default", "none", "de fault"]),
        (values.integer(0, 10), ["0", "10", "+5", "007"], ["-1", "11", "1_0", "٣", "1e1", "0x1", "", "1" * 5000, "nan"]),
        (
            quantities.seconds_or_switch(25.0),
            ["0", "1.5", ".5", "5.", "true", "off", "90s", "1.5 s", "2m", "1h", ".5m"],
            ["-1", "3601", "nan", "inf", "1e1", "1_0", "٣", "1" * 5000, "2h", "61m", "s", "1S", "1 m 2", "-1s", "yess"],
        ),
        (
            values.percentage(0, 100),
            ["1 %", "0.5%", "100 %", "0 %", "+1 %", ".5 %"],
            ["1", "0.01", "%", " %", "1 % 2", "1 %%", "-1 %", "101 %", "nan %", "1e1 %", "٣ %", "1" * 5000 + " %", "1 percent", ""],
        ),
        (
            values.cpu_list,
            ["0", "2-5,8", "8, 2-5", "3-3", "0-8191", "007"],
            ["", ",", "1,", "1,,2", "a", "-1", "1-", "5-2", "1-2-3", "0-10:2", "1 2", "1;2", "٣", "8192", "0-99999", "1" * 5000,
             "1,1", "0-3,2", "2,0-3", "1\n,2\0", "all"],
        ),
        (
            values.scheduling,
            ["other", "batch", "idle", "fifo:1", "rr:99", "fifo:05", "nice:0", "nice:-20", "nice:19", "nice:+3"],
            ["", "fifo", "fifo:", "fifo:0", "rr:00", "fifo:100", "fifo:-1", "fifo:1.5", "nice", "nice:20", "nice:-21", "nice:",
             "other:1", "idle:0", "FIFO:1", "deadline", "fifo:٣", "fifo: 1", "nice:" + "1" * 5000, "fifo:1\n", "-20"],
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


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 5)), min_size=1, max_size=6))
def test_a_cpu_list_is_each_cpu_once_in_ascending_order_or_an_error_that_names_the_one_that_is_there_twice(
    ranges: list[tuple[int, int]],
) -> None:
    text = ",".join(f"{first}-{first + more}" if more else f"{first}" for first, more in ranges)
    wanted = [cpu for first, more in ranges for cpu in range(first, first + more + 1)]
    if len(set(wanted)) == len(wanted):
        assert values.cpu_list(text) == tuple(sorted(wanted))
    else:
        with pytest.raises(ValueError, match=r"has CPU \d+ twice") as caught:
            values.cpu_list(text)
        assert wanted.count(int(str(caught.value).split()[-2])) > 1


@given(st.text(max_size=8) | st.from_regex(r"(fifo|rr|nice|other|idle):?[+-]?[0-9]{0,3}", fullmatch=True))
def test_a_scheduling_is_one_of_the_kernels_in_one_way_of_writing_it(text: str) -> None:
    try:
        found = values.scheduling(text)
    except ValueError:
        return
    policy, _, number = found.partition(":")
    assert policy in ("other", "batch", "idle") if not number else str(int(number)) == number
    assert {"fifo": range(1, 100), "rr": range(1, 100), "nice": range(-20, 20)}.get(policy, [0]).count(int(number or 0))
    assert values.scheduling(found) == found


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
