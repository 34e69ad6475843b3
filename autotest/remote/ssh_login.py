"""Logging in over an open connection: host key, keys, algorithms."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import paramiko

from autotest.errors import ConnectError, HostKeyError, LoginRefused
from autotest.remote.ssh_config import Destination


class NoAnswer(ConnectError):
    """The far side said nothing in time; the connection is cut."""


@contextmanager
def watched(name: str, seconds: float, cut: Callable[[], None]) -> Iterator[None]:
    """Cut the connection when what is done within takes longer: the library waits for some answers without a limit.

    Raises:
        NoAnswer: the connection is cut.
    """
    late = threading.Event()

    def end() -> None:
        late.set()
        cut()

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    try:
        timer.start()
        yield
    except (paramiko.SSHException, EOFError, OSError):  # what the wait ends with when the connection is cut
        if not late.is_set():
            raise
    finally:
        timer.cancel()
    if late.is_set():
        raise NoAnswer(f"{name}: no answer within {seconds:g} s: the connection is cut")


def login(target: Destination, connection: socket.socket, limit: float = threading.TIMEOUT_MAX) -> paramiko.SSHClient:
    """Log in at the destination, in ``limit`` seconds; takes the connection over.

    Raises:
        HostKeyError: its host key is unknown, or another one than known.
        LoginRefused: it takes none of the keys.
        ConnectError: whatever else went wrong.
    """
    client = paramiko.SSHClient()
    for known_hosts in target.known_hosts:
        try:
            client.load_system_host_keys(known_hosts)
        except FileNotFoundError:
            continue
        except (OSError, ValueError, paramiko.hostkeys.InvalidHostKey) as error:
            raise ConnectError(f"{target.alias}: known hosts in {known_hosts} cannot be read: {error}") from None
    client.set_missing_host_key_policy(paramiko.RejectPolicy())
    try:
        with watched(target.alias, limit, client.close):
            client.connect(
                target.host_key_alias or target.host,
                port=22 if target.host_key_alias else target.port,
                username=target.user,
                key_filename=[key for key in target.key_files if os.path.exists(key)] or None,  # type: ignore[arg-type]  # a list is documented
                look_for_keys=not target.only_these_keys,
                allow_agent=not target.only_these_keys,
                sock=connection,
                banner_timeout=target.connect_timeout,
                auth_timeout=target.connect_timeout,
                transport_factory=lambda sock, **options: _transport(sock, target, **options),
            )
    except paramiko.BadHostKeyException as error:
        client.close()
        raise HostKeyError(
            f"{target.alias}: its host key is not the known one ({error.key.fingerprint}): if the machine was "
            f"installed anew, remove the old key with `ssh-keygen -R {target.host_key_name}`"
        ) from None
    except paramiko.AuthenticationException as error:
        client.close()
        raise LoginRefused(f"{target.alias}: login as {target.user} refused: {error}") from None
    except (paramiko.SSHException, EOFError, OSError) as error:
        client.close()
        if "not found in known_hosts" in str(error):
            raise HostKeyError(
                f"{target.alias}: its host key is unknown: check it and accept it by hand once, with "
                f"`ssh {target.alias}`, or add it to {target.known_hosts[0]}"
            ) from None
        raise ConnectError(f"{target.alias}: {error or type(error).__name__}") from None
    return client


def _transport(sock: socket.socket, target: Destination, **options: object) -> paramiko.Transport:
    transport = paramiko.Transport(sock, **options)  # type: ignore[arg-type]
    security = transport.get_security_options()
    if target.ciphers:
        security.ciphers = [name for name in target.ciphers if name in security.ciphers] or security.ciphers
    if target.key_exchanges:
        security.kex = [name for name in target.key_exchanges if name in security.kex] or security.kex
    return transport
