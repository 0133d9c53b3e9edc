"""Tools: what agents may call."""
from __future__ import annotations

import dataclasses
import functools
import inspect
import json
import os
import types
import typing
import warnings
from typing import Any, Callable, Dict, List, Optional, Tuple, TypeVar, overload

from . import _engine
from ._arguments import MOST_INT64, Arguments
from .values import shown

__all__ = ["ToolMetadata", "format_tool_line", "get_tool_metadata", "tool"]

_ATTRIBUTE = "__rlmflow_tool__"
_DIRECTORY = "working_directory"  # a parameter that agents do not see
BUILT_IN: List[Any] = []  # the functions that every session has


@dataclasses.dataclass(frozen=True)
class ToolMetadata:
    """What `@tool` says of a function: `name`, `description`, `is_async`, `proxy`, `idempotent`, and the limits
    `max_calls`, `timeout` and `max_result_bytes`, see `tool`. Times are in seconds; a limit of 0 is the
    engine's: 600 s a call, 64 MiB a result, any number of calls."""

    name: str
    description: str
    proxy: bool = False
    is_async: bool = False
    idempotent: bool = False
    max_calls: int = 0
    timeout: float = 0
    max_result_bytes: int = 0

    def __post_init__(self) -> None:
        checked = Arguments(f"the tool {shown(self.name)}")
        checked.prose("name", self.name, False)
        checked.prose("description", self.description, False)
        checked.milliseconds("timeout", self.timeout, "seconds of a call", may_be_zero=True)
        for limit in ("max_calls", "max_result_bytes"):
            checked.whole(limit, getattr(self, limit), 0, MOST_INT64)

    def limits(self) -> Tuple[int, int, int]:
        """As the engine takes them, with milliseconds."""
        timeout_ms = Arguments(self.name).milliseconds("timeout", self.timeout, may_be_zero=True)
        return self.max_calls or 0, timeout_ms or 0, self.max_result_bytes or 0


_Function = TypeVar("_Function", bound=Callable[..., Any])


@overload
def tool(description: _Function) -> _Function: ...
@overload
def tool(description: Optional[str] = None, *, name: Optional[str] = None, proxy: bool = False,
         is_async: Optional[bool] = None, idempotent: bool = False, max_calls: int = 0, timeout: float = 0,
         max_result_bytes: int = 0) -> Callable[[_Function], _Function]: ...
def tool(description: "Optional[str] | Callable" = None, *, name: Optional[str] = None, proxy: bool = False,
         is_async: Optional[bool] = None, idempotent: bool = False, max_calls: int = 0, timeout: float = 0,
         max_result_bytes: int = 0) -> Callable:
    """Marks a function as a tool, and returns it.

    `description` is for the model; without one it is the first paragraph of the docstring. `name` is the
    function's own, less a leading `tool_`, unless given. Agents await a tool that is async, which is seen from
    the function unless `is_async` says it.

    With `proxy=True` the function runs on the host whenever an agent calls it, from every runtime: a sync one
    on a thread of the pool, an async one on the caller's event loop. What an agent passes is bound to its
    signature and checked against those annotations that are None, bool, int, float, str, bytes, list, tuple,
    set, frozenset, dict (also of such types), Literal, Optional or Union of them: what does not fit is a
    TypeError in the agent's code, and the function is not called; an annotation that cannot be resolved is not
    checked, with a warning when it is registered. It returns such values, dataclasses or pydantic models, which
    become dicts; what it raises is a HostCallError in the agent's code, with its type and message, in which
    paths of this machine are cut to their last part. `max_calls` of a run, `timeout` seconds of a call and
    `max_result_bytes` of a result as JSON limit it. `idempotent=True` says that a call which a crash
    interrupted may be made again.

    Otherwise the function goes into the session: `LocalRuntime` hands it over as it is, any other runtime as
    source text, with the constants, functions, installed modules and defaults that it uses, as they are when it
    is registered. Registering is a ValueError that lists all that cannot go along: objects, classes of the
    program's own, methods, what is written in C.

    A parameter `working_directory` is not the agent's: it is the working directory of the sessions, on the host
    as the runtime was told it."""
    if not callable(description):
        Arguments("tool").string("description", description)
    if not proxy and (max_calls or timeout or max_result_bytes):
        raise ValueError("max_calls, timeout and max_result_bytes limit tools with proxy=True")

    def mark(function: Callable) -> Callable:
        text = description if isinstance(description, str) else _first_paragraph(function)
        own = getattr(function, "__name__", type(function).__name__)
        setattr(function, _ATTRIBUTE, ToolMetadata(
            name or (own[5:] if own.startswith("tool_") and len(own) > 5 else own), text.strip(), proxy,
            _is_async(function) if is_async is None else is_async, idempotent, max_calls,
            timeout, max_result_bytes))
        return function

    if callable(description):
        return mark(description)
    return mark


def get_tool_metadata(function: Any) -> Optional[ToolMetadata]:
    """What `@tool` said of a function or method; None without it."""
    return getattr(getattr(function, "__func__", function), _ATTRIBUTE, None)


def format_tool_line(function: Any) -> str:
    """The line by which models are shown a tool; "" for a function that `@tool` has not marked."""
    marked = get_tool_metadata(function)
    if marked is None:
        return ""
    awaits = "await " if marked.is_async else ""
    return f"- `{awaits}{marked.name}{Signature(function).text()}`: {marked.description}"


def _is_async(function: Any) -> bool:
    while isinstance(function, functools.partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))


def _first_paragraph(function: Any) -> str:
    return (inspect.getdoc(function) or "").split("\n\n")[0].replace("\n", " ")


# ---- parameters

_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean", list: "array", type(None): "null",
          tuple: "array", set: "array", frozenset: "array"}


def _schema_of(annotation: Any) -> dict:
    """What the encoding of a value of this type is checked against, as plain JSON; {}: anything."""
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if annotation is bytes:
        return {"type": "object", "required": ["$base64"], "description": "bytes"}
    if annotation is dict or origin is dict:
        more = {"additionalProperties": _schema_of(args[1])} if args else {}
        return {"type": "object", "properties": {"$base64": False}, **more}
    if isinstance(annotation, type) and annotation in _TYPES:
        return {"type": _TYPES[annotation]}
    if annotation is None:
        return {"type": "null"}
    if origin in (list, set, frozenset):
        return {"type": "array", "items": _schema_of(args[0])}
    if origin is tuple:
        return {"type": "array"}
    if origin is typing.Literal:
        return {"enum": list(args)}
    if origin is typing.Union or str(origin) == "<class 'types.UnionType'>":
        return {"anyOf": [_schema_of(a) for a in args]}
    return {}


class _Shown:
    """Stands in a signature for what is shown in another way than by its repr()."""

    def __init__(self, text: str):
        self.text = text

    def __repr__(self) -> str:
        return self.text


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, (bool, int, float)) or (isinstance(value, str) and len(value) <= 100)


def _globals_of(function: Any) -> dict:
    """Those that annotations of a callable see."""
    function = inspect.unwrap(function)
    while isinstance(function, functools.partial):
        function = function.func
    if inspect.isclass(function):
        function = function.__init__
    elif not inspect.isroutine(function):
        function = type(function).__call__
    return getattr(inspect.unwrap(function), "__globals__", {})


class Signature:
    """The parameters of a function, as far as they are the agent's."""

    def __init__(self, function: Callable):
        self.hints: Dict[str, Any] = {}
        self.unresolved: List[str] = []  # parameters whose annotation names what is not there
        self.signature: Optional[inspect.Signature] = None
        self.parameters: List[inspect.Parameter] = []
        try:
            self.signature = inspect.signature(function)
            self.parameters = [p for p in self.signature.parameters.values() if p.name != _DIRECTORY]
        except (TypeError, ValueError):
            pass  # of some that are written in C
        self.takes_directory = self.signature is not None and _DIRECTORY in self.signature.parameters
        self._resolve(function)

    def _resolve(self, function: Any) -> None:
        """Each annotation by itself: one that cannot be resolved leaves the others checked."""
        annotations = {p.name: p.annotation for p in self.parameters}
        if self.signature is not None:
            annotations["return"] = self.signature.return_annotation
        names = _globals_of(function)
        for name, annotation in annotations.items():
            if annotation is inspect.Signature.empty:
                continue
            try:
                holder = types.SimpleNamespace(__annotations__={name: annotation})
                self.hints.update(typing.get_type_hints(holder, names))
            except Exception:
                if name != "return":
                    self.unresolved.append(name)

    def text(self) -> str:
        """How models are shown it."""
        if self.signature is None:
            return "(...)"

        def shown(name: str, annotation: Any) -> Any:
            hint = self.hints.get(name, _Shown(annotation) if isinstance(annotation, str) else annotation)
            return None if hint is type(None) else hint

        return str(self.signature.replace(
            parameters=[p.replace(annotation=shown(p.name, p.annotation),
                                  default=p.default if p.default is p.empty or _is_plain(p.default) else _Shown("..."))
                        for p in self.parameters],
            return_annotation=shown("return", self.signature.return_annotation)))

    def schema(self) -> str:
        """The JSON Schema of the arguments. TypeError for what agents could not call."""
        if self.signature is None:
            raise TypeError("it has no signature that Python knows")
        properties: Dict[str, dict] = {}
        required: List[str] = []
        more: Any = False
        for p in self.parameters:
            if p.kind is p.VAR_KEYWORD:
                more = _schema_of(self.hints.get(p.name)) if p.name in self.hints else True
            elif p.kind is p.VAR_POSITIONAL:
                raise TypeError(f"it takes *{p.name}: agents call it by name or in order")
            else:
                properties[p.name] = _schema_of(self.hints[p.name]) if p.name in self.hints else {}
                if p.default is p.empty:
                    required.append(p.name)
                elif _is_plain(p.default):
                    properties[p.name]["default"] = p.default
        return json.dumps({"type": "object", "properties": properties, "required": required,
                           "additionalProperties": more})

    def bind(self, arguments: dict, directory: Optional[str]) -> Tuple[list, dict]:
        """The arguments by which to call the function."""
        if self.takes_directory:
            arguments[_DIRECTORY] = directory or os.getcwd()
        args = []
        for p in self.parameters:
            if p.kind is p.POSITIONAL_ONLY and p.name in arguments:
                args.append(arguments.pop(p.name))
        return args, arguments


class Tool:
    """A registered tool."""

    def __init__(self, function: Callable, name: Optional[str] = None):
        if not callable(function):
            raise TypeError(f"a tool is a function, not {shown(function)}")
        marked = get_tool_metadata(function) or ToolMetadata(
            getattr(function, "__name__", ""), _first_paragraph(function), is_async=_is_async(function))
        self.function = function
        self.metadata = dataclasses.replace(marked, name=name) if name else marked
        self.signature = Signature(function)
        self.is_built_in = any(function is built_in for built_in in BUILT_IN)
        if self.metadata.proxy:
            try:
                self.parameters = self.signature.schema()
            except TypeError as e:
                raise TypeError(f"{self.metadata.name} cannot be a tool of the host: {e}") from None

    def check(self) -> None:
        """ValueError for what no run would take; a warning for what will not be checked."""
        if self.metadata.proxy and self.signature.unresolved:
            names = ", ".join(self.signature.unresolved)
            warnings.warn(f"the tool {self.metadata.name}: annotations of {names} cannot be resolved (is a name imported "
                          "for type checkers alone?), so what agents pass there is not checked", stacklevel=3)
        if not self.is_built_in:
            _engine.check_tool(self.for_engine(None if self.metadata.proxy else ""))

    @functools.cached_property
    def source(self) -> str:
        """The tool for a session, as source. ValueError says why it cannot go there."""
        from ._shipping import source_of

        return source_of(self.function, self.metadata.name, takes_directory=self.signature.takes_directory)

    def in_directory(self, directory: Optional[str]) -> Callable:
        """The function itself, for a session of this process."""
        if not self.signature.takes_directory:
            return self.function
        return functools.partial(self.function, working_directory=directory or os.getcwd())

    def for_engine(self, source: Optional[str]) -> tuple:
        """`source`: see rlm_tool_options; None: it runs on the host."""
        m = self.metadata
        return (m.name, m.description or m.name, self.signature.text(), None if source is not None else self.parameters,
                source, m.idempotent, m.is_async, *m.limits())

