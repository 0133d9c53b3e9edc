"""Every public name says what it is."""
import importlib
import inspect

import pytest
import rlmflow

MODULES = [rlmflow, importlib.import_module("rlmflow.testing")]
NAMED = {name: value for module in MODULES for name, value in vars(module).items()
         if not name.startswith("_") and getattr(value, "__module__", "").startswith("rlmflow.")}
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
