"""Structured output: what a schema may be given as, and how text is checked against one."""
from __future__ import annotations

import collections.abc
import json
from typing import Any

from . import _engine
from ._arguments import Arguments
from .values import plain_json, shown

__all__ = ["Schema", "StructuredOutputError", "StructuredOutputParser", "json_schema_for"]

#: A JSON Schema as a mapping or as JSON text, a pydantic model class, or a pydantic TypeAdapter.
Schema = Any


class StructuredOutputError(ValueError):
    """A text, `content`, is not what its `schema` asks for. `cause` says why; it is `__cause__` too."""

    def __init__(self, content: str, schema: Schema, cause: Exception):
        super().__init__(f"Validation error: {cause}\nExpected JSON Schema: {json.dumps(json_schema_for(schema))}")
        self.content, self.schema, self.cause = content, schema, cause

    def __reduce__(self) -> tuple:
        return type(self), (self.content, self.schema, self.cause)


def _method(schema: Any, name: str) -> Any:
    """A method of a pydantic model class or TypeAdapter, which are known by what they have: pydantic is
    imported by whoever uses it."""
    found = getattr(schema, name, None)
    return found if callable(found) else None


def json_schema_for(schema: Schema) -> dict:
    """The JSON Schema that a schema stands for, as a dict. TypeError for what is no schema; ValueError, with
    the place, for one that the engine does not know how to check (docs/json-schema.md)."""
    make = _method(schema, "model_json_schema") or _method(schema, "json_schema")
    if isinstance(schema, str):
        made = _read(schema)
    elif isinstance(schema, collections.abc.Mapping):
        made = dict(schema)
    elif make is not None:
        made = make()
    else:
        raise TypeError(f"{shown(schema)} is no schema: give a JSON Schema (a mapping or JSON text), a pydantic model "
                        "class or a TypeAdapter")
    if not isinstance(made, dict):
        raise TypeError(f"the JSON text of a schema must be an object, not {type(made).__name__}")
    _engine.check_json(plain_json(made, "the schema"), None)
    return made


def _read(schema: str) -> Any:
    try:
        return json.loads(schema)
    except ValueError as e:
        raise ValueError(f"the schema is a str, but no JSON text: {e}") from None


class StructuredOutputParser:
    """Reads JSON text by a schema: `StructuredOutputParser()(text, schema)`."""

    def system_prompt_hint(self, schema: Schema) -> str:
        """The schema as a model may be shown it."""
        return json.dumps(json_schema_for(schema), indent=2)

    def __call__(self, content: str, schema: Schema) -> Any:
        """The value that the text says: an instance of the model under a pydantic schema, else plain data.
        Raises `StructuredOutputError`."""
        Arguments("StructuredOutputParser").string("content", content, False)
        validate = _method(schema, "model_validate_json") or _method(schema, "validate_json")
        made = json.dumps(json_schema_for(schema))
        try:
            if validate is not None:
                return validate(content)
            _engine.check_json(made, content)
            return json.loads(content)
        except ValueError as e:
            raise StructuredOutputError(content, schema, e) from e
