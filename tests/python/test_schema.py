"""Structured output: schemas of each kind, of a run and of sub-agents."""
import json
import subprocess
import sys
from typing import List, Literal, Optional, Union

import pydantic
import pytest
import rlmflow
from conftest import make_package
from rlmflow import StructuredOutputError, StructuredOutputParser, json_schema_for
from test_flow import Replies, block


class Item(pydantic.BaseModel):
    kind: Literal["item"] = "item"
    price: float


class Box(pydantic.BaseModel):
    kind: Literal["box"] = "box"
    inside: List[Union["Box", Item]] = pydantic.Field(default_factory=list)


class Order(pydantic.BaseModel):
    what: Union[Box, Item] = pydantic.Field(discriminator="kind")
    note: Optional[str] = None


MAPPING = {"type": "object", "properties": {"n": {"$ref": "#/$defs/count"}}, "required": ["n"],
           "$defs": {"count": {"type": "integer"}}}
ORDER = {"what": {"kind": "box", "inside": [{"kind": "item", "price": 2.5}]}, "note": None}

KINDS = [(MAPPING, {"n": 3}, {"n": "x"}), (json.dumps(MAPPING), {"n": 3}, {}),
         (Order, ORDER, {"what": {"kind": "bag"}}), (pydantic.TypeAdapter(List[int]), [1, 2], [1, "x"])]


@pytest.mark.parametrize("schema, good, bad", KINDS, ids=["mapping", "text", "model", "adapter"])
def test_an_answer_fits_the_schema_of_its_run(schema, good, bad, runtime):
    client = Replies(block(f"done({bad!r})"), block(f"done({good!r})"))
    answer = rlmflow.Flow(client, runtime=runtime).run("q", output_schema=schema)
    assert isinstance(answer, str) and json.loads(answer) == good
    assert "JSON Schema" in client.asked[0][1]["content"] and len(client.asked) == 2
    value = StructuredOutputParser()(answer, schema)
    assert value == (Order.model_validate(good) if schema is Order else good)


@pytest.mark.parametrize("schema, good, bad", KINDS, ids=["mapping", "text", "model", "adapter"])
def test_a_text_that_does_not_fit_is_an_error_that_says_why(schema, good, bad, runtime):
    text = json.dumps(bad)
    with pytest.raises(StructuredOutputError) as e:
        StructuredOutputParser()(text, schema)
    error = e.value
    assert isinstance(error, ValueError) and error.__cause__ is error.cause
    assert error.content == text and error.schema is schema
    assert "Expected JSON Schema: {" in str(error) and "Validation error: " in str(error)
    with pytest.raises(StructuredOutputError):
        StructuredOutputParser()("no JSON", schema)
    assert json.loads(StructuredOutputParser().system_prompt_hint(schema)) == json_schema_for(schema)


def test_a_child_answers_by_the_schema_of_its_spec(runtime):
    """The mapping has references, whose names begin with "$" as tags of values do."""
    class Tree:
        def chat(self, messages):
            if "child task" in messages[1]["content"]:
                assert '"$ref": "#/$defs/count"' in messages[1]["content"]
                return block("try:\n    done({'n': 'x'})\nexcept Exception as e:\n    print(e)\n    done({'n': 4})")
            return block(f"S = {MAPPING!r}\nimport json\n"
                         "r = await launch_subagents([{'query': 'child task', 'output_schema': s}"
                         " for s in (S, json.dumps(S))])\ndone(str([x['n'] + 1 for x in r]))")

    assert rlmflow.Flow(Tree(), runtime=runtime).run("q") == "[5, 5]"


def test_models_of_pydantic_are_schemas_in_the_session_too():
    """The session's Python must have pydantic: it is the tests' own."""
    code = ("import pydantic\nfrom typing import List\nclass Inner(pydantic.BaseModel):\n    n: int\n"
            "class Count(pydantic.BaseModel):\n    inner: Inner\n"
            "r = await launch_subagents([{'query': 'child task', 'output_schema': s}"
            " for s in (Count, pydantic.TypeAdapter(List[Inner]))])\n"
            "q = await llm_query('child query', output_schema=Count)\n"
            "done(str([*r, q]))")

    class Tree:
        def chat(self, messages):
            text = messages[-1]["content"]
            if "child query" in text:
                return '{"inner": {"n": 3}}'
            if "child task" in text:
                return block("done([{'n': 2}])" if '"array"' in text else "done({'inner': {'n': 1}})")
            return block(code)

    runtime = rlmflow.SubprocessRuntime(python=sys.executable)
    assert rlmflow.Flow(Tree(), runtime=runtime).run("q") == str([{"inner": {"n": 1}}, [{"n": 2}], {"inner": {"n": 3}}])


@pytest.mark.parametrize("schema, error, told", [
    (3, TypeError, "3 is no schema"), ("[1]", TypeError, "must be an object, not list"),
    (int, TypeError, "is no schema"), ("{", ValueError, ""), ({"type": "whole"}, ValueError, "/type"),
    ({"unevaluatedItems": False}, ValueError, "unevaluated")])
def test_what_is_no_schema_is_refused_before_anything_runs(schema, error, told, runtime):
    client = Replies()
    with pytest.raises(error, match=told):
        json_schema_for(schema)
    with pytest.raises(error, match=told):
        rlmflow.Flow(client, runtime=runtime).run("q", output_schema=schema)
    assert not client.asked


def test_pydantic_is_not_imported_by_the_package():
    program = f"import sys; sys.path.insert(0, {str(make_package())!r}); import rlmflow; " \
              "rlmflow.json_schema_for({}); assert 'pydantic' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
