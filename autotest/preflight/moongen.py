"""MoonGen, or softmoon, on a server whose NIC it drives."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from autotest.config.testbed import ServerConfig
from autotest.preflight.requirement import Finding, Requirement, failed, passed
from autotest.preflight.survey import Survey
from autotest.traffic.moongen import BINARIES, MoonGen

_LUAJIT = "luajit"
# What it prints is missing. MoonGen is a binary that needs its libraries, softmoon a script that needs LuaJIT.
_MISSING = """
ldd "$1" 2>/dev/null | sed -n 's/^[[:space:]]*\\(.*\\) => not found$/\\1/p'
if [ "$(head -c 2 "$1")" = '#!' ] && grep -q luajit "$1" && ! command -v luajit >/dev/null; then echo luajit; fi
"""


@dataclass(frozen=True)
class MoonGenThere(Requirement):
    """``moongen_dir`` holds the program, or will with the programs that are copied there, and what it needs to start is there."""

    @property
    def subject(self) -> str:
        return "MoonGen"

    def look(self, survey: Survey) -> Finding:
        server = survey.server(self.server)
        if copied := _copied(survey, server.config):
            needs_luajit = _LUAJIT in copied.read_text(errors="replace")
            if needs_luajit and server.run(["sh", "-c", f"command -v {_LUAJIT}"], check=False, sudo=True).code != 0:
                return failed(f"{copied.parents[1].name} needs {_LUAJIT}, which is not there", "install it there")
            return passed(f"{copied.parents[1].name}, copied to moonprogs_dir for the test")
        binary = MoonGen(server).binary()  # raises where there is none
        missing = server.run(["sh", "-c", _MISSING, "sh", binary], sudo=True).stdout.split()
        if missing:
            return failed(f"{binary} needs {', '.join(missing)}, which is not there", "install it there")
        return passed(binary)


def _copied(survey: Survey, config: ServerConfig) -> Path | None:
    """The program here, where ``moongen_dir`` is a part of what is copied to ``moonprogs_dir``; else None."""
    folder, target = PurePosixPath(config.moongen_dir or "/"), config.moonprogs_dir
    if not target or not folder.is_relative_to(target):
        return None
    here = survey.servers.local_moonprogs / folder.relative_to(target)
    return next((here / binary for binary in BINARIES if (here / binary).is_file()), None)
