"""The names of the Python project of this name, with parameters and defaults (tests/data/known_names.txt): each is
here, or stands in the table of docs/migrating.md."""
import ast
import importlib
import inspect
import re

import rlmflow
from conftest import ROOT

KNOWN = [line for line in (ROOT / "tests/data/known_names.txt").read_text().splitlines()
         if line and not line.startswith("#")]
OBJECTS = {"Flow": rlmflow.Flow(str, runtime=rlmflow.LocalRuntime()), "Graph": rlmflow.Graph("q"),
           "Runtime": rlmflow.LocalRuntime(), "Event": rlmflow.GraphCreated("g", "root"),
           "StructuredOutputError": rlmflow.StructuredOutputError("1", {}, ValueError())}
ABSENT = object()


def member(thing, name):
    """What stands behind a dot; of a dataclass also a field."""
    if inspect.ismodule(thing) and thing is rlmflow and not hasattr(thing, name):
        try:
            return importlib.import_module(f"rlmflow.{name}")
        except ModuleNotFoundError:
            return ABSENT
    if name in getattr(thing, "__dataclass_fields__", ()):
        return thing.__dataclass_fields__[name]
    fallback = getattr(OBJECTS.get(getattr(thing, "__name__", "")), name, ABSENT)
    return getattr(thing, name, fallback)


def found(path):
    """(what it is or ABSENT, the path as far as it was followed)."""
    thing, followed = rlmflow, []
    for name in path.split("."):
        followed.append(name)
        thing = member(thing, name)
        if thing is ABSENT:
            break
    return thing, ".".join(followed)


def parameters_of(thing):
    """By name, without self; those that **options hands on to the base too."""
    parameters = {p.name: p for p in inspect.signature(thing).parameters.values() if p.name != "self"}
    if inspect.isclass(thing) and any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        parameters.update((name, p) for name, p in parameters_of(thing.__base__).items() if name not in parameters)
    return parameters


def differs(known, parameter):
    """Whether a default, as the line writes it, is another one here; where none is written nothing is said."""
    return known is not None and ast.unparse(known) != "..." and ast.literal_eval(known) != parameter.default


def absent_of(line):
    """What a line names that is not here: NAME, NAME(parameter=), NAME(parameter=DEFAULT) for another default,
    NAME(parameter, parameter) where they have other places."""
    path, bracket, _ = line.partition("(")
    thing, followed = found(path)
    if thing is ABSENT or bracket and not callable(thing):
        return [path if followed == path else f"rlmflow.{followed}"]
    if not bracket:
        return []
    known = ast.parse(f"def known{line[len(path):]}: ...").body[0].args
    here = parameters_of(thing)
    places = [p.name for p in here.values() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.POSITIONAL_ONLY)]
    needed = len(known.args) - len(known.defaults)
    named = list(zip([*known.args[needed:], *known.kwonlyargs], [*known.defaults, *known.kw_defaults]))
    absent = [f"{path}({argument.arg}=)" for argument, _ in named if argument.arg not in here]
    absent += [f"{path}({argument.arg}={ast.unparse(default)})" for argument, default in named
               if argument.arg in here and differs(default, here[argument.arg])]
    by_place = [argument.arg for argument in known.args]
    if by_place[needed:] != places[needed:len(by_place)] or len(places) < needed:
        absent.append(f"{path}({', '.join(by_place)})")
    if known.vararg and not any(p.kind is p.VAR_POSITIONAL for p in here.values()):
        absent.append(f"{path}(*{known.vararg.arg})")
    return absent


ABSENT_NAMES = sorted({name for line in KNOWN for name in absent_of(line)})



def test_each_name_that_is_known_is_here_or_stands_in_the_table():
    table = (ROOT / "docs/migrating.md").read_text().split("| name | now |\n")[1].split("\n\n")[0]
    assert len(KNOWN) > 200
    listed = [name for row in table.splitlines() for name in re.findall(r"`([^`]+)`", row.split(" | ")[0])]
    assert sorted(listed) == ABSENT_NAMES
