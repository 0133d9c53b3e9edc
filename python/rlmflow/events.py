"""Changes of a graph, as a stream shows them."""
from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, ClassVar, Optional

from .nodes import Node, node_from_dict

if TYPE_CHECKING:
    from .graph import Graph

__all__ = ["AddChild", "AppendNode", "Event", "GraphCreated", "InsertNode", "RemoveChild", "RemoveNode",
           "ReplaceNode"]


@dataclasses.dataclass(frozen=True)
class Event:
    """One change of the agent `agent_id` in the tree `graph_id`. `node` is the node that it is about, or
    None."""

    type: ClassVar[str] = "event"

    graph_id: str
    agent_id: str
    node: Optional[Node] = None

    @property
    def node_id(self) -> str:
        """The node's id; "" without a node."""
        return self.node.id if self.node else ""

    @property
    def node_type(self) -> str:
        """The node's type, as "exec_output"; "" without a node."""
        return self.node.type if self.node else ""


@dataclasses.dataclass(frozen=True)
class GraphCreated(Event):
    """A run has begun; `graph` is its root."""

    type = "graph_created"

    graph: "Optional[Graph]" = None


@dataclasses.dataclass(frozen=True)
class AppendNode(Event):
    """`node` came to the end of the agent's trajectory."""

    type = "append_node"


@dataclasses.dataclass(frozen=True)
class InsertNode(Event):
    """`node` was put in at `index`."""

    type = "insert_node"

    @property
    def index(self) -> int:
        """Where in the trajectory, from 0."""
        return self.node.seq if self.node else 0


@dataclasses.dataclass(frozen=True)
class ReplaceNode(Event):
    """`node` stands where `replaced_node` stood, which is known where the edit was made."""

    type = "replace_node"

    replaced_node: Optional[Node] = None

    @property
    def replaced_node_id(self) -> str:
        """The id of the node that is gone; "" where it is not known."""
        return self.replaced_node.id if self.replaced_node else ""


@dataclasses.dataclass(frozen=True)
class RemoveNode(Event):
    """`node` was taken out; with `subtree`, all that followed it too."""

    type = "remove_node"

    subtree: bool = False


@dataclasses.dataclass(frozen=True)
class AddChild(Event):
    """A sub-agent was launched by `parent_agent_id`: `child`, whose id is `agent_id`."""

    type = "add_child"

    parent_agent_id: str = ""
    child: "Optional[Graph]" = None


@dataclasses.dataclass(frozen=True)
class RemoveChild(Event):
    """The agent `agent_id`, a child of `parent_agent_id`, was taken out of the tree."""

    type = "remove_child"

    parent_agent_id: str = ""

    @property
    def child_agent_id(self) -> str:
        """The same as `agent_id`."""
        return self.agent_id


_CLASSES = {c.type: c for c in (GraphCreated, AppendNode, InsertNode, ReplaceNode, RemoveNode, AddChild,
                                RemoveChild)}


def event_from_dict(d: dict, root: "Graph") -> Event:
    """The event of a line of JSON; `root` is the graph that it is about."""
    kind = _CLASSES[d["type"]]
    members = {"graph_id": d["graph_id"], "agent_id": d["agent_id"]}
    if "node" in d:
        members["node"] = node_from_dict(d["node"])
    if kind is GraphCreated:
        members["graph"] = root
        members["node"] = root.current()
    if kind in (AddChild, RemoveChild):
        members["parent_agent_id"] = d.get("parent_agent_id", "")
    if kind is AddChild:
        members["child"] = root[d["agent_id"]]
    if kind is RemoveNode:
        members["subtree"] = d.get("subtree", False)
    return kind(**members)
