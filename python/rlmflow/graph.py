"""An agent's trajectory and, nested, its children's."""
from __future__ import annotations

import dataclasses
import json
import os
import warnings
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, List, Optional, Union

from . import _engine
from ._arguments import MOST_INT64, Arguments, Path
from ._trees import line_of_event, lines_of_tree
from .nodes import LLMUsage, Node, as_node, node_for_engine, node_from_json
from .schema import Schema, json_schema_for
from .values import from_json, plain_json, shown

if TYPE_CHECKING:
    import pathlib

    from ._drive import Drive
    from .events import Event

__all__ = ["Graph", "GraphCheckpoint", "apply_graph_action"]

_OF_GRAPH = Arguments("Graph")
_WHERE = {"after": 0, "before": 1, "replace": 2}  # of enum rlm_inject


def _usage(counts: tuple) -> LLMUsage:
    calls, input_tokens, cached, output_tokens, cost_nano, estimated = counts
    return LLMUsage(input_tokens, output_tokens, cached, calls, cost_nano / 1e9, estimated)


@dataclasses.dataclass(frozen=True)
class GraphCheckpoint:
    """A place to come back to with `Graph.revert`: the end of the trajectory of the agent `agent_id`. `digest`
    covers the agent and all of the `position` nodes before it."""

    agent_id: str
    position: int
    digest: str


def _told(name: str, doc: str) -> property:
    return property(lambda self: self._info[name], doc=doc)


class Graph:
    """One agent; `children` are those that it launched. A look at a run that goes on shows what is there at
    that moment. `Graph(query=...)` begins a tree for `Flow.run(graph=...)`: when the run has begun it is the
    run's root, with the run's graph id.

    A tree that belongs to no run (loaded, built, forked) is at rest and may be edited, from any thread. Edits
    return the change that they made, as a stream would show it. A graph of a run is changed by its run alone:
    ValueError; edit a `fork`. A handle of an agent that was taken out raises KeyError.

    `inputs` and `output_schema` are those of the run, see `Flow.arun`. What no run begins with may have any
    `agent_id`, `model` (its name among the flow's) and `graph_id` ("": a new one).

    Methods that take an `agent_id` are about that agent, one in this graph (None: this graph's own)."""

    def __init__(self, query: str = "", *, inputs: Optional[dict] = None, output_schema: Optional[Schema] = None,
                 agent_id: str = "root", model: str = "default", graph_id: str = ""):
        _OF_GRAPH.string("query", query, False)
        given = dict(_OF_GRAPH.mapping("inputs", inputs))
        start = {"agent_id": _OF_GRAPH.text("agent_id", agent_id, False, lone=True),
                 "graph_id": _OF_GRAPH.prose("graph_id", graph_id, False), "query": query,
                 "model": _OF_GRAPH.text("model", model, False),
                 "output_schema": None if output_schema is None else json_schema_for(output_schema)}
        nodes = [{"type": "user_query", "content": query, "id": "n_" + os.urandom(8).hex()}] if query else []
        self._look_at(_engine.build(lines_of_tree({**start, "nodes": nodes})))
        self._given: Optional[dict] = given  # of a run that has not begun

    @classmethod
    def _of(cls, look: Any, drive: "Optional[Drive]" = None) -> "Graph":
        graph = cls.__new__(cls)
        graph._look_at(look, drive)
        return graph

    def _look_at(self, look: Any, drive: "Optional[Drive]" = None) -> None:
        self._look = look
        self._messages: Optional[list] = None
        self._info = look.info()
        self._nodes: List[Node] = []  # of a run, as far as they have been read; replaced, for other threads have it
        self._given = None
        self._drive = drive  # the last: whoever sees it sees what belongs to it

    agent_id = _told("agent_id", 'Unique in the tree: "root", "root.child0", ...')
    graph_id = _told("graph_id", "The id of the whole tree.")
    query = _told("query", "The task that the agent began with.")
    model = _told("model", "The name of its model among the flow's.")
    depth = _told("depth", "0 for the root, 1 for what it launched, ...")
    parent_agent_id = _told("parent_agent_id", "The id of the agent that launched it; None for the root.")

    @property
    def inputs(self) -> dict:
        """The inputs by name; a value of 64 KiB or more is described by its blob, as {"$blob": ...}."""
        return from_json(self._info["inputs"] or "{}") if self._given is None else dict(self._given)

    @property
    def output_schema(self) -> Optional[dict]:
        """The JSON Schema that the answer fits; None: any text is one."""
        return from_json(self._info["output_schema"]) if self._info["output_schema"] else None

    @property
    def nodes(self) -> List[Node]:
        """The trajectory, as it is now."""
        if self._drive is None:  # it may have been edited
            return [node_from_json(text) for text in self._look.nodes(0)]
        known = self._nodes
        come = [node_from_json(text) for text in self._look.nodes(len(known))]
        if come:
            self._nodes = known = [*known, *come]
        return list(known)

    @property
    def children(self) -> Dict[str, "Graph"]:
        """Agent id to graph, in order of creation."""
        return {g.agent_id: g for g in (Graph._of(look, self._drive) for look in self._look.children())}

    def current(self) -> Optional[Node]:
        """The last node; None while there is none."""
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
        """What model calls took, of the agent and, `recursive`, of all below it."""
        state = self._look.state()
        return _usage(state["usage_of_all" if recursive else "usage"])

    def tokens(self, *, recursive: bool = True) -> tuple:
        """(input tokens, output tokens), see `usage`."""
        usage = self.usage(recursive=recursive)
        return usage.input_tokens, usage.output_tokens

    def total_tokens(self, *, recursive: bool = True) -> int:
        """Input and output, see `usage`."""
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
        """Agent id to graph: this one and all below it, parents first."""
        return {g.agent_id: g for g in self.walk()}

    def __getitem__(self, agent_id: str) -> "Graph":
        look = self._look.agent(_OF_GRAPH.string("agent_id", agent_id, False))
        if look is None:
            raise KeyError(agent_id)
        return Graph._of(look, self._drive)

    def __contains__(self, agent_id: str) -> bool:
        return self._look.agent(_OF_GRAPH.string("agent_id", agent_id, False)) is not None

    def __str__(self) -> str:
        return self._look.tree().rstrip("\n")

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from .watching import as_html

        return as_html(str(self))

    def __reduce__(self) -> tuple:
        """Copied or pickled, also of a run that goes on, it is of a tree at rest, the whole one, with the same
        ids."""
        root = self
        while root.parent_agent_id is not None:
            root = root[root.parent_agent_id]
        return _at_rest, (type(self), root.to_dict(), self.agent_id, self._given)

    def __repr__(self) -> str:
        state = self._look.state()
        return f"<Graph {self.agent_id} of {self.graph_id}: {state['nodes']} nodes, {state['children']} children>"

    # Of a run.

    def _has_ended(self) -> bool:
        return self._drive is not None and self._drive.run.has_ended()

    def _journal(self) -> Optional[str]:
        return self._drive.run.outcome()["path"] if self._drive is not None else None

    def _begin(self, query: Optional[str], inputs: Optional[dict], output_schema: Any) -> tuple:
        """What a run of this graph, which is at rest, begins with."""
        nodes, children = self.nodes, self.children
        if children or self.parent_agent_id or len(nodes) > 1 or nodes and nodes[0].type != "user_query":
            raise ValueError("a run begins with a query alone; to go on from somewhere in a run, fork its journal: "
                             "Flow.fork()")
        if query is not None and self.query and query != self.query:
            raise ValueError("the graph has a query already")
        return (query or self.query or None, {**self.inputs, **(inputs or {})},
                self.output_schema if output_schema is None else output_schema)

    # Edits.

    def _target(self, agent_id: Optional[str]) -> Any:
        if agent_id is None or agent_id == self.agent_id:
            return self._look
        look = self._look.agent(_OF_GRAPH.string("agent_id", agent_id))
        if look is None:
            raise KeyError(agent_id)
        return look

    def _made(self, lines: List[str]) -> "Event":
        from .events import event_from_dict

        return event_from_dict(json.loads(lines[0]), self)

    def inject(self, node: "Union[Node, str]", *, at: "Union[Node, str, None]" = None, mode: str = "after",
               agent_id: Optional[str] = None, truncate: str = "none") -> "Event":
        """Puts a node after or before the node `at` (or its id), or in its place (`mode` "replace"); without
        `at` after the last, before the first. A str becomes a `UserQuery`. After a done_output only a
        user_query can stand. `truncate`: "descendants" takes out what then follows it, as `rewind` does.
        KeyError: there is no such node; ValueError: it cannot stand there."""
        where = _WHERE[_OF_GRAPH.choice("mode", mode, _WHERE)]
        _OF_GRAPH.choice("truncate", truncate, ("none", "descendants"))
        if isinstance(at, Node):
            agent_id, at = agent_id or at.agent_id or None, at.id
        node, look = as_node(node), self._target(agent_id)
        replaced = _node_of(look, at) if mode == "replace" else None
        event: Any = self._made(look.inject(where, _OF_GRAPH.text("at", at), node_for_engine(node)))
        if replaced is not None:
            event = dataclasses.replace(event, replaced_node=replaced)
        made: Any = event.node
        node.id, node.agent_id, node.seq, node.time_us = made.id, made.agent_id, made.seq, made.time_us
        if truncate == "descendants":
            look.rewind(node.id)
        return event

    def append(self, node: "Union[Node, str]", *, agent_id: Optional[str] = None) -> "Event":
        """Puts a node at the end."""
        return self.inject(node, agent_id=agent_id)

    def prepend(self, node: "Union[Node, str]", *, agent_id: Optional[str] = None) -> "Event":
        """Puts a node in front."""
        return self.inject(node, mode="before", agent_id=agent_id)

    def replace(self, at: "Union[Node, str]", node: "Union[Node, str]", *, agent_id: Optional[str] = None,
                truncate: str = "none") -> "Event":
        """Puts a node in the place of the one `at`; `truncate`, see `inject`."""
        return self.inject(node, at=at, mode="replace", agent_id=agent_id, truncate=truncate)

    def remove_node(self, node_id: str, *, agent_id: Optional[str] = None) -> "Event":
        """Takes the node `node_id` out; children that it launched stay."""
        return self._made(self._target(agent_id).remove_node(_OF_GRAPH.text("node_id", node_id, False)))

    def remove_child(self, child_id: str) -> "Event":
        """Takes the agent `child_id` with all below it out of the tree."""
        if child_id not in self or child_id == self.agent_id:
            raise KeyError(child_id)
        return self._made(self._target(child_id).remove())

    def rewind(self, node_id: str, *, agent_id: Optional[str] = None) -> "Event":
        """Takes out the node `node_id` and all that follows it, with the children that were launched there.
        Agents above go back to where they waited for this one. ValueError: it is the first, which stays."""
        look = self._target(agent_id)
        return self._made(look.rewind(_before(look, node_id)))

    def checkpoint(self, *, agent_id: Optional[str] = None) -> GraphCheckpoint:
        """The agent's end as it is now."""
        return GraphCheckpoint(agent_id or self.agent_id, *self._target(agent_id).checkpoint())

    def revert(self, checkpoint: GraphCheckpoint) -> "Optional[Event]":
        """Rewinds to the checkpoint; None: the agent is there. ValueError: nodes before it are gone or
        changed."""
        if not isinstance(checkpoint, GraphCheckpoint):
            raise _OF_GRAPH.wrong("checkpoint", checkpoint, "it must be one that checkpoint() returned", TypeError)
        position = _OF_GRAPH.whole("position of the checkpoint", checkpoint.position, 0, MOST_INT64)
        digest = _OF_GRAPH.text("digest of the checkpoint", checkpoint.digest, False)
        lines = self._target(checkpoint.agent_id).revert(position, digest)
        return self._made(lines) if lines else None

    def merge(self, branch: "Graph", *, summary: "Union[str, Callable[[Graph], str], None]" = None) -> "Event":
        """Takes what came of a branch, a fork of this tree, back in: appends one node with `summary` (a text,
        or what it returns of the branch), else with the branch's result. Only this text comes over."""
        check_graph(branch, "branch")
        text = _OF_GRAPH.string("summary", summary(branch) if callable(summary) else summary)
        return self._made(self._look.merge(branch._look, text or ""))

    def apply(self, event: "Union[Event, dict, str]") -> None:
        """Makes the change that an event, or its line of JSON, tells of. LookupError: there is no such agent or
        node; ValueError: it is out of order."""
        self._look.apply(line_of_event(event))

    def fork(self, *, from_node_id: Optional[str] = None, agent_id: Optional[str] = None,
             keep_anchor: bool = False) -> "Graph":
        """A copy of the whole tree, at rest, with a graph id of its own; cut before the node `from_node_id`, or
        after it with `keep_anchor`. Also of a run that goes on."""
        look = self._target(agent_id)
        _OF_GRAPH.text("from_node_id", from_node_id)
        if from_node_id is not None and not keep_anchor:
            from_node_id = _before(look, from_node_id)
        return Graph._of(look.fork(from_node_id))

    # As data.

    def to_dict(self) -> dict:
        """The tree as JSON can say it, children nested; `from_dict` makes it again. Inputs of 64 KiB or more
        stand in a run's blobs, and are named only."""
        d = json.loads(self._look.line())
        d.pop("type")
        return {"parent_agent_id": None, "output_schema": None, **d, "nodes": [n.to_dict() for n in self.nodes],
                "children": {agent_id: g.to_dict() for agent_id, g in self.children.items()}}

    @classmethod
    def from_dict(cls, d: dict) -> "Graph":
        """The tree at rest that `d` describes, as `to_dict` does. Members that are missing are empty.
        ValueError: it describes none."""
        return cls._of(_engine.build(lines_of_tree(d)))

    def save(self, path: Path, *, metadata: Optional[dict] = None) -> pathlib.Path:
        """Writes the whole tree as a directory at `path`, which must not exist: graph.json and agents/.
        `metadata`, as JSON can say it, goes to the end of graph.json's own."""
        import pathlib

        directory = _OF_GRAPH.path("path", path, False)
        added = plain_json(dict(_OF_GRAPH.mapping("metadata", metadata)), "the metadata")
        journal = self._journal()
        if journal is None:
            self._look.save(directory)
        else:
            _warn(_engine.export(journal, directory))
        if metadata:
            manifest = pathlib.Path(path, "graph.json")
            saved = json.loads(manifest.read_text(encoding="utf-8"))
            saved["metadata"] = {**saved["metadata"], **json.loads(added)}
            whole = manifest.with_suffix(".part")
            whole.write_text(json.dumps(saved, indent=2), encoding="utf-8")
            whole.replace(manifest)
        return pathlib.Path(path)

    @classmethod
    def load(cls, path: Path) -> "Graph":
        """The graph of the run at `path`, or of a directory there that `save` has written, at rest. Of a
        damaged run what can be read is there, with a warning. FileNotFoundError, ValueError: there is none."""
        look, note = _engine.load(_OF_GRAPH.run("path", path))
        _warn(note)
        return cls._of(look)

    def to_html(self, path: Optional[Path] = None) -> str:
        """The whole tree as an HTML page that needs no other file; with `path` it is also written there."""
        html, place = self._look.html(self._journal()), _OF_GRAPH.path("path", path)
        if place is not None:
            with open(place, "w", encoding="utf-8", errors="surrogatepass") as file:
                file.write(html)
        return html


def apply_graph_action(graph: Optional[Graph], event: "Union[Event, dict, str]") -> Graph:
    """Makes the change of an event, and returns the graph. The first, a `GraphCreated`, makes it of None."""
    if graph is None:
        return Graph._of(_engine.build([line_of_event(event)]))
    check_graph(graph)
    graph.apply(event)
    return graph


def check_graph(graph: Any, name: str = "graph", optional: bool = False) -> None:
    """TypeError for what is none."""
    if not isinstance(graph, Graph) and not (graph is None and optional):
        raise TypeError(f"{name}={shown(graph)}: it must be a Graph, as Graph(query) is")


def _at_rest(kind: Any, d: dict, agent_id: str, given: Optional[dict]) -> Graph:
    graph = kind.from_dict(d)
    graph = graph if graph.agent_id == agent_id else graph[agent_id]
    graph._given = given
    return graph


def _warn(note: Optional[str]) -> None:
    if note:
        warnings.warn(note, stacklevel=3)


def _node_of(look: Any, node_id: Any) -> Optional[Node]:
    nodes = (node_from_json(text) for text in look.nodes(0))
    return next((node for node in nodes if node.id == node_id), None)


def _before(look: Any, node_id: str) -> str:
    _OF_GRAPH.text("node_id", node_id, False)
    ids = [json.loads(text)["id"] for text in look.nodes(0)]
    if node_id not in ids:
        raise KeyError(node_id)
    if node_id == ids[0]:
        raise ValueError(f"{node_id} is the first node of its agent, which stays")
    return ids[ids.index(node_id) - 1]
