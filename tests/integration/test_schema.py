"""Our JSON schema validator against another one: Python's jsonschema (Debian: python3-jsonschema), and
the cases of the JSON Schema Test Suite (Debian: json-schema-test-suite)."""

import decimal
import json
import os
import random
import re
import subprocess
from decimal import Decimal
from pathlib import Path

import jsonschema
import pytest

SUITE = Path("/usr/share/json-schema-test-suite/tests/draft7")


# ---- both validators -------------------------------------------------------------------------------


def _is_integer(checker, value):
    if isinstance(value, bool):
        return False
    if isinstance(value, Decimal):
        return value == value.to_integral_value()
    return isinstance(value, int)


# Numbers are read as int and Decimal, so that the other validator is exact too.
Oracle = jsonschema.validators.extend(
    jsonschema.Draft202012Validator,
    type_checker=jsonschema.Draft202012Validator.TYPE_CHECKER.redefine("integer", _is_integer),
)


def oracle_errors(schema_text, value_text):
    """The errors of the other validator; those inside anyOf and the like too."""
    with decimal.localcontext() as context:
        context.prec = 2000
        context.Emax = 10**6
        context.Emin = -(10**6)
        validator = Oracle(json.loads(schema_text, parse_float=Decimal))
        queue = list(validator.iter_errors(json.loads(value_text, parse_float=Decimal)))
    found = []
    while queue:
        error = queue.pop()
        found.append(error)
        queue += error.context
    return found


@pytest.fixture(scope="session")
def check(build_dir):
    """A function that gives our verdict on each (schema text, value text)."""
    program = build_dir / "tests" / "tools" / "schema_check"
    if not os.access(program, os.X_OK):
        pytest.fail(f"{program} is missing: build it first, or set RLMFLOW_BUILD")

    def run(pairs):
        for text in (text for pair in pairs for text in pair):
            assert "\n" not in text
        feed = "".join(f"{schema}\n{value}\n" for schema, value in pairs)
        result = subprocess.run([program], input=feed.encode(), capture_output=True, timeout=300)
        assert result.returncode == 0, result.stderr.decode()
        verdicts = result.stdout.decode("utf-8").splitlines()
        assert len(verdicts) == len(pairs)
        return verdicts

    return run


def pointer_of(path):
    """An error's path as a JSON Pointer."""
    return "".join("/" + str(p).replace("~", "~0").replace("/", "~1") for p in path)


def named_pointer(verdict):
    """The place that our message names."""
    place = re.match(r"value: at (.*?): ", verdict).group(1)
    return "" if place == "the root" else place


# ---- generated pairs -------------------------------------------------------------------------------

NAMES = ["a", "b", "c", "a/b", "~", "é"]
NUMBERS = ["0", "1", "-1", "2", "3", "1.0", "3.0", "2.5", "-0.0", "0.3", "0.1", "1e2", "100", "7",
           "12345678901234567890123", "12345678901234567890124", "1.5e1", "0.30", "1E-3", "-7.50"]
STRINGS = ["", "a", "b", "ab", "abc", "é", "a1", "x y", "\U0001d11e", "12"]
PATTERNS = ["^a", "b$", "^[a-z]+$", "[0-9]", "^.$", "a|b", "^$", "x y"]
TYPES = ["null", "boolean", "integer", "number", "string", "array", "object"]


class Raw(str):
    """JSON text of a number, kept as it is."""


def dump(value):
    """JSON text; numbers as written."""
    if isinstance(value, Raw):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(k)}:{dump(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(dump, value)) + "]"
    return json.dumps(value)


class Generator:
    """Random schemas, and random values that often nearly fit them."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def scalar(self):
        """A value without parts."""
        kind = self.random.randrange(6)
        if kind == 0:
            return None
        if kind == 1:
            return self.random.random() < 0.5
        if kind < 4:
            return Raw(self.random.choice(NUMBERS))
        return self.random.choice(STRINGS)

    def value(self, depth=0):
        """Any value."""
        kind = self.random.randrange(10) if depth < 3 else 0
        if kind < 6:
            return self.scalar()
        if kind < 8:
            return [self.value(depth + 1) for _ in range(self.random.randrange(4))]
        return {self.random.choice(NAMES): self.value(depth + 1)
                for _ in range(self.random.randrange(4))}

    def schemas(self, depth):
        """A few schemas."""
        return [self.schema(depth + 1) for _ in range(self.random.randint(1, 3))]

    def keyword(self, depth):
        """One keyword with its value."""
        r = self.random
        count = Raw(r.choice(["0", "1", "2", "3", "2.0"]))
        number = Raw(r.choice(NUMBERS))
        flat = {
            "type": lambda: r.choice(TYPES) if r.random() < 0.6 else r.sample(TYPES, r.randint(1, 3)),
            "enum": lambda: [self.value(2) for _ in range(r.randint(1, 4))],
            "const": lambda: self.value(2),
            "required": lambda: r.sample(NAMES, r.randint(0, 2)),
            "dependentRequired": lambda: {r.choice(NAMES): r.sample(NAMES, r.randint(0, 2))},
            "minimum": lambda: number, "maximum": lambda: number,
            "exclusiveMinimum": lambda: number, "exclusiveMaximum": lambda: number,
            "multipleOf": lambda: Raw(r.choice(["0.1", "2", "3", "0.5", "1.0", "1e1", "0.01", "0.7"])),
            "minLength": lambda: count, "maxLength": lambda: count,
            "minItems": lambda: count, "maxItems": lambda: count,
            "minProperties": lambda: count, "maxProperties": lambda: count,
            "uniqueItems": lambda: r.random() < 0.9,
            "pattern": lambda: r.choice(PATTERNS),
            "title": lambda: "a title", "format": lambda: "email", "default": lambda: self.value(2),
        }
        nested = {
            "properties": lambda: {n: self.schema(depth + 1) for n in r.sample(NAMES, r.randint(1, 3))},
            "patternProperties": lambda: {r.choice(PATTERNS): self.schema(depth + 1)},
            "additionalProperties": lambda: r.choice([False, self.schema(depth + 1)]),
            "propertyNames": lambda: {k: v for k, v in [self.keyword(9)]},
            "items": lambda: self.schema(depth + 1),
            "prefixItems": lambda: self.schemas(depth),
            "contains": lambda: self.schema(depth + 1),
            "minContains": lambda: count, "maxContains": lambda: count,
            "allOf": lambda: self.schemas(depth), "anyOf": lambda: self.schemas(depth),
            "oneOf": lambda: self.schemas(depth), "not": lambda: self.schema(depth + 1),
            "if": lambda: self.schema(depth + 1), "then": lambda: self.schema(depth + 1),
            "else": lambda: self.schema(depth + 1),
            "$ref": lambda: "#/$defs/" + r.choice(["one", "two", "a~1b"]),
        }
        table = flat if depth > 2 or r.random() < 0.45 else nested
        name = r.choice(sorted(table))
        return name, table[name]()

    def schema(self, depth=0):
        """A schema."""
        if self.random.random() < (0.02 if depth == 0 else 0.08):
            return self.random.random() < 0.7
        made = dict(self.keyword(depth) for _ in range(self.random.randint(1, 4)))
        if depth == 0:
            # Definitions go into the value by one step, so they can refer to themselves.
            made["$defs"] = {
                "one": {"properties": {"a": {"$ref": "#/$defs/one"}, "b": self.schema(3)}},
                "two": {"type": self.random.choice(TYPES), "items": {"$ref": "#/$defs/two"}},
                "a/b": self.without_references(),
            }
        return made

    def without_references(self):
        """A schema of flat keywords."""
        return dict(self.keyword(9) for _ in range(self.random.randint(1, 2)))

    def near(self, schema, depth=0):
        """A value that has a fair chance to fit."""
        r = self.random
        if not isinstance(schema, dict) or depth > 4 or r.random() < 0.1:
            return self.value(depth)
        if "const" in schema and r.random() < 0.8:
            return schema["const"]
        if "enum" in schema and r.random() < 0.8:
            return r.choice(schema["enum"])
        for key in ("allOf", "anyOf", "oneOf"):
            if key in schema and r.random() < 0.4:
                return self.near(r.choice(schema[key]), depth + 1)
        types = schema.get("type", r.choice(TYPES))
        kind = r.choice(types) if isinstance(types, list) else types
        if kind == "object" or "properties" in schema:
            names = set(r.sample(NAMES, r.randrange(3))) | set(schema.get("required", []))
            properties = schema.get("properties", {})
            names |= {n for n in properties if r.random() < 0.8}
            return {n: self.near(properties.get(n, schema.get("additionalProperties", True)), depth + 1)
                    for n in sorted(names)}
        if kind == "array" or "items" in schema or "prefixItems" in schema or "contains" in schema:
            heads = schema.get("prefixItems", [])
            return [self.near(heads[i] if i < len(heads) else
                              schema.get(r.choice(["items", "contains"]), True), depth + 1)
                    for i in range(r.randrange(5))]
        plain = {"null": lambda: None, "boolean": lambda: r.random() < 0.5,
                 "integer": lambda: Raw(r.choice(NUMBERS)), "number": lambda: Raw(r.choice(NUMBERS)),
                 "string": lambda: r.choice(STRINGS)}
        return plain[kind]()


@pytest.mark.parametrize("seed", range(5))
def test_generated_pairs_agree(check, seed):
    """Verdict and place agree with the other validator on 2,000 pairs a seed."""
    generator = Generator(seed)
    pairs = []
    while len(pairs) < 2000:
        schema = generator.schema()
        text = dump(schema)
        pairs += [(text, dump(generator.near(schema))) for _ in range(4)]
    differences = []
    fits = refused = 0
    for (schema, value), ours in zip(pairs, check(pairs)):
        if ours.startswith("schema: "):
            refused += 1  # a loop of references, or in a definition nobody can use
            assert "refers to itself" in ours, (schema, ours)
            continue
        theirs = oracle_errors(schema, value)
        fits += not theirs
        if (ours == "ok") != (not theirs):
            differences.append((schema, value, ours, [e.message for e in theirs]))
        elif theirs:
            places = {pointer_of(e.absolute_path) for e in theirs}
            # `false` for items is told at the array there, at the item here.
            if named_pointer(ours) not in places and "no value is allowed" not in ours:
                differences.append((schema, value, ours, sorted(places)))
    assert not differences, f"{len(differences)} differ, such as {differences[:3]}"
    assert 400 < fits < 1600 and refused < 100, "the pairs test too little"


# ---- pairs written by hand -------------------------------------------------------------------------

BIG = "123456789012345678901234567890"
HAND_WRITTEN = [
    # numbers are what their text says
    ('{"const":1}', "1.0", True), ('{"const":1.0}', "true", False), ('{"const":0}', "-0.0", True),
    ('{"const":10}', "1e1", True), ('{"const":[1]}', "[true]", False), ('{"enum":[[false]]}', "[0]", False),
    (f'{{"maximum":{BIG}1}}', BIG + "2", False), (f'{{"maximum":{BIG}1}}', BIG + "1", True),
    (f'{{"const":{BIG}}}', BIG + ".0", True), (f'{{"const":{BIG}}}', BIG + ".1", False),
    ('{"exclusiveMinimum":0.1}', "0.1000000000000000000000000000001", True),
    ('{"exclusiveMinimum":0.1}', "0.10000", False), ('{"minimum":-1e-400}', "-1e-401", True),
    ('{"type":"integer"}', "3.0", True), ('{"type":"integer"}', "3.5", False),
    ('{"type":"integer"}', "35e-1", False), ('{"type":"integer"}', "350e-1", True),
    ('{"type":"integer"}', "1e400", True), ('{"type":"integer"}', "true", False),
    ('{"multipleOf":0.1}', "0.3", True), ('{"multipleOf":0.1}', "0.35", False),
    ('{"multipleOf":0.01}', "19.99", True), ('{"multipleOf":0.0001}', "0.0075", True),
    ('{"multipleOf":7}', "7e300", True), ('{"multipleOf":7}', "1e300", False),
    ('{"multipleOf":7}', "0", True), ('{"multipleOf":7}', "-14.0", True),
    ('{"multipleOf":1.5}', "4.5", True), ('{"multipleOf":100}', "1e2", True),
    ('{"multipleOf":100}', "110", False), (f'{{"multipleOf":3}}', BIG, True),
    # equality
    ('{"uniqueItems":true}', '[{"a":1,"b":2},{"b":2.0,"a":1}]', False),
    ('{"uniqueItems":true}', "[1,true,0,false,null,\"1\"]", True),
    ('{"uniqueItems":true}', "[[1],[true]]", True), ('{"uniqueItems":true}', "[1,1.0]", False),
    ('{"uniqueItems":true}', "[" + ",".join(map(str, range(5000))) + "]", True),
    ('{"uniqueItems":true}', "[" + ",".join(map(str, range(5000))) + ",4321.0]", False),
    ('{"const":{"a":[1,{"b":null}]}}', '{"a":[1.0,{"b":null}]}', True),
    # text
    ('{"maxLength":1}', '"\\ud834\\udd1e"', True), ('{"maxLength":1}', '"\\udc80"', True),
    ('{"minLength":2}', '"\\ud834\\udd1e"', False), ('{"pattern":"^\\ufffd$"}', '"\\udc80"', True),
    ('{"pattern":"^\\\\p{L}+$"}', '"éa"', True), ('{"pattern":"b"}', '"abc"', True),
    ('{"pattern":"^a$"}', '"a\\n"', False), ('{"pattern":"a\\\\u0000b"}', '"a\\u0000b"', True),
    ('{"properties":{"a\\u0000b":{"type":"null"}}}', '{"a\\u0000b":1}', False),
    # references
    ('{"properties":{"next":{"$ref":"#"}},"additionalProperties":false}', '{"next":{"next":{}}}', True),
    ('{"properties":{"next":{"$ref":"#"}},"additionalProperties":false}', '{"next":{"x":{}}}', False),
    ('{"$ref":"#/$defs/a%25b~1c~0","$defs":{"a%b/c~":{"type":"null"}}}', "null", True),
    ('{"$ref":"#/$defs/a%25b~1c~0","$defs":{"a%b/c~":{"type":"null"}}}', "1", False),
    ('{"properties":{"a":{"type":"null"},"b":{"$ref":"#/properties/a"}}}', '{"b":1}', False),
    ('{"allOf":[{"$ref":"#/allOf/1"},{"type":"null"}]}', "1", False),
    ('{"$ref":"#/$defs/a","maximum":3,"$defs":{"a":{"type":"integer"}}}', "4", False),
    # the rest
    ('{"contains":{"type":"null"},"minContains":0}', "[]", True),
    ('{"minContains":5,"maxContains":0}', "[1]", True), ('{"then":false,"else":false}', "1", True),
    ('{"prefixItems":[true],"items":false}', "[1]", True),
    ('{"prefixItems":[true],"items":false}', "[1,2]", False), ("true", "1", True), ("false", "1", False),
]


def test_hand_written_pairs(check):
    """The verdict is the one that stands here."""
    verdicts = check([(schema, value) for schema, value, _ in HAND_WRITTEN])
    wrong = [(*case, ours) for case, ours in zip(HAND_WRITTEN, verdicts)
             if (ours == "ok") != case[2] or ours.startswith("schema: ")]
    assert not wrong


# ---- the test suite --------------------------------------------------------------------------------

# Files of keywords that are outside the subset, or that test other things than validation.
LEFT_OUT_FILES = {
    "dependencies.json": "dependencies became dependentRequired and dependentSchemas",
    "refRemote.json": "references to other documents are not supported",
    "definitions.json": "refers to the meta-schema by its address",
}
LEFT_OUT_CASES = {
    ("ref.json", "ref overrides any sibling keywords"): "they apply since 2019-09",
    ("ref.json", "remote ref, containing refs itself"): "another document",
    ("ref.json", "Recursive references between schemas"): "$id below the root",
    ("ref.json", "Location-independent identifier"): "$id below the root",
    ("ref.json", "Location-independent identifier with absolute URI"): "$id below the root",
    ("ref.json", "Location-independent identifier with base URI change in subschema"): "$id below the root",
    ("ref.json", "escaped pointer ref"): "unknown keywords are refused (tried by hand above)",
}


def translate(schema):
    """Draft 7 as 2020-12: a list of items is prefixItems, additionalItems is items."""
    if isinstance(schema, list):
        return [translate(s) for s in schema]
    if not isinstance(schema, dict):
        return schema
    made = {}
    for key, value in schema.items():
        if key in ("const", "enum", "default"):
            made[key] = value
        elif key == "items" and isinstance(value, list):
            made["prefixItems"] = translate(value)
        elif key == "additionalItems":
            if isinstance(schema.get("items"), list):
                made["items"] = translate(value)
        elif key == "$ref" and isinstance(value, str):
            made[key] = value.replace("#/items/", "#/prefixItems/")
        else:
            made[key] = translate(value)
    return made


def test_suite(check):
    """Every applicable case of the published suite."""
    if not SUITE.is_dir():
        pytest.fail(f"{SUITE} is missing: install the package json-schema-test-suite")
    files = sorted(SUITE.glob("*.json")) + [SUITE / "optional" / "bignum.json",
                                            SUITE / "optional" / "zeroTerminatedFloats.json"]
    cases = []
    for file in files:
        if file.name in LEFT_OUT_FILES:
            continue
        for group in json.loads(file.read_text(), parse_float=Decimal):
            if (file.name, group["description"]) in LEFT_OUT_CASES:
                continue
            schema = dump_exact(translate(group["schema"]))
            for test in group["tests"]:
                name = f"{file.name}: {group['description']}: {test['description']}"
                cases.append((name, schema, dump_exact(test["data"]), test["valid"]))
    verdicts = check([(schema, value) for _, schema, value, _ in cases])
    wrong = [(name, schema, value, ours) for (name, schema, value, valid), ours in zip(cases, verdicts)
             if (ours == "ok") != valid or ours.startswith("schema: ")]
    assert not wrong, f"{len(wrong)} of {len(cases)} differ, such as {wrong[:5]}"
    assert len(cases) > 370


def dump_exact(value):
    """JSON text of values read with Decimal."""
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(k)}:{dump_exact(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(dump_exact, value)) + "]"
    return json.dumps(value)
