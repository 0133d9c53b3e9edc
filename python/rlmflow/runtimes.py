"""Where agents' Python runs."""
from __future__ import annotations

import os
from typing import Any, Callable, Dict, Iterable, Optional

from . import _engine
from ._backends import open_inner
from .tools import Tool

__all__ = ["Runtime", "SubprocessRuntime"]


class Runtime:
    """Opens sessions somewhere. Tools registered here are seen by every agent of the flows that use it."""

    def __init__(self, *, working_directory: "Optional[str | os.PathLike[str]]" = None,
                 exec_timeout: Optional[float] = None):
        self.working_directory = None if working_directory is None else os.path.abspath(working_directory)
        self.exec_timeout = exec_timeout
        self.tools: Dict[str, Tool] = {}

    def register_tool(self, fn: Callable, *, name: Optional[str] = None) -> None:
        """Makes a function callable by agents."""
        made = Tool(fn, name)
        self.tools[made.metadata.name] = made

    def register_tools(self, fns: Iterable[Callable]) -> None:
        for fn in fns:
            self.register_tool(fn)

    def open(self, graph: Any) -> Any:
        """Opens the session of an agent: a backend (sessions.py) to be awaited, or used at once.

        Override it, also as `async def`, to return what gates this backend's `start` and `resume`, or runs cells in
        a way of its own. `graph` is the agent's. An override that raises fails the agent."""
        return open_inner(self, graph)

    def _check_can_open(self) -> None:
        """Raises, before a run begins, when no session could be opened."""

    def _engine_runtime(self, tools: Iterable[Tool] = ()) -> Any:
        """What the engine knows of it, for a run with these tools."""
        raise NotImplementedError(f"{type(self).__name__} has no sessions of its own to open")


class SubprocessRuntime(Runtime):
    """Sessions as plain child processes of any Python from 3.8 on. No isolation: agents can do what you can do.

    `python`: the interpreter, "python3" of PATH unless given. `env`: variables that sessions get beside PATH, HOME,
    LANG and TZ. `spare`: workers kept started ahead; each is used once. `exec_timeout`: seconds of a cell."""

    def __init__(self, *, working_directory: "Optional[str | os.PathLike[str]]" = None,
                 python: Optional[str] = None, env: Optional[Dict[str, str]] = None, spare: int = 0,
                 exec_timeout: Optional[float] = None):
        super().__init__(working_directory=working_directory, exec_timeout=exec_timeout)
        self.python, self.env, self.spare = python, dict(env or {}), spare
        self._made: Any = None

    def _engine_runtime(self, tools: Iterable[Tool] = ()) -> Any:
        local = sorted(tool.metadata.name for tool in tools if not tool.metadata.proxy)
        if local:
            raise ValueError(f"tools cannot be taken into a session of {type(self).__name__}: {', '.join(local)}; mark "
                             "them @tool(proxy=True), and they run on the host, or use LocalRuntime")
        if self._made is None:
            self._made = _engine.Runtime.subprocess(
                self.python, self.working_directory, [f"{k}={v}" for k, v in self.env.items()], self.spare)
        return self._made
