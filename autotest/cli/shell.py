"""``autotest shell``: Python with the testbed, the plan and the results at hand, in IPython where that is installed."""

from __future__ import annotations

import argparse
import logging
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from autotest import __version__
from autotest.cli.commands import load_configuration
from autotest.errors import EXIT_FAILED, EXIT_OK, AutotestError, UsageError, printable

if TYPE_CHECKING:
    import pandas as pd

    from autotest.run.campaign import Campaign
    from autotest.servers.testbed import Servers

log = logging.getLogger(__name__)

_BANNER: Final = """\
autotest {version}, testbed {file}
{names}
  SERVER.run(["uname", "-r"]).stdout    run a command, given as a list
  SERVER.ping()                         seconds to reach it
  SERVER.transport.put(PATH, "/there")  copy a file there; get("/there", PATH)
  SERVER.session("name")                a tmux session: start([...]), output()
  SERVER.links.show("eth0")             what is known of a network interface
  host.kill_guest()                     ends the guests of run-guest
  host.machine(2).guest                 the second of several guests
  guest.reflector_up("xdp")             or "moongen"; and reflector_down("xdp")
  loadgen.run_load("l2-load-latency.lua", ["52:54:00:fa:00:60", "--rate", "5",
      "--time", "1", "--file", "/dev/null"], fetch={{}}, seconds=1, timeout=20)
  plan                                  what tests.conf plans, what is done
  results(), results("directory")       trials as a pandas DataFrame
servers and testbed are there, too; help(host) says more. What you change stays
until autotest recover undoes it. End with Ctrl-D."""


def shell(options: argparse.Namespace) -> int:
    from autotest.cli.console import Ended, Signals, interact
    from autotest.run.opening import open_testbed

    if options.script and not options.script.is_file():
        raise UsageError(f"{options.script}: there is no such file")
    testbed = load_configuration(options)
    files = options.tests or [path for path in (Path("tests.conf"),) if path.is_file()]
    plan = _plan(files)
    signals = Signals()
    with open_testbed(testbed) as servers, servers.journal.kept("shell"):
        shown = {server.name: server for server in servers.all() if not getattr(options, f"no_{server.name}")}
        namespace = {**shown, "servers": servers, "testbed": testbed, "plan": plan, "results": Results(files)}
        try:
            with signals.insisting():
                if options.script:
                    runpy.run_path(str(options.script), namespace, "__main__")
                    return EXIT_OK
                return interact(namespace, "" if options.quiet else _banner(servers, shown), signals)
        except Ended:
            raise
        except SystemExit as error:  # exit() is another way to say Ctrl-D
            return _exit_code(error)


def _plan(files: Sequence[Path]) -> Campaign | None:
    """What is planned; a file that is wrong is named, and none of our business otherwise."""
    from autotest.cli.campaigns import load_campaign

    if not files:
        return None
    try:
        return load_campaign(list(files))
    except AutotestError as error:
        for line in str(error).splitlines():
            log.warning("plan is None: %s", line)
        return None


def _banner(servers: Servers, shown: dict[str, Any]) -> str:
    names = "\n".join(f"{name}: {server!r}" for name, server in shown.items())
    return printable(_BANNER.format(version=__version__, file=servers.testbed.file, names=names))


def _exit_code(error: SystemExit) -> int:
    """As Python itself takes it."""
    if error.code is None or isinstance(error.code, int):
        return error.code or EXIT_OK
    print(printable(str(error.code)), file=sys.stderr)
    return EXIT_FAILED


class Results:
    """``results`` of the shell: what output directories hold, as ``autotest export`` makes it."""

    def __init__(self, files: Sequence[Path]) -> None:
        self._files = files

    def __call__(
        self,
        *sources: str | Path,
        select: str | Sequence[str] = (),
        exclude: str | Sequence[str] = (),
        accept: str | Sequence[str] = (),
        per_guest: bool = False,
    ) -> pd.DataFrame:
        """A row per trial, or per trial and guest: docs/export.md describes the columns.

        Args:
            sources: output directories and tests.conf files, as export takes them; those of the plan where none is given.
            select, exclude, accept: as the options of that name.

        Raises:
            UsageError: there is no such thing, or nothing in it.
            ResultsError: it cannot be read.
        """
        from autotest.cli.reporting import accepted, selected
        from autotest.report.export import Request, tidy

        of = [str(source) for source in sources or self._files]
        if not of:
            raise UsageError('there is no tests.conf: name an output directory, like results("results")')
        lists = {"select": _listed(select), "exclude": _listed(exclude), "accept": _listed(accept), "section": []}
        options = argparse.Namespace(sources=of, **lists)
        request = Request(tuple(of), tuple(lists["select"]), accepted(options), per_guest)
        return tidy([trials for _, trials in selected(options)], request)

    def __repr__(self) -> str:
        return 'results() is a pandas DataFrame of the plan\'s trials,\nresults("directory") of those in a directory; help(results) says more'


def _listed(given: str | Sequence[str]) -> list[str]:
    return [given] if isinstance(given, str) else list(given)
