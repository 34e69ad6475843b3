"""The servers while they are looked at: what several requirements ask for is asked once."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, TypeVar

from autotest.config.testbed import Testbed
from autotest.preflight.requirement import Requirement
from autotest.servers.facts import MachineFacts, read_facts
from autotest.servers.server import Server
from autotest.servers.testbed import Servers

T = TypeVar("T")


class Survey:
    """One look at the servers.

    Args:
        servers: where commands are run.
        requirements: all that will be looked at: some are asked for together.
    """

    def __init__(self, servers: Servers, requirements: Collection[Requirement] = ()) -> None:
        self.servers = servers
        self.requirements = requirements
        self._known: dict[object, Any] = {}

    @property
    def testbed(self) -> Testbed:
        return self.servers.testbed

    def server(self, name: str) -> Server:
        """The server of that section."""
        return next(server for server in self.servers.all() if server.name == name)

    def once(self, key: object, ask: Callable[[], T]) -> T:
        """What was answered before under that key, else what is answered now."""
        if key not in self._known:
            self._known[key] = ask()
        known: T = self._known[key]
        return known

    def facts(self, name: str) -> MachineFacts:
        """What that machine is."""
        return self.once(("facts", name), lambda: read_facts(self.server(name)))

    def links(self, name: str) -> list[dict[str, Any]]:
        """Its network links, as iproute2 shows them."""
        return self.once(("links", name), self.server(name).links.all)
