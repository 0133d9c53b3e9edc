"""Trees and changes of them as the lines of events that the engine reads."""
from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Dict, List

from .nodes import NODE_TYPES, as_node, node_from_dict, node_to_line
from .values import kind_of, plain_json, shown

_TEXT, _NUMBER, _LIST, _DICT, _JSON = "a str", "an int", "a list", "a dict", "a dict or JSON text"
_OF_AGENT = {"agent_id": _TEXT, "graph_id": _TEXT, "query": _TEXT, "model": _TEXT, "inputs": _JSON,
             "output_schema": _JSON, "call": _NUMBER, "part": _NUMBER, "nodes": _LIST, "children": _DICT}
_OF_NODE = {"id": _TEXT, "content": _TEXT, "code": _TEXT, "output": _TEXT, "error": _TEXT, "result": _TEXT,
            "reason": _TEXT, "model": _TEXT, "time_us": _NUMBER, "call_id": _NUMBER, "metadata": _DICT, "usage": _DICT,
            "waiting_on": _LIST, "resumed_from": _LIST, "agents": _LIST}
_IN_FILES = ("$hex", "$blob")  # members of what stands for a text in the files of a run


def lines_of_tree(d: dict) -> List[str]:
    """The events that make the tree of such a dict. TypeError or ValueError, with the place, for what is none."""
    lines: List[str] = []
    todo: list = [(d, None, "the tree")]
    while todo:
        agent, parent, where = todo.pop()
        _check(agent, _OF_AGENT, where)
        agent_id = agent.get("agent_id") or ("root" if parent is None else "")
        if parent is not None and not agent_id.startswith(parent + "."):
            raise ValueError(f"{where}: its agent_id is {shown(agent_id)}; that of a child of {parent} begins with "
                             f"{parent + '.'!r}")
        start = {k: agent[k] for k in ("graph_id", "query", "inputs", "model", "output_schema", "call", "part")
                 if agent.get(k) is not None}
        kind = {"type": "graph_created"} if parent is None else {"type": "add_child", "parent_agent_id": parent}
        lines.append(plain_json({**kind, "agent_id": agent_id, "inputs": {}, **start}, where))
        for seq, node in enumerate(agent.get("nodes") or ()):
            place = f"{where}.nodes[{seq}]"
            _check(node, _OF_NODE, place)
            if node.get("type") not in NODE_TYPES:
                raise ValueError(f"{place}: its type is {shown(node.get('type'))}; it must be one of "
                                 f"{', '.join(NODE_TYPES)}")
            node = node_to_line(node_from_dict(node))
            node = {**node, "seq": seq, "id": node.get("id") or "n_" + os.urandom(8).hex()}
            lines.append(plain_json({"type": "append_node", "agent_id": agent_id, "node": node}, place))
        todo += [(child, agent_id, f"{where}.children[{shown(key)}]")
                 for key, child in reversed(list((agent.get("children") or {}).items()))]
    return lines


def line_of_event(event: Any) -> str:
    """The event itself, its dict or its line."""
    from .events import Event

    if isinstance(event, str):
        return event
    if isinstance(event, Mapping):
        return plain_json(dict(event), "the event")
    if not isinstance(event, Event):
        raise TypeError(f"an event is an Event, a dict or a line of JSON, not {kind_of(event)}")
    made: Any = getattr(event, "child", None) or getattr(event, "graph", None)
    if made is not None:
        return made._look.line()
    line: Dict[str, Any] = {"type": event.type, "graph_id": event.graph_id, "agent_id": event.agent_id}
    if event.node is not None:
        line["node"] = node_to_line(as_node(event.node))
    return plain_json({**line, "subtree": getattr(event, "subtree", False)}, "the event")


def _check(d: Any, members: Dict[str, str], where: str) -> None:
    if not isinstance(d, Mapping):
        raise TypeError(f"{where} is {kind_of(d)}; it must be a dict, as Graph.to_dict() makes it")
    for name, wanted in members.items():
        value = d.get(name)
        if value is not None and not _is(value, wanted):
            raise TypeError(f"{where}: its {name} is {kind_of(value)}; it must be {wanted}")
        if wanted is _LIST and name != "nodes" and not all(isinstance(agent_id, str) for agent_id in value or ()):
            raise TypeError(f"{where}: its {name} is {shown(value)}; it must be a list of agents' ids")


def _is(value: Any, wanted: str) -> bool:
    if wanted is _TEXT:
        return isinstance(value, str) or isinstance(value, Mapping) and any(key in value for key in _IN_FILES)
    if wanted is _NUMBER:
        return isinstance(value, int)
    if wanted is _JSON and isinstance(value, str):
        return True
    return isinstance(value, (list, tuple) if wanted is _LIST else Mapping)
