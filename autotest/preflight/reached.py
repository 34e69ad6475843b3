"""A server that can be worked on: reached, and commands run there as root."""

from __future__ import annotations

from dataclasses import dataclass

from autotest.errors import ConnectError
from autotest.preflight.requirement import Finding, Requirement, failed, passed
from autotest.preflight.survey import Survey

_TIMEOUT = 10.0  # seconds


@dataclass(frozen=True)
class Reached(Requirement):
    """The server answers, and can be changed."""

    @property
    def subject(self) -> str:
        return "reached, as root"

    def look(self, survey: Survey) -> Finding:
        server = survey.server(self.server)
        try:
            milliseconds = server.ping(_TIMEOUT) * 1000
        except ConnectError as error:
            text = str(error).removeprefix(f"{self.server}: ")
            return failed(text, f"fqdn and ssh_config of [{self.server}]: autotest ping tries again")
        ended = server.run(["true"], sudo=True, check=False)
        if ended.code != 0:
            why = ended.stderr.strip() or f"exit code {ended.code}"
            return failed(
                f"{server.config.fqdn}: nothing can be run as root: {why}", "log in as root, or let sudo ask for no password"
            )
        way = "here" if server.transport.is_local else f"over SSH in {milliseconds:.1f} ms"
        return passed(f"{server.config.fqdn}, {way}")
