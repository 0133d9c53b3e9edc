"""What of a function goes into a session as source, and all that keeps it from going."""
from __future__ import annotations

import ast
import builtins
import cmath
import copy
import functools
import linecache
import os
import re
import site
import symtable
import sys
import sysconfig
import types
from typing import Any, Dict, Iterable, List, Set, Tuple

MAX_SOURCE_BYTES = 256 * 1024
MAX_DEPTH = 50  # of a constant
IN_DIRECTORY = "{0} = __import__('functools').partial({0}, working_directory=__import__('os').getcwd())"


def source_of(function: Any, name: str, *, takes_directory: bool = False) -> str:
    """Python that defines the function as `name`, with all that it uses. ValueError tells of everything that
    cannot go along."""
    shipment = Shipment()
    shipment.add_tool(function, name)
    text = shipment.text()
    if takes_directory:
        text += IN_DIRECTORY.format(name) + "\n"
    if not shipment.problems and len(text.encode("utf-8", "surrogatepass")) > MAX_SOURCE_BYTES:
        shipment.problems.append(f"its source, with what goes along, has more than {MAX_SOURCE_BYTES // 1024} KiB")
    if shipment.problems:
        listed = "\n".join(f"  - {problem}" for problem in shipment.problems)
        raise ValueError(f"the tool {name} cannot go into a session:\n{listed}\nMark it @tool(proxy=True), and it runs "
                         "on the host.")
    return text


class Problem(Exception):
    """Why one thing cannot go along."""


class Shipment:
    """The statements that define a function somewhere else, and what their names stand for here."""

    def __init__(self) -> None:
        self.problems: List[str] = []
        self.bound: Dict[str, Any] = {}
        self.functions: Dict[int, str] = {}  # those that go along, by id: under which name
        self.head: List[str] = []
        self.definitions: List[str] = []
        self.aliases: List[str] = []

    def text(self) -> str:
        blocks = [["from __future__ import annotations"] + self.head] + [[d] for d in self.definitions] + [self.aliases]
        return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"

    def add_tool(self, function: Any, name: str) -> None:
        if isinstance(function, types.FunctionType):
            self.bound[name] = function
            self.add_function(function, name)
        else:
            self.problems.append(f"it is {kind_of(function)}")

    def add_function(self, function: Any, name: str) -> None:
        self.functions[id(function)] = name
        try:
            node = definition_of(function)
        except Problem as e:
            self.problems.append(f"{function.__qualname__}: {e}")
            return
        node.name, node.decorator_list = name, []
        self.set_defaults(node.args, function)
        around = function.__code__.co_freevars
        names, assigned = outer_names(node, around)
        for used in sorted(assigned):
            what = "variable around it" if used in around else "global"
            self.problems.append(f"{function.__qualname__} sets the {what} `{used}`, which would be another one there")
        for used in sorted(names - assigned):
            self.add_name(used, function)
        self.definitions.append(ast.unparse(ast.fix_missing_locations(node)))

    def set_defaults(self, args: ast.arguments, function: Any) -> None:
        """The values as they are, whatever expressions made them."""
        def default(name: str, value: Any) -> Any:
            try:
                return ast.parse(self.expression(value), mode="eval").body
            except Problem as e:
                self.problems.append(f"{function.__qualname__} has the default `{name}`, which is {e}")
                return ast.Constant(None)

        names = [a.arg for a in args.posonlyargs + args.args]
        values = function.__defaults__ or ()
        args.defaults = [default(*pair) for pair in zip(names[len(names) - len(values):], values)]
        by_name = function.__kwdefaults__ or {}
        args.kw_defaults = [default(a.arg, by_name[a.arg]) if a.arg in by_name else None for a in args.kwonlyargs]

    def add_name(self, name: str, function: Any) -> None:
        """A name that the function uses and does not define."""
        try:
            found, value = value_of(name, function)
            if found:
                self.bind(name, value)
        except Problem as e:
            self.problems.append(f"{function.__qualname__} uses `{name}`, {e}")

    def bind(self, name: str, value: Any) -> None:
        if name in self.bound:
            if not is_same(self.bound[name], value):
                raise Problem("which means something else in another function that goes along")
            return
        self.bound[name] = value
        if isinstance(value, types.ModuleType):
            if not is_installed(value.__name__):
                raise Problem(f"the module {value.__name__}, which is not installed, so that sessions cannot import "
                              "it; functions that are imported from it by name go along")
            self.head.append(f"import {value.__name__}" + ("" if value.__name__ == name else f" as {name}"))
        elif importable(value):
            self.head.append(import_of(name, value))
        elif isinstance(value, types.FunctionType):
            self.bind_function(name, value)
        else:
            self.head.append(f"{name} = {self.expression(value)}")

    def bind_function(self, name: str, function: Any) -> None:
        from .tools import get_tool_metadata

        marked = get_tool_metadata(function)
        if marked is not None and marked.proxy:
            raise Problem("a tool that runs on the host")
        if id(function) in self.functions:
            self.aliases.append(f"{name} = {self.functions[id(function)]}")
        else:
            self.add_function(function, name)

    def expression(self, value: Any, depth: int = 0) -> str:
        """What a constant is written as."""
        if depth > MAX_DEPTH:
            raise Problem(f"nested more than {MAX_DEPTH} deep")
        kind = type(value)
        if value is None or value is Ellipsis or kind in (bool, str, bytes):
            return repr(value)
        if kind is int:
            return repr(value) if value.bit_length() < 1000 else hex(value)
        if kind in (float, complex):
            return repr(value) if cmath.isfinite(value) else f"{kind.__name__}({str(value)!r})"
        if kind is re.Pattern:
            return f"__import__('re').compile({value.pattern!r}, {value.flags})"
        if kind in (list, tuple, set, frozenset, dict):
            return self.container(value, kind, depth + 1)
        if importable(value):
            return f"__import__({value.__module__!r}, fromlist=['x']).{value.__qualname__}"
        raise Problem(kind_of(value))

    def container(self, value: Any, kind: type, depth: int) -> str:
        if kind is dict:
            return "{%s}" % ", ".join(f"{self.expression(k, depth)}: {self.expression(v, depth)}"
                                      for k, v in value.items())
        items = [self.expression(v, depth) for v in value]
        if kind in (set, frozenset):
            return f"{kind.__name__}([{', '.join(sorted(items))}])"
        text = ", ".join(items)
        return f"[{text}]" if kind is list else f"({text},)" if items else "()"


# ---- where a function is written


def definition_of(function: Any) -> Any:
    """The `def` of a function, or one that is made of its lambda."""
    code = function.__code__
    if "__class__" in code.co_freevars:
        raise Problem("it uses super() or __class__ of its class")
    lines = "".join(linecache.getlines(code.co_filename, function.__globals__))
    found = [node for node in parsed(lines) if is_of(node, code)]
    if not found:
        raise Problem(f"its source cannot be found, or has changed since (it was defined in "
                      f"{os.path.basename(code.co_filename)})")
    if len({ast.dump(node) for node in found}) > 1:
        raise Problem("several lambdas like it stand in one line: give it one of its own, or a `def`")
    node = copy.deepcopy(found[0])
    if isinstance(node, ast.Lambda):
        made: Any = ast.parse("def made(): ...").body[0]
        made.args, made.body = node.args, [ast.Return(node.body)]
        return made
    return node


@functools.lru_cache(maxsize=16)
def parsed(text: str) -> Tuple[Any, ...]:
    """The functions and lambdas in a file."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return ()
    return tuple(n for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)))


def is_of(node: Any, code: Any) -> bool:
    """Whether the code is that of the definition."""
    decorators = getattr(node, "decorator_list", ())
    line = min([node.lineno] + [d.lineno for d in decorators])
    names = [a.arg for a in node.args.posonlyargs + node.args.args + node.args.kwonlyargs]
    return (line == code.co_firstlineno and getattr(node, "name", "<lambda>") == code.co_name
            and names == list(code.co_varnames[:code.co_argcount + code.co_kwonlyargcount]))


# ---- what it uses


class _AtTop(ast.NodeTransformer):
    """Makes a definition one that can stand alone: without annotations, and what it sets of the variables `around` it are
    globals."""

    def __init__(self, around: Iterable[str]):
        self.around = frozenset(around)

    def visit_Nonlocal(self, node: Any) -> Any:
        theirs = [name for name in node.names if name in self.around]
        own = [name for name in node.names if name not in self.around]
        return [*([ast.Global(theirs)] if theirs else ()), *([ast.Nonlocal(own)] if own else ())]

    def visit_arg(self, node: Any) -> Any:
        node.annotation = None
        return node

    def visit_FunctionDef(self, node: Any) -> Any:
        node.returns = None
        return self.generic_visit(node)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_AnnAssign(self, node: Any) -> Any:
        node.annotation = ast.Constant(None)
        return self.generic_visit(node)


def outer_names(node: Any, around: Iterable[str]) -> Tuple[Set[str], Set[str]]:
    """The names that a definition looks for outside of itself, and those that it sets there."""
    bare = ast.fix_missing_locations(_AtTop(around).visit(copy.deepcopy(node)))
    names: Set[str] = set()
    assigned: Set[str] = set()
    todo = list(symtable.symtable(ast.unparse(bare), "<tool>", "exec").get_children())
    while todo:
        scope = todo.pop()
        todo += scope.get_children()
        for symbol in scope.get_symbols():
            if symbol.is_global():
                (assigned if symbol.is_assigned() else names).add(symbol.get_name())
    return names, assigned


def value_of(name: str, function: Any) -> Tuple[bool, Any]:
    """(True, what the name stands for), or (False, None) for a built-in one."""
    free = function.__code__.co_freevars
    if name in free:
        try:
            return True, function.__closure__[free.index(name)].cell_contents
        except ValueError:
            raise Problem("a variable around it that has no value yet") from None
    if name in ("__file__", "__path__", "__spec__", "__loader__", "__cached__"):
        raise Problem("which names a file of this machine")
    if name in function.__globals__:
        return True, function.__globals__[name]
    if hasattr(builtins, name):
        return False, None
    raise Problem("which is defined nowhere")


def is_same(one: Any, other: Any) -> bool:
    try:
        return one is other or (type(one) is type(other) and not callable(one) and bool(one == other))
    except Exception:
        return False


# ---- what a session can import


def importable(value: Any) -> bool:
    """Whether it is a function or class that sessions can import by its name."""
    module, path = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not (callable(value) and isinstance(module, str) and isinstance(path, str)) or not is_installed(module):
        return False
    try:
        return functools.reduce(getattr, path.split("."), sys.modules[module]) is value
    except AttributeError:
        return False


def import_of(name: str, value: Any) -> str:
    module, path = value.__module__, value.__qualname__
    if "." in path:
        return f"{name} = __import__({module!r}, fromlist=['x']).{path}"
    return f"from {module} import {path}" + ("" if path == name else f" as {name}")


def is_installed(name: str) -> bool:
    """Whether it is a module of Python's or of an installed package, rather than of this program."""
    top = name.partition(".")[0]
    if top in sys.builtin_module_names:
        return True
    spec = getattr(sys.modules.get(top), "__spec__", None)
    if spec is None or name not in sys.modules:
        return False
    if spec.origin in ("built-in", "frozen"):
        return True
    return any(is_in(place, directory) for place in [spec.origin, *(spec.submodule_search_locations or ())]
               if place for directory in installed_directories())


@functools.lru_cache(maxsize=None)
def installed_directories() -> Tuple[str, ...]:
    paths = sysconfig.get_paths()
    named = [paths[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")] + site.getsitepackages()
    return tuple(sorted({os.path.realpath(path) for path in named}))


def is_in(path: str, directory: str) -> bool:
    return os.path.realpath(path).startswith(directory + os.sep)


def kind_of(value: Any) -> str:
    """What it is, for a problem."""
    kind = type(value)
    if isinstance(value, types.MethodType):
        return f"a method of an object of class {type(value.__self__).__name__}, which stays on the host"
    if isinstance(value, (types.BuiltinFunctionType, types.MethodWrapperType)):
        return "a function without source in Python"
    if isinstance(value, types.FunctionType):
        return "a function"
    if isinstance(value, type):
        return f"the class {value.__name__}"
    return f"an object of class {kind.__name__}"
