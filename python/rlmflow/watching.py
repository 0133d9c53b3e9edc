"""Watching runs: `Flow(watch=True)` shows the tree of agents as it grows, `Flow(watch=consumer)` tells of each change.

On a terminal the tree is drawn anew on stderr as it changes; in a notebook the output of the cell is; elsewhere each
change is one line on stderr. What models and agents say is shown without escape sequences."""
from __future__ import annotations

import contextlib
import html
import inspect
import os
import sys
import warnings
from typing import TYPE_CHECKING, Any, Callable, Iterable, Optional, TextIO, Union

from ._arguments import Arguments
from .events import AddChild, AppendNode, Event
from .graph import Graph, check_graph
from .values import describe, shown

if TYPE_CHECKING:
    from ._drive import Drive

__all__ = ["ConsumerGroup", "LiveTreeRenderer", "StreamConsumer", "render_tree"]

REDRAW_S = 0.1
LINE_COLUMNS = 200

Watch = Union[None, bool, "StreamConsumer", Callable[[Event, Graph], Any]]


def render_tree(graph: Graph) -> str:
    """The tree of agents as text, as `str(graph)`."""
    check_graph(graph)
    return str(graph)


class StreamConsumer:
    """Hears of a run's changes, in their order, on the loop that drives it."""

    def handle(self, event: Event, graph: Graph) -> None:
        """The change `event` of the tree whose root is `graph`."""

    def close(self) -> None:
        """Nothing more comes from this run."""


class ConsumerGroup(StreamConsumer):
    """Hands on to several `consumers`, and closes them in reverse."""

    def __init__(self, consumers: Iterable[StreamConsumer] = ()):
        self.consumers = Arguments("ConsumerGroup").listed("consumers", consumers, "consumers")
        for consumer in self.consumers:
            if not callable(getattr(consumer, "handle", None)):
                raise TypeError(f"ConsumerGroup: {shown(consumer)} is no consumer: it has no handle(event, graph)")

    def handle(self, event: Event, graph: Graph) -> None:
        for consumer in self.consumers:
            consumer.handle(event, graph)

    def close(self) -> None:
        for consumer in reversed(self.consumers):
            consumer.close()


class LiveTreeRenderer(StreamConsumer):
    """Shows the tree of agents as it grows, where it is looked at: in a notebook, on a terminal, else as lines.

    `file`: where to (sys.stderr). `clear`: on a terminal the tree that was drawn before makes way."""

    def __init__(self, file: Optional[TextIO] = None, *, clear: bool = True):
        self.file, self.clear = file, clear
        self.graph: Optional[Graph] = None
        self.lines = 0  # on the terminal, of the tree that stands there
        self.shown: Any = None  # in a notebook
        self.timer: Any = None
        self.drawn = ""

    def handle(self, event: Event, graph: Graph) -> None:
        import asyncio

        self.graph = graph
        if self._is_live():
            if self.timer is None:
                self._draw()
                self.timer = asyncio.get_running_loop().call_later(REDRAW_S, self._draw_again)
        else:
            line = _line_of(event, graph)
            if line is not None:
                self._write(line + "\n")

    def close(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        if self.graph is not None and self._is_live():
            self._draw()
        self.graph, self.lines, self.shown, self.drawn = None, 0, None, ""

    def _is_live(self) -> bool:
        return (self.file is None and _notebook() is not None) or self._is_terminal()

    def _is_terminal(self) -> bool:
        return bool(getattr(self._out, "isatty", lambda: False)()) and os.environ.get("TERM") != "dumb"

    @property
    def _out(self) -> Any:
        return self.file if self.file is not None else sys.stderr

    def _write(self, text: str) -> None:
        out = self._out
        if out is not None:
            encoding = getattr(out, "encoding", None) or "utf-8"
            out.write(text.encode(encoding, "replace").decode(encoding))
            out.flush()

    def _draw_again(self) -> None:
        self.timer = None
        self._draw()

    def _draw(self) -> None:
        graph = self.graph
        notebook = _notebook() if self.file is None else None
        assert graph is not None
        width, height = (0, 0) if notebook is not None else _size_of(self._out)
        tree = _tree_of(graph, width, height, color=notebook is None and "NO_COLOR" not in os.environ)
        if tree == self.drawn:
            return
        self.drawn = tree
        if notebook is not None:
            self._show(notebook, tree)
        else:
            self._write((f"\r\033[{self.lines}A\033[J" if self.clear and self.lines else "") + tree)
            self.lines = tree.count("\n")

    def _show(self, notebook: Any, tree: str) -> None:
        data = {"text/plain": tree, "text/html": as_html(tree)}
        if self.shown is None:
            self.shown = notebook.display(data, raw=True, display_id=True)
        else:
            self.shown.update(data, raw=True)


def _size_of(terminal: Any) -> "tuple[int, int]":
    """Columns and lines that a tree may take. One column stays free, since terminals wrap at the last one."""
    columns, lines = os.get_terminal_size(terminal.fileno())
    return max((columns or 80) - 1, 1), max((lines or 24) - 2, 2)


def as_html(tree: str) -> str:
    return f'<pre style="line-height: 1.2">{html.escape(tree)}</pre>'


def _tree_of(graph: Graph, width: int, height: int, color: bool) -> str:
    tree = graph._drive.run.tree(width, height, color) if graph._drive is not None else str(graph)
    return (tree or "").rstrip("\n") + "\n"


def _line_of(event: Event, graph: Graph) -> Optional[str]:
    """None of what says nothing new: the code of an action stands in the reply before it, the task of a
    sub-agent in the line of its start."""
    is_child, seq = isinstance(event, AddChild), event.node.seq if event.node else 0
    if not is_child and (not isinstance(event, AppendNode) or event.node_type == "exec_action"
                         or (event.node_type == "user_query" and "." in event.agent_id and seq == 0)):
        return None
    with contextlib.suppress(LookupError):  # it has been taken out meanwhile
        return graph[event.agent_id]._look.event_line(is_child, seq, LINE_COLUMNS)
    return None


def _notebook() -> Any:
    """The module with `display` where a notebook shows what is displayed; nothing is imported for it."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None and hasattr(ipython, "get_ipython") else None
    if shell is None or not hasattr(shell, "kernel"):
        return None
    import importlib

    return importlib.import_module("IPython.display")


def check_watch(watch: Any) -> None:
    """TypeError for what cannot watch a run."""
    if watch and watch is not True and not callable(getattr(watch, "handle", watch)):
        raise TypeError(f"Flow: watch={shown(watch)} is none of True, a function of (event, graph), an object with "
                        "handle(event, graph)")


class Watcher:
    """Hands the events of a drive to whoever watches it. One that raises is not asked again: watching ends no
    run."""

    def __init__(self, watch: Any, drive: "Drive"):
        self.drive = drive
        self.watch = LiveTreeRenderer() if watch is True else watch
        self.handle: Any = getattr(self.watch, "handle", self.watch)

    def event(self, event: Event) -> None:
        if self.handle is None:
            return
        try:
            result = self.handle(event, self.drive.root)
            if inspect.isawaitable(result):
                getattr(result, "close", lambda: None)()
                raise TypeError("it returned an awaitable; it is a plain function")
        except Exception as e:
            self.give_up(e)

    def close(self) -> None:
        try:
            if self.handle is not None:
                getattr(self.watch, "close", lambda: None)()
        except Exception as e:
            self.give_up(e)

    def give_up(self, error: Exception) -> None:
        self.handle = None
        warnings.warn(f"what watches the run raised {describe(error)}; it is told nothing more")
