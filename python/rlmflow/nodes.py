"""The typed entries of an agent's trajectory."""
from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Mapping
from typing import Any, ClassVar, Dict, List, TypeVar

from . import _engine
from ._arguments import Arguments
from .values import kind_of, shown, to_json

__all__ = ["ActionNode", "DoneOutput", "ErrorOutput", "ExecAction", "ExecOutput", "LLMOutput", "LLMUsage",
           "Node", "ObservationNode", "ResumeAction", "SupervisingOutput", "UserQuery", "code_block",
           "node_from_dict"]


@dataclasses.dataclass(frozen=True)
class LLMUsage:
    """Tokens of model calls, failed and repeated ones included: `input_tokens`, of which `cached_tokens` were
    read from the provider's cache, and `output_tokens`, in so many `calls`. `cost` is in US dollars, 0.0 where
    a price is unknown; `estimated` counts the calls whose usage is the engine's bound, not the provider's
    word."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    calls: int = 0
    cost: float = 0.0
    estimated: int = 0

    @property
    def total_tokens(self) -> int:
        """Input and output."""
        return self.input_tokens + self.output_tokens


_C = TypeVar("_C", bound=type)


def _by_name(cls: _C) -> _C:
    """A dataclass whose fields are given by name alone."""
    init: Any = cls.__init__  # type: ignore[misc]

    @functools.wraps(init)
    def check(self: Any, *args: Any, **fields: Any) -> None:
        if args:
            raise TypeError(f"the fields of {cls.__name__} are given by name; {shown(args[0])} has none")
        init(self, **fields)

    cls.__init__ = check  # type: ignore[misc]
    return cls


@_by_name
@dataclasses.dataclass
class Node:
    """One entry, whose fields are given by name. `id`, `agent_id`, `seq` (its position, from 0) and `time_us`
    (microseconds since 1970) are filled in when it is appended to a graph. `call_id` is the number of the model
    call or of the launch that it is about, 0: none. `metadata` is for what a program wants to keep with it, as
    JSON can say it."""

    type: ClassVar[str] = "node"
    terminal: ClassVar[bool] = False

    id: str = ""
    agent_id: str = ""
    seq: int = 0
    time_us: int = 0
    call_id: int = 0
    metadata: Dict[str, Any] = dataclasses.field(default_factory=dict)

    def to_dict(self) -> dict:
        """As JSON has it: `type` first, then the fields that are not empty."""
        members = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return {"type": self.type, **{k: v for k, v in members.items() if v not in ("", 0, [], {})}}


@_by_name
@dataclasses.dataclass
class ObservationNode(Node):
    """What the model is shown: `content`."""

    content: str = ""


@_by_name
@dataclasses.dataclass
class ActionNode(Node):
    """What is done; the model is not shown it."""


@_by_name
@dataclasses.dataclass
class UserQuery(ObservationNode):
    """The task, or a follow-up."""

    type = "user_query"


@_by_name
@dataclasses.dataclass
class LLMOutput(ObservationNode):
    """A reply of the model, and the `code` that was found in it."""

    type = "llm_output"

    code: str = ""
    model: str = ""


@_by_name
@dataclasses.dataclass
class ExecAction(ActionNode):
    """The `code` as it is run."""

    type = "exec_action"

    code: str = ""


@_by_name
@dataclasses.dataclass
class ExecOutput(ObservationNode):
    """What a cell printed: whole in `output`, as the model is shown it in `content`."""

    type = "exec_output"

    output: str = ""


@_by_name
@dataclasses.dataclass
class SupervisingOutput(ObservationNode):
    """A cell waits for the sub-agents whose ids are in `waiting_on`; `output` is what it has printed."""

    type = "supervising_output"

    output: str = ""
    waiting_on: List[str] = dataclasses.field(default_factory=list)


@_by_name
@dataclasses.dataclass
class ResumeAction(ActionNode):
    """A cell goes on, for its sub-agents, `resumed_from`, have ended."""

    type = "resume_action"

    resumed_from: List[str] = dataclasses.field(default_factory=list)


@_by_name
@dataclasses.dataclass
class ErrorOutput(ObservationNode):
    """A cell failed. `error` is its kind: "exec", "no_code", "exec_timeout", "rejected", ...; `output` what it
    had printed."""

    type = "error_output"

    error: str = ""
    output: str = ""


@_by_name
@dataclasses.dataclass
class DoneOutput(ObservationNode):
    """The agent has ended. `reason` is "answered" if `result` is its answer, else "max_iters", "budget",
    "cost", "time", "terminated" or "failed", and `content` says what happened; `output` is what the last cell
    printed."""

    type = "done_output"
    terminal = True

    result: str = ""
    output: str = ""
    reason: str = ""


_CLASSES = {c.type: c for c in (UserQuery, LLMOutput, ExecAction, ExecOutput, SupervisingOutput, ResumeAction,
                                ErrorOutput, DoneOutput)}
NODE_TYPES = tuple(_CLASSES)
_TEXTS = frozenset(("content", "code", "output", "error", "result", "reason", "model"))


def usage_from_dict(usage: dict) -> LLMUsage:
    known = {f.name for f in dataclasses.fields(LLMUsage)}
    return LLMUsage(**{k: v for k, v in usage.items() if k in known})


def code_block(reply: str) -> str:
    """The code in a model's reply that an agent would run: its first block of Python that is not blank, or all
    of a reply that is code alone. "" where there is none. What is marked as reasoning is passed over."""
    return _engine.reply_code(Arguments("code_block").string("reply", reply, False))


def node_from_dict(d: dict) -> Node:
    """The node that the dict `d` describes; members that its class does not have are left out. A `type` that is
    not known becomes a bare `Node`."""
    if not isinstance(d, Mapping):
        raise TypeError(f"a node is described by a dict, not by {kind_of(d)}")
    d = dict(d)
    named = d.get("type", "")
    kind = _CLASSES.get(named, Node) if isinstance(named, str) else Node
    if "usage" in d or "model" in d and kind is LLMOutput:
        metadata = d.get("metadata", {})
        usage = d.pop("usage", metadata.get("usage", {}))
        d["metadata"] = {**metadata, "model": d.get("model", ""), "usage": usage}
    agents = d.pop("agents", None)
    if agents is not None:
        d.setdefault("waiting_on" if kind is SupervisingOutput else "resumed_from", agents)
    fields = {f.name for f in dataclasses.fields(kind)}
    return kind(**{k: v for k, v in d.items() if k in fields})


def node_from_json(text: str) -> Node:
    return node_from_dict(json.loads(text))


def node_to_line(node: Node) -> dict:
    """As the engine's lines of JSON have it; `node_from_dict` is the way back."""
    d = {**node.to_dict(), "seq": node.seq}
    agents = d.pop("waiting_on", None) or d.pop("resumed_from", None)
    if agents:
        d["agents"] = agents
    metadata = dict(node.metadata)
    if "usage" in metadata:
        d["usage"], d["model"] = metadata.pop("usage"), metadata.pop("model", "") or d.get("model", "")
        d["metadata"] = metadata
    return {k: v for k, v in d.items() if k != "metadata" or v}


def as_node(node: Any) -> Node:
    """What is put into a graph: a str is a query. What was observed is shown to the model, if it says no more, as it
    came."""
    if isinstance(node, str):
        return UserQuery(content=node)
    if not isinstance(node, Node):
        raise TypeError(f"a node is a Node or a str, not {kind_of(node)}")
    if isinstance(node, (ExecOutput, ErrorOutput)) and not node.content and not node.id:
        parts = (node.output, getattr(node, "error", ""))
        node.content = "\n".join(part for part in parts if isinstance(part, str) and part)
    return node


def node_for_engine(node: Node) -> dict:
    """As the functions of the engine take one to be put in: its place and its time are theirs."""
    if not isinstance(node.metadata, Mapping):
        raise TypeError(f"{type(node).__name__}.metadata is {kind_of(node.metadata)}; it must be a dict")
    d = node_to_line(node)
    for name in _TEXTS & d.keys():
        if not isinstance(d[name], str):
            raise TypeError(f"{type(node).__name__}.{name} is {kind_of(d[name])}; it must be a str")
    agents = d.get("agents", [])
    if not isinstance(agents, list) or not all(isinstance(agent_id, str) for agent_id in agents):
        raise TypeError(f"the agents of a {type(node).__name__} are a list of their ids, not {shown(agents)}")
    for agent_id in agents:
        Arguments(type(node).__name__).text("an agent's id", agent_id, False, lone=True)
    if "metadata" in d:
        d["metadata"] = to_json(d["metadata"], f"{type(node).__name__}.metadata")
    return {k: v for k, v in d.items() if isinstance(v, str) or k == "agents"}
