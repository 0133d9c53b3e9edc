"""Tools: what agents may call."""
from __future__ import annotations

import dataclasses
import inspect
import json
import typing
from typing import Any, Callable, Optional

__all__ = ["ToolMetadata", "get_tool_metadata", "tool"]

_ATTRIBUTE = "__rlmflow_tool__"


@dataclasses.dataclass(frozen=True)
class ToolMetadata:
    """What `@tool` says of a function. Times are in seconds; a limit of 0 is the engine's: 600 s a call, 64 MiB a
    result, any number of calls."""

    name: str
    description: str
    proxy: bool = False
    is_async: bool = False
    idempotent: bool = False
    max_calls: int = 0
    timeout: float = 0
    max_result_bytes: int = 0


def tool(description: "Optional[str] | Callable" = None, *, name: Optional[str] = None, proxy: bool = False,
         is_async: Optional[bool] = None, idempotent: bool = False, max_calls: int = 0, timeout: float = 0,
         max_result_bytes: int = 0) -> Callable:
    """Marks a function as a tool.

    `description` is for the model; without one it is the first paragraph of the docstring. With `proxy=True` the
    function runs on the host whenever an agent calls it, from every runtime; otherwise it
    goes into the session, which only `LocalRuntime` can do.
    `idempotent=True` says that a call which a crash interrupted may be made again."""
    def mark(function: Callable) -> Callable:
        text = description if isinstance(description, str) else _first_paragraph(function)
        own = getattr(function, "__name__", type(function).__name__)
        setattr(function, _ATTRIBUTE, ToolMetadata(
            name or (own[5:] if own.startswith("tool_") and len(own) > 5 else own), text.strip(), proxy,
            inspect.iscoroutinefunction(function) if is_async is None else is_async, idempotent, max_calls,
            timeout, max_result_bytes))
        return function

    if callable(description):
        return mark(description)
    return mark


def get_tool_metadata(function: Any) -> Optional[ToolMetadata]:
    """What `@tool` said of a function or method; None without it."""
    return getattr(getattr(function, "__func__", function), _ATTRIBUTE, None)


def _first_paragraph(function: Any) -> str:
    return (inspect.getdoc(function) or "").split("\n\n")[0].replace("\n", " ")


_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean", list: "array", dict: "object",
          type(None): "null"}


def _schema_of(annotation: Any) -> dict:
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if annotation in _TYPES:
        return {"type": _TYPES[annotation]}
    if origin is list:
        return {"type": "array", "items": _schema_of(args[0])}
    if origin is dict:
        return {"type": "object", "additionalProperties": _schema_of(args[1])}
    if origin is typing.Literal:
        return {"enum": list(args)}
    if origin is typing.Union or str(origin) == "<class 'types.UnionType'>":
        return {"anyOf": [_schema_of(a) for a in args]}
    return {}


def parameters_of(function: Callable) -> str:
    """The JSON Schema of a function's arguments, by its signature."""
    try:
        hints = typing.get_type_hints(function)
    except Exception:
        hints = {}
    properties, required, more = {}, [], False
    for p in inspect.signature(function).parameters.values():
        if p.kind is p.VAR_KEYWORD:
            more = True
        elif p.kind is p.VAR_POSITIONAL:
            raise TypeError(f"a tool cannot take *{p.name}: agents call it by name or in order")
        elif p.name != "working_directory":
            properties[p.name] = _schema_of(hints.get(p.name))
            if p.default is p.empty:
                required.append(p.name)
            elif p.default is None or isinstance(p.default, (str, int, float, bool)):
                properties[p.name]["default"] = p.default
    return json.dumps({"type": "object", "properties": properties, "required": required,
                       "additionalProperties": more})


class Tool:
    """A registered tool."""

    def __init__(self, function: Callable, name: Optional[str] = None):
        if not callable(function):
            raise TypeError(f"a tool is a function, not {function!r}")
        marked = get_tool_metadata(function) or ToolMetadata(
            getattr(function, "__name__", ""), _first_paragraph(function),
            is_async=inspect.iscoroutinefunction(function))
        self.function = function
        self.metadata = dataclasses.replace(marked, name=name) if name else marked
        self.takes_directory = "working_directory" in inspect.signature(function).parameters

    def for_engine(self) -> tuple:
        m = self.metadata
        return (m.name, m.description, parameters_of(self.function), m.idempotent, m.is_async, m.max_calls,
                round(m.timeout * 1000), m.max_result_bytes)
