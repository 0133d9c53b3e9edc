"""Every public name says what it is."""
import importlib
import inspect
import re

import pytest
import rlmflow

MODULES = [rlmflow, importlib.import_module("rlmflow.testing")]
NAMED = {name: value for module in MODULES for name, value in vars(module).items()
         if not name.startswith("_") and getattr(value, "__module__", "").startswith("rlmflow.")
         and not value.__module__.startswith("rlmflow._")}
CLASSES = {name: value for name, value in NAMED.items() if inspect.isclass(value)}


def is_described(thing, name):
    """With more than a dataclass says of itself."""
    text = inspect.getdoc(thing) or ""
    return len(text.split()) > 1 and not text.startswith(f"{name}(")


def test_they_are_all_looked_at():
    assert {"Flow", "Graph", "RunEnded", "LLMUsage", "tool", "render_tree", "check_runtime"} < set(NAMED)
    assert len(NAMED) > 60


@pytest.mark.parametrize("name", [n for n, v in NAMED.items() if inspect.isclass(v) or inspect.isfunction(v)])
def test_a_class_or_function_has_a_docstring(name):
    assert is_described(NAMED[name], name)


@pytest.mark.parametrize("name", CLASSES)
def test_its_methods_and_properties_have_one(name):
    """Or what they override has."""
    made = CLASSES[name]
    silent = [member for member, value in vars(made).items() if not member.startswith("_")
              and (callable(value) or isinstance(value, (property, classmethod, staticmethod)))
              and not is_described(getattr(made, member), member)]
    assert silent == []


def told_of(owner, member, seen=()):
    """What is said of a callable: in its docstring, that of its class and of the bases of that, and in those that they
    refer to, as in "See `arun`", "See `Graph.merge`"."""
    things = [member, *[base for base in getattr(owner, "__mro__", ()) if base.__module__.startswith("rlmflow")]]
    told = " ".join(inspect.getdoc(thing) or "" for thing in things)
    for path in set(re.findall(r"(?:[Ss]ee|as of|as) `([A-Za-z_.]+)`", told)) - set(seen):
        thing, holder = owner if hasattr(owner, path) else rlmflow, None
        for name in path.replace("rlmflow.", "").split("."):
            thing, holder = getattr(thing, name, None), thing
        told += " " + told_of(holder, thing, (*seen, path)) if thing is not None else ""
    return told


def callables():
    for name, made in NAMED.items():
        if inspect.isfunction(made):
            yield name, None, made
        elif inspect.isclass(made):
            if "__init__" in vars(made):
                yield name, made, made.__init__
            yield from ((f"{name}.{member}", made, getattr(made, member)) for member, value in vars(made).items()
                        if not member.startswith("_") and inspect.isroutine(getattr(made, member, None)))


def test_each_parameter_is_spoken_of():
    silent = []
    for path, owner, member in callables():
        told = told_of(owner, member)
        parameters = [p.name for p in inspect.signature(member).parameters.values()
                      if p.name != "self" and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
        silent += [f"{path}({name})" for name in parameters if not re.search(rf"\b{name}\b", told)]
    assert silent == []
