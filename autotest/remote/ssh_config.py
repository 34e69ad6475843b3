"""Where an SSH destination leads, after ``~/.ssh/config`` or the configured file (ssh_config(5))."""

from __future__ import annotations

import getpass
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

import paramiko

from autotest.errors import ConnectError

_DEFAULT_CONFIG = Path("~/.ssh/config")
_DEFAULT_KNOWN_HOSTS = ("~/.ssh/known_hosts", "/etc/ssh/ssh_known_hosts")
_DEFAULT_CONNECT_TIMEOUT = 10.0  # seconds
_LONGEST_CONNECT_TIMEOUT = 86_400.0  # seconds
# What a shell reads as more than a letter of a word. A ProxyCommand or `Match exec` has names put into its text and is then
# run by a shell, so a name with any of these is refused, as ssh(1) refuses it (valid_hostname and valid_ruser of ssh.c).
_NOT_IN_A_NAME = re.compile(r"""^-|^$|['"`$\\;&<>|(){}\[\]*?~#!\s\x00-\x1f\x7f]""")


@dataclass(frozen=True)
class Destination:
    """One hop: ``alias`` as the user named it, and what the configuration makes of it."""

    alias: str
    host: str
    port: int
    user: str
    key_files: tuple[str, ...]
    only_these_keys: bool
    known_hosts: tuple[str, ...]
    host_key_alias: str | None
    jumps: tuple[str, ...]
    proxy_command: str
    connect_timeout: float
    ciphers: tuple[str, ...]
    key_exchanges: tuple[str, ...]

    @property
    def host_key_name(self) -> str:
        """The name under which known_hosts has the key."""
        if self.host_key_alias:
            return self.host_key_alias
        return self.host if self.port == 22 else f"[{self.host}]:{self.port}"


def resolve(alias: str, config_file: str | None) -> Destination:
    """Look the destination up; ``user@host`` and ``host:port`` (in jumps) override the configuration.

    Raises:
        ConnectError: the configuration file is missing or malformed.
    """
    name, user, port = _split(alias)
    _require_names(alias, name, *(() if user is None else (user,)))
    config = _load(config_file)
    try:
        options = config.lookup(name)
        jumps = options.get("proxyjump") or "none"
        proxy = options.get("proxycommand") or "none"
        host = options.get("hostname", name)
        if proxy.lower() != "none":
            _require_names(alias, host, options.get("user", "me"))  # they are in the text of the command, as %h and %r
        return Destination(
            alias=alias,
            host=host,
            port=_port(port or options.get("port") or 22),
            user=user or options.get("user") or getpass.getuser(),
            key_files=tuple(options.get("identityfile", ())),
            only_these_keys=options.get("identitiesonly", "no").lower() == "yes",
            known_hosts=_known_hosts(options),
            host_key_alias=options.get("hostkeyalias"),
            jumps=() if jumps.lower() == "none" else tuple(jump.strip() for jump in jumps.split(",")),
            proxy_command="" if proxy.lower() == "none" else proxy,
            connect_timeout=_seconds(options.get("connecttimeout", "none")),
            ciphers=_names(options.get("ciphers")),
            key_exchanges=_names(options.get("kexalgorithms")),
        )
    except (ValueError, LookupError, ImportError, RuntimeError, OSError, paramiko.SSHException) as error:
        reason = f"{error.args[0]} is missing" if isinstance(error, KeyError) else error
        raise ConnectError(f"{alias}: {config_file or _DEFAULT_CONFIG}: {reason}") from None


def route(alias: str, config_file: str | None, behind: tuple[str, ...] = ()) -> list[Destination]:
    """All hops to the destination, itself the last; a jump host may be behind a jump host of its own.

    Raises:
        ConnectError: the configuration leads in a circle, or as :func:`resolve` does.
    """
    if alias in behind:
        raise ConnectError(f"{alias}: its ProxyJump leads back to itself: {' -> '.join((*behind, alias))}")
    target = resolve(alias, config_file)
    if not target.jumps:
        return [target]
    first, *others = target.jumps
    return [
        *route(first, config_file, (*behind, alias)),
        *(resolve(jump, config_file) for jump in others),  # reached through the one before, whatever their own says
        target,
    ]


def _split(alias: str) -> tuple[str, str | None, int | None]:
    user, at, rest = alias.rpartition("@")
    if rest.startswith("["):  # [IPv6 address], with or without :port
        address, _, tail = rest[1:].partition("]")
        return address, user if at else None, int(tail[1:]) if tail[1:].isdecimal() else None
    host, colon, port = rest.partition(":")
    if colon and port.isdecimal():
        return host, user if at else None, int(port)
    return rest, user if at else None, None


def _load(config_file: str | None) -> paramiko.SSHConfig:
    path = Path(config_file).expanduser() if config_file else _DEFAULT_CONFIG.expanduser()
    if not config_file and not path.exists():
        return paramiko.SSHConfig()
    try:
        return paramiko.SSHConfig.from_path(str(path))
    except (OSError, ValueError, paramiko.SSHException) as error:  # ValueError: no UTF-8, a quote that is not closed
        raise ConnectError(f"ssh_config {path}: {error}") from None


def _require_names(alias: str, *names: str) -> None:
    """Raises ConnectError where a name of the destination would be more than a name to a shell."""
    for name in names:
        if found := _NOT_IN_A_NAME.search(name):
            what = f"it must not hold {found[0]!r}" if found[0] not in ("", "-") else "it is empty or begins with a dash"
            raise ConnectError(f"{alias!r} is no SSH destination: {name!r} is not a name of a machine or user: {what}")


def _port(value: str | int) -> int:
    port = int(value)
    if not 0 < port < 1 << 16:
        raise ValueError(f"port {port} is out of range: expected 1 to 65535")
    return port


def _seconds(value: str) -> float:
    """ConnectTimeout; ``none`` and 0 stand for the system's own, which is too long for us."""
    seconds = 0.0 if value.lower() == "none" else float(value)
    if not 0 <= seconds <= _LONGEST_CONNECT_TIMEOUT:
        raise ValueError(f"ConnectTimeout {value} is out of range")
    return seconds or _DEFAULT_CONNECT_TIMEOUT


def _known_hosts(options: dict[str, str]) -> tuple[str, ...]:
    files = [file for key in ("userknownhostsfile", "globalknownhostsfile") for file in _files(options.get(key, ""))]
    return tuple(str(Path(file).expanduser()) for file in files or _DEFAULT_KNOWN_HOSTS)


def _files(value: str) -> list[str]:
    """The file names of one option. The library takes a quote off at either end, whether or not the two are a pair."""
    if '"' in value:
        return shlex.split(value if '"' in (value[0], value[-1]) else f'"{value}"')
    return [value] if Path(value).expanduser().is_file() else value.split()


def _names(value: str | None) -> tuple[str, ...]:
    """A plain list of algorithm names; the +, - and ^ forms keep the library's own order."""
    if not value or value[0] in "+-^":
        return ()
    return tuple(value.split(","))
