"""The names of inputs and of the API keep their values: a check stands behind each store."""
import _ast

from .errors import InputNameError
from .inputs import describe_value

KEEP = "__rlmflow_keep__"
MISSING = object()


class Names:
    """The names of inputs and of the API in the agent's namespace, which keep their values."""

    def __init__(self, namespace):
        self.namespace = namespace
        self.kept = {}
        self.inputs = set()

    def bind(self, name, value, is_input=False):
        self.namespace[name] = value
        self.kept[name] = value
        self.kept_items = tuple(self.kept.items())
        if is_input:
            self.inputs.add(name)

    def keep(self, *names):
        """Stands after statements that store one of these names."""
        for name in names:
            if self.namespace.get(name, MISSING) is not self.kept[name]:
                raise InputNameError(self.put_back(name))

    def restore(self):
        """Puts back what slipped through (globals(), exec, import *); returns notes."""
        get = self.namespace.get
        for name, value in self.kept_items:
            if get(name) is not value:
                return [self.put_back(n) for n, v in self.kept_items if get(n) is not v]
        return ()

    def put_back(self, name):
        value = self.namespace[name] = self.kept[name]
        if name not in self.inputs:
            return "`%s` belongs to the session and keeps its value; use another name" % name
        return ("`%s` is an input (%s) and keeps its value: the real data is in it already; delete "
                "this line, or use another name for what you make of it, such as `my_%s`" % (
                    name, describe_value(value), name))

    def appear_in(self, source):
        return any(name in source for name in self.kept)

    def guard(self, tree):
        """Puts a check behind every statement that stores a kept name."""
        kept = self.kept.keys()
        tree.body = guard_block(tree.body, kept, kept)


FUNCTIONS = (_ast.FunctionDef, _ast.AsyncFunctionDef)
SCOPES = FUNCTIONS + (_ast.ClassDef, _ast.Lambda)
COMPREHENSIONS = (_ast.ListComp, _ast.SetComp, _ast.DictComp, _ast.GeneratorExp)


def guard_block(statements, here, everywhere):
    """`here`: kept names that a store in this block would change; `everywhere`: all kept names."""
    result = []
    for statement in statements:
        stored = stores_of(statement) & here
        if isinstance(statement, FUNCTIONS):
            here_inside = globals_of(statement) & everywhere
            statement.body = guard_block(statement.body, here_inside, everywhere)
        elif isinstance(statement, _ast.ClassDef):
            statement.body = guard_block(statement.body, frozenset(), everywhere)
        else:
            guard_blocks_inside(statement, stored, here, everywhere)
        result.append(statement)
        if stored:
            result.append(keep_call(statement, stored))
    return result


def guard_blocks_inside(statement, stored, here, everywhere):
    """What the head of a compound statement stores is checked first in each of its blocks."""
    for part in [statement] + getattr(statement, "handlers", []) + getattr(statement, "cases", []):
        place = getattr(part, "pattern", part)
        for field in ("body", "orelse", "finalbody"):
            block = getattr(part, field, None)
            if isinstance(block, list) and block:
                first = [keep_call(place, stored)] if stored and field == "body" else []
                setattr(part, field, first + guard_block(block, here, everywhere))


def keep_call(where, names):
    place = {"lineno": where.lineno, "col_offset": where.col_offset,
             "end_lineno": where.lineno, "end_col_offset": where.col_offset + 1}
    call = _ast.Call(
        func=_ast.Name(id=KEEP, ctx=_ast.Load(), **place), keywords=[],
        args=[_ast.Constant(value=name, kind=None, **place) for name in sorted(names)], **place)
    return _ast.Expr(value=call, **place)


def children(node):
    for field in node._fields:
        value = getattr(node, field, None)
        for child in value if isinstance(value, list) else (value,):
            if isinstance(child, _ast.AST):
                yield child


def globals_of(function):
    names = set()
    todo = list(function.body)
    while todo:
        node = todo.pop()
        if isinstance(node, _ast.Global):
            names.update(node.names)
        elif not isinstance(node, SCOPES):
            todo.extend(children(node))
    return names


def stores_of(node):
    """Names that a statement itself stores, not those of the statements inside of it."""
    names = set()
    todo = [(node, False)]
    while todo:
        node, in_comprehension = todo.pop()
        if isinstance(node, SCOPES):
            names.add(getattr(node, "name", None))
            continue
        kind = type(node).__name__
        if kind == "Name":
            if not in_comprehension and not isinstance(node.ctx, _ast.Load):
                names.add(node.id)
        elif kind == "NamedExpr":
            names.add(node.target.id)
        elif kind == "alias":
            names.add(node.asname or node.name.split(".")[0])
        elif kind in ("MatchAs", "MatchStar", "ExceptHandler"):
            names.add(node.name)
        elif kind == "MatchMapping":
            names.add(node.rest)
        in_comprehension = in_comprehension or isinstance(node, COMPREHENSIONS)
        todo += [(child, in_comprehension) for child in children(node)
                 if not isinstance(child, _ast.stmt)]
    return names
