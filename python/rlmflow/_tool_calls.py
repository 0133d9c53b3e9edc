"""Calls of tools that run on the host."""
from __future__ import annotations

import inspect
import os
import re
from typing import Any, Callable, Optional

from ._backends import PASSING
from .values import describe, from_json, to_json

_PATH = re.compile(r"(?<![\w.~-])(?:/[^/\s'\"`<>:;,|()\[\]{}]+)+")


class ToolCall:
    """One call, from its arguments to its answer."""

    def __init__(self, drive: Any, answer: Any, tool: Any, arguments: str):
        self.drive, self.answer, self.tool, self.arguments = drive, answer, tool, arguments
        self.directory: Optional[str] = drive.flow.runtime.working_directory

    def begin(self) -> None:
        if self.tool.metadata.is_async:
            self.start(self.drive.start, self.run_async())
        else:
            self.drive.pool.submit(self.answer, self.run)

    def start(self, start: Callable, coroutine: Any) -> None:
        """`start`: the drive's, by the thread that this is."""
        start(self.answer, coroutine, lambda why: self.answer.fail(f"{self.tool.metadata.name}() {why}"))

    def call(self) -> Any:
        args, kwargs = self.tool.signature.bind(from_json(self.arguments), self.directory)
        return self.tool.function(*args, **kwargs)

    def run(self) -> None:
        """In a thread of the pool."""
        try:
            result = self.call()
            if not inspect.isawaitable(result):
                self.give(result)
                return
        except BaseException as e:
            self.fail(e)
            return
        self.start(self.drive.start_from_thread, self.await_result(result))  # of a function that does not look async

    async def run_async(self) -> None:
        try:
            result = self.call()
        except PASSING:
            raise
        except BaseException as e:
            self.fail(e)
            return
        await self.await_result(result)

    async def await_result(self, result: Any) -> None:
        try:
            result = await result if inspect.isawaitable(result) else result
        except PASSING:
            raise
        except BaseException as e:
            self.fail(e)
            return
        self.give(result)

    def give(self, result: Any) -> None:
        try:
            text = to_json(result, f"what the tool {self.tool.metadata.name} returned")
        except Exception as e:
            self.answer.fail(without_host_paths(str(e), self.arguments, self.directory))
            return
        self.answer.value(text)

    def fail(self, error: BaseException) -> None:
        self.answer.fail(without_host_paths(describe(error), self.arguments, self.directory))


def without_host_paths(text: str, arguments: str, directory: Optional[str]) -> str:
    """A message for an agent: paths of this machine are cut to what stands in the working directory, or to their
    last part, unless the agent itself has named them."""
    def shown(match: Any) -> str:
        path = match.group()
        if path in arguments:
            return path
        if directory is not None and path.startswith(directory.rstrip("/") + "/"):
            return os.path.relpath(path, directory)
        above = os.path.dirname(path)
        exists = os.path.lexists(path) or (above != "/" and os.path.isdir(above))
        return os.path.basename(path) if exists else path

    return _PATH.sub(shown, text)
