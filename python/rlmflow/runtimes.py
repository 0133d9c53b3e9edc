"""Where agents' Python runs."""
from __future__ import annotations

import os
import sys
from typing import Any, Callable, Dict, Iterable, List, Optional

from . import _engine
from ._arguments import Arguments
from .tools import Tool

__all__ = ["CommandRuntime", "Runtime", "SubprocessRuntime"]


class Runtime:
    """Opens sessions somewhere. Tools registered here are seen by every agent of the flows that use it.
    `working_directory`: of the sessions (None: that of this process). `exec_timeout`: seconds of a cell (None:
    120). `in_process`: its sessions are threads of this process."""

    in_process = False

    def __init__(self, working_directory: "Optional[str | os.PathLike[str]]" = None, *,
                 exec_timeout: Optional[float] = None):
        checked = Arguments(type(self).__name__)
        directory = checked.path("working_directory", working_directory)
        self.working_directory = None if directory is None else os.path.abspath(directory)
        checked.milliseconds("exec_timeout", exec_timeout, "seconds of a cell")
        self.exec_timeout = exec_timeout
        self.tools: Dict[str, Tool] = {}

    def register_tool(self, fn: Callable, *, name: Optional[str] = None) -> None:
        """Makes the function `fn` callable by agents, as `name` or its own. ValueError: its name is taken by
        the engine, or it cannot go into sessions (see `tool`)."""
        made = Tool(fn, name)
        made.check()
        self._source_of(made)
        self.tools[made.metadata.name] = made

    def register_tools(self, fns: Iterable[Callable]) -> None:
        """The same for each of `fns`. `FILE_TOOLS`, which sessions have anyway, may be among them."""
        for fn in Arguments("register_tools").listed("fns", fns, "functions"):
            self.register_tool(fn)

    def open(self, graph: Any) -> Any:
        """Opens the session of an agent: a backend (sessions.py) to be awaited, or used at once.

        Override it, also as `async def`, to return what gates this backend's `start` and `resume`, or runs
        cells in a way of its own. `graph` is the agent's. An override that raises fails the agent."""
        from ._backends import open_inner

        return open_inner(self, graph)

    def _check_can_open(self) -> None:
        """Raises, before a run begins, when no session could be opened."""

    def _source_of(self, tool: Tool) -> Optional[str]:
        """What sessions get of a tool: its source, "" when they have it, or None when it runs on the host."""
        if tool.metadata.proxy:
            return None
        return "" if tool.is_built_in else tool.source

    def _as_custom(self) -> Optional[tuple]:
        """Name and effects of a runtime whose class overrides `open`, else None."""
        if type(self).open is Runtime.open:
            return None
        return type(self).__name__, getattr(self, "effects", "outside")

    def _engine_runtime(self, tools: Iterable[Tool] = ()) -> Any:
        """What the engine knows of it, for a run with these tools."""
        raise NotImplementedError(f"{type(self).__name__} has no sessions of its own to open")


class _WorkerRuntime(Runtime):
    """One whose sessions are workers that the engine starts."""

    _made: Any = None

    def _make(self) -> Any:
        raise NotImplementedError

    def _engine_runtime(self, tools: Iterable[Tool] = ()) -> Any:
        if self._made is None:
            self._made = self._make()
        return self._made


class SubprocessRuntime(_WorkerRuntime):
    """Sessions as plain child processes of any Python from 3.8 on. No isolation: agents can do what you can do.

    `python`: the interpreter, that of this program unless given, so that sessions have its packages; where this
    program is none, for it embeds Python, "python3" of PATH. `env`: variables that sessions get beside PATH,
    HOME, LANG and TZ. `spare`: workers kept started ahead; each is used once. `exec_timeout`: seconds of a
    cell."""

    def __init__(self, *, working_directory: "Optional[str | os.PathLike[str]]" = None,
                 python: Optional[str] = None, env: Optional[Dict[str, str]] = None, spare: int = 0,
                 exec_timeout: Optional[float] = None):
        super().__init__(working_directory=working_directory, exec_timeout=exec_timeout)
        checked = Arguments(type(self).__name__)
        self.python = checked.text("python", python) or _this_python()
        self.env = checked.env("env", env)
        self.spare = checked.whole("spare", spare, 0, what="workers kept started ahead") or 0

    def _make(self) -> Any:
        return _engine.Runtime.subprocess(self.python, self.working_directory, _variables(self.env), self.spare)


class CommandRuntime(_WorkerRuntime):
    """Sessions behind a command that passes a byte stream on, one process of it for each:

        CommandRuntime(["kubectl", "exec", "-i", "POD", "--"])
        CommandRuntime(["ssh", "-T", "HOST", "{worker}"])

    The words that start the worker are put behind `argv`. A command that wants a line of shell has "{worker}"
    in one of its arguments: there the line stands. The far side needs a Python of 3.8 or newer, `python`, and
    nothing of ours. What isolates the agent is the command's business; one that starts its Python here, as
    `unshare`, lets it do what you can do there.

    `env`: variables of the command, beside PATH, HOME, LANG and TZ: an ssh with an agent wants SSH_AUTH_SOCK.
    Where the command leads into another machine they stay here. `workdir`: directory on the far side.
    `exec_timeout`: seconds of a cell. A command that is not there, that ends, or that says something before the
    worker does (a banner, a question for a password) ends the session, and the agent is told what was said."""

    def __init__(self, argv: Iterable[str], *, python: Optional[str] = None, env: Optional[Dict[str, str]] = None,
                 workdir: Optional[str] = None, exec_timeout: Optional[float] = None):
        super().__init__(exec_timeout=exec_timeout)
        checked = Arguments(type(self).__name__)
        if isinstance(argv, str):
            raise checked.wrong("argv", argv, f"a command is a list of its words, as {argv.split()}", TypeError)
        self.argv = [checked.prose(f"argv[{i}]", word, False) for i, word in enumerate(
            checked.listed("argv", argv, "the words of a command"))]
        self.python, self.workdir = checked.text("python", python), checked.text("workdir", workdir)
        self.env = checked.env("env", env)
        if not self.argv or not self.argv[0]:
            raise checked.wrong("argv", self.argv, "there is no command")

    def _make(self) -> Any:
        return _engine.Runtime.command(self.argv, self.python, self.workdir, _variables(self.env))


def _this_python() -> Optional[str]:
    """The interpreter that runs this program; None where that is not one, or Python does not know it."""
    path = sys.executable or ""
    is_python = os.path.basename(path).lower().startswith(("python", "pypy"))
    return path if is_python and os.access(path, os.X_OK) else None


def _variables(env: Dict[str, str]) -> List[str]:
    return [f"{name}={value}" for name, value in env.items()]
