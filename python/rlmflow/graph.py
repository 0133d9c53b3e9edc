"""An agent's trajectory and, nested, its children's."""
from __future__ import annotations

from typing import Dict, Iterator, List, Optional

from .nodes import LLMUsage, Node, node_from_json
from .values import from_json

__all__ = ["Graph"]


def _usage(counts: tuple) -> LLMUsage:
    calls, input_tokens, cached, output_tokens, cost_nano, estimated = counts
    return LLMUsage(input_tokens, output_tokens, cached, calls, cost_nano / 1e9, estimated)


class Graph:
    """One agent of a run; `children` are those that it launched. A look at a run that goes on shows what is
    there at that moment."""

    def __init__(self, _look, _drive=None):
        self._look, self._drive = _look, _drive
        self._messages: Optional[list] = None
        self._info = _look.info()
        self._nodes: List[Node] = []

    agent_id = property(lambda self: self._info["agent_id"])
    graph_id = property(lambda self: self._info["graph_id"])
    query = property(lambda self: self._info["query"])
    model = property(lambda self: self._info["model"])
    depth = property(lambda self: self._info["depth"])
    parent_agent_id = property(lambda self: self._info["parent_agent_id"])

    @property
    def inputs(self) -> dict:
        """The inputs by name; a value of 64 KiB or more is described by its blob, as {"$blob": ...}."""
        return from_json(self._info["inputs"] or "{}")

    @property
    def output_schema(self) -> Optional[dict]:
        return from_json(self._info["output_schema"]) if self._info["output_schema"] else None

    @property
    def nodes(self) -> List[Node]:
        """The trajectory, as it is now."""
        self._nodes += [node_from_json(text) for text in self._look.nodes(len(self._nodes))]
        return list(self._nodes)

    @property
    def children(self) -> Dict[str, "Graph"]:
        """Agent id to graph, in order of creation."""
        return {g.agent_id: g for g in (Graph(look, self._drive) for look in self._look.children())}

    def current(self) -> Optional[Node]:
        nodes = self.nodes
        return nodes[-1] if nodes else None

    def result(self) -> str:
        """The answer; "" while there is none. JSON text under an output schema."""
        return self._look.state()["result"]

    @property
    def reason(self) -> str:
        """Why the agent ended; "" while it has not."""
        return self._look.state()["reason"]

    @property
    def finished(self) -> bool:
        """The agent has ended, and all below it."""
        return all(g._look.state()["finished"] for g in self.walk())

    def usage(self, *, recursive: bool = True) -> LLMUsage:
        state = self._look.state()
        return _usage(state["usage_of_all" if recursive else "usage"])

    def tokens(self, *, recursive: bool = True) -> tuple:
        """(input tokens, output tokens)"""
        usage = self.usage(recursive=recursive)
        return usage.input_tokens, usage.output_tokens

    def total_tokens(self, *, recursive: bool = True) -> int:
        return sum(self.tokens(recursive=recursive))

    def walk(self) -> Iterator["Graph"]:
        """This graph and all below it, parents first."""
        todo = [self]
        while todo:
            g = todo.pop()
            yield g
            todo += reversed(list(g.children.values()))

    @property
    def agents(self) -> Dict[str, "Graph"]:
        return {g.agent_id: g for g in self.walk()}

    def __getitem__(self, agent_id: str) -> "Graph":
        look = self._look.agent(agent_id)
        if look is None:
            raise KeyError(agent_id)
        return Graph(look, self._drive)

    def __contains__(self, agent_id: str) -> bool:
        return self._look.agent(agent_id) is not None

    def __str__(self) -> str:
        return self._look.tree().rstrip("\n")

    def __repr__(self) -> str:
        state = self._look.state()
        return f"<Graph {self.agent_id} of {self.graph_id}: {state['nodes']} nodes, {state['children']} children>"
