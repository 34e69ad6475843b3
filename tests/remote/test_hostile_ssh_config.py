"""Names that end up in the text of a ProxyCommand stay names, and any text is a configuration or an error of ours."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from examples import examples
from hostile import texts
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autotest.errors import AutotestError, ConnectError
from autotest.remote.netns import create_connection
from autotest.remote.ssh import SshTransport
from autotest.remote.ssh_config import resolve, route

FIXTURES = [HealthCheck.function_scoped_fixture]
#: What a shell makes more than a letter of.
MARKS = set("'\"`$\\;&<>|(){}[]*?~#! \t\r\n\x01\x7f")

KEYS = (
    "Host", "Match", "HostName", "Port", "User", "IdentityFile", "IdentitiesOnly", "ProxyJump", "ProxyCommand", "Ciphers",
    "UserKnownHostsFile", "GlobalKnownHostsFile", "ConnectTimeout", "KexAlgorithms", "HostKeyAlias", "CanonicalizeHostname",
    "CanonicalDomains", "CanonicalizeMaxDots",
)  # fmt: skip
VALUES = (
    "x", "*", "none", "all", "exec true", "host x", "final", "canonical all", "-1", "nan", "inf", "0", "99999999", "1e400", '"',
    '"a b"', "'", "~nobody-has-this-name/y", "~", "%h %p %r %n %%", "x,x", "user@", "@", "[::1]:22", "yes", "", "\\", "٣", "+x",
)  # fmt: skip


@pytest.mark.parametrize(
    "alias",
    ["$(touch pwned)", "`touch pwned`", "a;touch pwned", "a|touch pwned", "a&", "x@$(y)", "$(y)@x", "-oProxyCommand=x", "-x@h",
     "a b", "a\nb", "", "@", "me@", "a'b", 'a"b', "a\\", "*", "~root", "!x", "[$(x)]:22"],
)  # fmt: skip
def test_a_name_that_is_more_than_a_name_to_a_shell_is_refused_and_no_command_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alias: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config").write_text("Host *\n  ProxyCommand touch ran; echo %h %n %r %p\n  HostName %h\n")
    with pytest.raises(ConnectError, match="is no SSH destination"):
        SshTransport("far", alias, "config").connect(1)
    assert os.listdir(tmp_path) == ["config"]


@pytest.mark.parametrize("option", ["HostName $(touch pwned)", "HostName a`touch pwned`", "User $(touch pwned)", "User -x"])
def test_what_the_configuration_puts_into_the_text_of_a_proxy_command_is_a_name_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config").write_text(f"Host x\n  {option}\n  ProxyCommand touch ran; echo %h %r\n")
    with pytest.raises(ConnectError, match="not a name of a machine or user"):
        SshTransport("far", "x", "config").connect(1)
    assert os.listdir(tmp_path) == ["config"]


@pytest.mark.parametrize(
    ("alias", "host"),
    [("host.example.org", "host.example.org"), ("me@10.0.0.1", "10.0.0.1"), ("fe80::1%eth0", "fe80::1%eth0"),
     ("a.b+c@gäst_1:22", "gäst_1"), ("root@[fd00::1]:2222", "fd00::1")],
)  # fmt: skip
def test_names_and_addresses_of_all_kinds_are_names(tmp_path: Path, alias: str, host: str) -> None:
    (tmp_path / "config").write_text("Host *\n  ProxyCommand nc %h %p\n")
    assert resolve(alias, str(tmp_path / "config")).host == host


@settings(max_examples=examples(300), suppress_health_check=FIXTURES)
@given(
    st.lists(st.builds("{} {}".format, st.sampled_from(KEYS), st.one_of(st.sampled_from(VALUES), texts)), max_size=6),
    st.one_of(st.sampled_from(["x", "y", "me@x:1", "[::1]:9", "::1"]), texts),
)
def test_any_text_is_a_configuration_or_an_error_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: list[str], alias: str
) -> None:
    monkeypatch.setattr("paramiko.config.socket.gethostbyname", lambda name: "192.0.2.1")  # no name server is asked
    config = tmp_path / "config"
    config.write_bytes("\n".join(lines).encode("utf-8", "surrogateescape"))
    try:
        hops = route(alias, str(config))
    except AutotestError:
        return
    for hop in hops:
        assert 0 < hop.port < 65536 and 0 < hop.connect_timeout < 1e6
        assert not set(hop.alias.replace("[", "").replace("]", "")) & MARKS and not hop.alias.startswith("-")
        if hop.proxy_command:
            assert not set(hop.host) & MARKS and not hop.host.startswith("-")


@pytest.mark.parametrize("config", [None, "Host *\n  ProxyCommand none\n", "Host *\n  ProxyCommand None\n"])
def test_without_a_proxy_command_there_is_none(tmp_path: Path, config: str | None) -> None:
    (tmp_path / "config").write_text(config or "")
    assert resolve("x", str(tmp_path / "config")).proxy_command == ""


@pytest.mark.parametrize(
    ("option", "found"),
    [
        ("/k1 /k2", ["/k1", "/k2"]),
        ('"{0}/a b"', ["{0}/a b"]),
        ('"{0}/a b" "/c d"', ["{0}/a b", "/c d"]),
        ('/k1 "{0}/a b"', ["/k1", "{0}/a b"]),
        ('"{0}/a b" /k1', ["{0}/a b", "/k1"]),
    ],
)
def test_files_of_known_hosts_may_have_blanks_in_their_names(tmp_path: Path, option: str, found: list[str]) -> None:
    (tmp_path / "a b").write_text("")
    (tmp_path / "config").write_text(f"Host x\n  UserKnownHostsFile {option.format(tmp_path)}\n")
    assert resolve("x", str(tmp_path / "config")).known_hosts == tuple(name.format(tmp_path) for name in found)


@pytest.mark.parametrize("netns", ["../../proc/self/ns/net", "/proc/self/ns/net", "", ".", "..", "a\0b"])
def test_a_namespace_is_a_name_and_no_path(netns: str) -> None:
    with pytest.raises(ConnectError, match="not the name of a network namespace"):
        create_connection(("127.0.0.1", 1), 1, netns)
