"""Agents' Python in this process."""
from __future__ import annotations

import weakref
from typing import Any, Dict, Iterable, List, Optional

from .runtimes import Runtime
from .tools import Tool

__all__ = ["LocalRuntime"]


class LocalRuntime(Runtime):
    """Sessions as threads of this process and this interpreter: nothing is started, and tools that are not
    `proxy=True` are handed over as they are, with all that they refer to.

    Each session is a daemon thread with a namespace, streams, a working directory and, when a cell needs one, an
    event loop of its own. What it prints is its own, also from threads that it starts and while other agents print.
    `exec_timeout` is in seconds of a cell; `working_directory` (None: that of the process) is its directory alone.
    `sys.exit()` and `KeyboardInterrupt` end a cell, not the process.

    There is no isolation, and what an interpreter does not keep apart is not kept apart here:

    - Code can read and change everything in this process: modules, environment variables, the objects that tools
      refer to. `os._exit()`, a crash in C code or running out of memory ends the process with all of its agents.
    - Only code of the interpreter can be interrupted. A cell that waits in C code (`time.sleep(3600)`, a lock, a
      long match of a regular expression), or that swallows every exception, is abandoned when its time is over: the
      run goes on with a new session, and the thread lives on until its call returns. `abandoned` names them.
    - All agents share the interpreter's lock, so they compute in turn, not at once; `cpu_time` is not limited.
    - What C code and child processes write to descriptors 1 and 2 goes where the process's output goes.
    - The seed of hashes and `random` are the process's, so a cell that runs again may print something else.
    - While sessions live, `sys.stdin`, `sys.stdout`, `sys.stderr`, `threading.Thread.start`, `asyncio.run` and
      new event loops differ for the threads of sessions, and are as ever for all others."""

    in_process = True

    def __init__(self, working_directory: Any = None, *, exec_timeout: Optional[float] = None):
        super().__init__(working_directory=working_directory, exec_timeout=exec_timeout)
        self._engaged: Any = weakref.WeakSet()  # what goes on

    @property
    def abandoned(self) -> List[str]:
        """The ids of agents whose cells could not be stopped, and whose threads still run."""
        return [name for engaged in tuple(self._engaged) for name in engaged.abandoned()]

    def _source_of(self, tool: Tool) -> Optional[str]:
        return None if tool.metadata.proxy else ""

    def _engine_runtime(self, tools: Iterable[Tool] = ()) -> Any:
        from ._local_sessions import Engaged, THREADS

        engaged = Engaged(self.working_directory, self._by_reference(tools))
        self._engaged.add(engaged)
        return THREADS.engage(engaged)

    def _by_reference(self, tools: Iterable[Tool]) -> Dict[str, Any]:
        return {tool.metadata.name: tool.in_directory(self.working_directory)
                for tool in tools if not tool.metadata.proxy}
