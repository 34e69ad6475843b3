"""The consoles of ``autotest shell``: IPython, Python's own, and Python's own without a terminal."""

from __future__ import annotations

import code
import inspect
import logging
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from autotest.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK
from autotest.run import interruption

log = logging.getLogger(__name__)

_MOST_LINES: Final = 10_000  # of history
_UNTIL_AGAIN: Final = 1.0  # seconds


class Ended(SystemExit):
    """The process was asked to end. Consoles end a line for a KeyboardInterrupt, but themselves for this."""

    def __init__(self) -> None:
        super().__init__(EXIT_INTERRUPTED)


class Signals:
    """Ctrl-C ends a line of the shell. SIGTERM, and SIGHUP when the terminal is gone, end the shell: then all is undone.

    A line may swallow what ends it, as with ``except:`` in a loop: :meth:`insisting` it is ended again and again.
    """

    def __init__(self) -> None:
        self.asked_to_end = False
        self._insists = False
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) != signal.SIG_IGN:  # as SIGHUP is under nohup
                signal.signal(number, self._end)

    def _end(self, number: int, frame: object) -> None:
        self.asked_to_end = True
        interruption.request()
        if self._insists:
            signal.signal(signal.SIGALRM, self._end_again)
            signal.setitimer(signal.ITIMER_REAL, _UNTIL_AGAIN, _UNTIL_AGAIN)
        raise Ended

    def _end_again(self, number: int, frame: object) -> None:
        if self._insists:
            raise Ended

    @contextmanager
    def insisting(self) -> Iterator[None]:
        """While the user's lines are run; what undoes them must not be ended again."""
        self._insists = True
        try:
            yield
        finally:
            self._insists = False
            signal.setitimer(signal.ITIMER_REAL, 0)


def interact(namespace: dict[str, Any], banner: str, signals: Signals) -> int:
    """Let the user, or a script on standard input, work with these variables; returns the exit code."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        console = _Console(namespace)
        console.interact(banner, exitmsg="")
        return EXIT_FAILED if console.failed else EXIT_OK
    try:
        _interact_on_terminal(namespace, banner, signals)
    finally:
        if signals.asked_to_end:  # a terminal that is gone made something else of it
            raise Ended
    return EXIT_OK


def _interact_on_terminal(namespace: dict[str, Any], banner: str, signals: Signals) -> None:
    application: Any = None
    with suppress(ImportError):
        from IPython.terminal.ipapp import TerminalIPythonApp as application
    # Not within the handler: each exception of the user's would then be said to have come during this one.
    if application:
        _interact_in_ipython(application, namespace, banner, signals)
    else:
        _Terminal(namespace, history_file("shell-history")).interact(banner, exitmsg="")


def history_file(name: str) -> Path | None:
    """Where the lines of earlier shells are kept, for their user's eyes only; None where nothing can be kept."""
    from autotest.run.recovery import state_folder

    path = state_folder() / name
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.touch(0o600)
    except OSError as error:
        log.warning("the history is not kept: %s", error)
        return None
    return path


class _Console(code.InteractiveConsole):
    """Python's own; it goes on after an exception, and knows that there was one."""

    failed = False

    def showtraceback(self) -> None:
        self.failed = True
        super().showtraceback()

    def showsyntaxerror(self, *arguments: Any, **options: Any) -> None:
        self.failed = True
        super().showsyntaxerror(*arguments, **options)


class _Terminal(_Console):
    """Python's own, with completion, and with history: each line is kept at once, however the shell ends."""

    def __init__(self, namespace: dict[str, Any], history: Path | None) -> None:
        super().__init__(namespace)
        self._history = history
        try:
            import readline
            import rlcompleter
        except ImportError:  # a Python that was built without it
            self._readline = None
            return
        self._readline = readline
        completer = rlcompleter.Completer(namespace)
        completer.attr_matches = partial(attributes, namespace)  # type: ignore[method-assign]
        readline.set_completer(completer.complete)
        libedit = "libedit" in (readline.__doc__ or "")
        readline.parse_and_bind("bind ^I rl_complete" if libedit else "tab: complete")
        readline.set_history_length(_MOST_LINES)
        if history:
            try:
                readline.read_history_file(history)
            except OSError as error:
                log.warning("the history cannot be read: %s", error)

    def raw_input(self, prompt: str = "") -> str:
        line = super().raw_input(prompt)
        if self._readline and self._history and line:
            try:
                if hasattr(self._readline, "append_history_file"):
                    self._readline.append_history_file(1, self._history)
                else:  # with some libedits; then the last of several shells at once has its lines kept
                    self._readline.write_history_file(self._history)
            except OSError as error:
                log.warning("the history is not kept any more: %s", error)
                self._history = None
        return line


def attributes(namespace: dict[str, Any], text: str) -> list[str]:
    """What ``host.pi`` may become. No attribute is worked out for that: some ask the machine."""
    head, _, tail = text.rpartition(".")
    try:
        thing = eval(head, namespace)  # names and dots that the user has typed
    except Exception:  # noqa: BLE001  # whatever the attributes of the user's own things raise
        return []
    names = [name for name in dir(thing) if name.startswith(tail) and (tail.startswith("_") or not name.startswith("_"))]
    return [f"{head}.{name}{'(' * callable(inspect.getattr_static(thing, name, None))}" for name in names]


def _interact_in_ipython(application: Any, namespace: dict[str, Any], banner: str, signals: Signals) -> None:
    """The user's profile of IPython, but with our history: what is typed here is of no use elsewhere."""
    from IPython.terminal.interactiveshell import TerminalInteractiveShell
    from traitlets.config import Config

    config = Config()
    config.TerminalInteractiveShell.banner1 = f"{banner}\n" if banner else ""
    config.TerminalInteractiveShell.banner2 = ""
    config.TerminalInteractiveShell.confirm_exit = False
    if "enable_tip" in TerminalInteractiveShell.class_trait_names():  # not in older ones
        config.TerminalInteractiveShell.enable_tip = False
    history = history_file("shell-history.sqlite")
    config.HistoryManager.hist_file = str(history) if history else ":memory:"
    # Each line is kept at once, however the shell ends.
    config.HistoryManager.db_cache_size = 0
    app = application.instance(config=config, user_ns=namespace)
    app.initialize([])
    # IPython takes what the signal raises within a line for an exit() that was meant as a mere error.
    app.shell.events.register("post_run_cell", lambda result: app.shell.ask_exit() if signals.asked_to_end else None)
    app.start()
