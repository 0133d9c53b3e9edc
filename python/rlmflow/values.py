"""Values that cross between Python and the engine: JSON, with objects of one member that begins with "$" for
what JSON has not (docs/protocol.md)."""
from __future__ import annotations

import base64
import dataclasses
import json
import math
from typing import Any

MAX_DEPTH = 100
MOST_SHOWN = 200  # characters of a value in a message


def describe(error: BaseException) -> str:
    """An error in one line."""
    try:
        text = str(error)
    except BaseException:
        text = "<its str() failed>"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def shown(value: Any) -> str:
    """The start of a value's repr(), for a message. Whatever the value is, it can be printed."""
    try:
        text = repr(value)
    except BaseException:
        text = f"<{kind_of(value)} whose repr() failed>"
    text = printable(text)
    return text if len(text) <= MOST_SHOWN else text[:MOST_SHOWN] + "..."


def printable(text: str) -> str:
    """A text with what UTF-8 and C cannot have as an escape."""
    return text.replace("\0", "\\x00").encode("utf-8", "backslashreplace").decode()


def to_json(value: Any, what: str = "value") -> str:
    """The JSON text of a value. TypeError names where something stands that cannot cross."""
    return json.dumps(_encode(value, what, 0), allow_nan=False)


def plain_json(value: Any, what: str) -> str:
    """The JSON text of what is JSON already."""
    try:
        return json.dumps(value)
    except (TypeError, ValueError, RecursionError) as e:
        raise type(e)(f"{what} cannot be said in JSON: {e}") from None


def from_json(text: str) -> Any:
    return json.loads(text, object_hook=_decode_object)


def _encode(value: Any, where: str, depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise ValueError(f"{where} is nested more than {MAX_DEPTH} deep")
    if value is None or isinstance(value, (bool, str)):
        return value if type(value) in (str, bool, type(None)) else str.__str__(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"$float": repr(float(value))}
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {"$bytes": base64.b64encode(bytes(value)).decode()}
    if isinstance(value, list):
        return [_encode(v, f"{where}[{i}]", depth + 1) for i, v in enumerate(value)]
    for kind, tag in ((tuple, "$tuple"), (set, "$set"), (frozenset, "$frozenset")):
        if isinstance(value, kind):
            return {tag: [_encode(v, f"{where}[{i}]", depth + 1) for i, v in enumerate(value)]}
    if isinstance(value, dict):
        if all(isinstance(k, str) and not k.startswith("$") for k in value):
            return {str(k): _encode(v, f"{where}[{shown(k)}]", depth + 1) for k, v in value.items()}
        return {"$dict": [[_encode(k, f"a key of {where}", depth + 1), _encode(v, f"{where}[{shown(k)}]", depth + 1)]
                          for k, v in value.items()]}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _encode({f.name: getattr(value, f.name) for f in dataclasses.fields(value)}, where, depth)
    if callable(getattr(type(value), "model_dump", None)):  # pydantic's
        return _encode(value.model_dump(), where, depth)
    raise TypeError(f"{where} is {kind_of(value)}: only None, bool, int, float, str, bytes, list, tuple, set, "
                    "frozenset, dict, dataclasses and pydantic models can cross into a session")


def kind_of(value: Any) -> str:
    if isinstance(value, type):
        return f"the class {value.__name__}"
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def _decode_object(members: dict) -> Any:
    if len(members) != 1:
        return members
    (tag, inside), = members.items()
    if tag == "$bytes":
        return base64.b64decode(inside)
    if tag == "$float":
        return float(inside)
    if tag == "$dict":
        return {k: v for k, v in inside}
    kind = {"$tuple": tuple, "$set": set, "$frozenset": frozenset}.get(tag)
    return kind(inside) if kind else members
