"""Where an SSH destination leads, after ``~/.ssh/config`` or the configured file (ssh_config(5))."""

from __future__ import annotations

import getpass
from dataclasses import dataclass
from pathlib import Path

import paramiko

from autotest.errors import ConnectError

_DEFAULT_CONFIG = Path("~/.ssh/config")
_DEFAULT_KNOWN_HOSTS = ("~/.ssh/known_hosts", "/etc/ssh/ssh_known_hosts")


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
    options = _load(config_file).lookup(name)
    jumps = options.get("proxyjump", "none")
    proxy = options.get("proxycommand", "none")
    try:
        return Destination(
            alias=alias,
            host=options.get("hostname", name),
            port=port or int(options.get("port", 22)),
            user=user or options.get("user") or getpass.getuser(),
            key_files=tuple(options.get("identityfile", ())),
            only_these_keys=options.get("identitiesonly", "no").lower() == "yes",
            known_hosts=_known_hosts(options),
            host_key_alias=options.get("hostkeyalias"),
            jumps=() if jumps.lower() == "none" else tuple(jump.strip() for jump in jumps.split(",")),
            proxy_command="" if proxy.lower() == "none" else proxy,
            connect_timeout=float(options.get("connecttimeout", 10)),
            ciphers=_names(options.get("ciphers")),
            key_exchanges=_names(options.get("kexalgorithms")),
        )
    except ValueError as error:
        raise ConnectError(f"{alias}: {config_file or _DEFAULT_CONFIG}: {error}") from None


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
    except (OSError, UnicodeDecodeError, paramiko.ConfigParseError) as error:
        raise ConnectError(f"ssh_config {path}: {error}") from None


def _known_hosts(options: dict[str, str]) -> tuple[str, ...]:
    files = " ".join(options.get(key, "") for key in ("userknownhostsfile", "globalknownhostsfile"))
    return tuple(str(Path(file).expanduser()) for file in files.split() or _DEFAULT_KNOWN_HOSTS)


def _names(value: str | None) -> tuple[str, ...]:
    """A plain list of algorithm names; the +, - and ^ forms keep the library's own order."""
    if not value or value[0] in "+-^":
        return ()
    return tuple(value.split(","))
