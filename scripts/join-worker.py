#!/usr/bin/env python3
"""join-worker.py [OUTPUT [DEPFILE]]: joins the parts of worker/ into the one text that a session runs.

Without OUTPUT it is written to standard output; DEPFILE names for ninja what it was made of.

A part imports whole names from the parts before it (`from .frames import Channel`) and modules of the
standard library. In the joined text all parts share one namespace: their imports of each other are gone,
those of the standard library stand once, at the top. So two parts may not give one name two meanings,
and a part may set only names of its own. A part that does, that uses a name without defining or
importing it, or that imports what it does not use, is an error.
"""
import ast
import builtins
import os
import symtable
import sys

DIRECTORY = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "worker")
ORDER = """agent_code imports json_text errors descriptors output streams reports frames mapped_text inputs
values calls display monitor session loops api names cells file_tools source_tools opening interrupts process main""".split()


class Part:
    """One file: its text without docstring and imports, the names it imports, defines and uses."""

    def __init__(self, name):
        self.name = name
        self.path = os.path.join(DIRECTORY, name + ".py")
        with open(self.path, encoding="utf-8") as file:
            source = file.read()
        lines = source.split("\n")
        self.docstring = ast.get_docstring(ast.parse(source), clean=False)
        if self.docstring is None:
            self.fail("it has no docstring")
        self.standard = {}  # name: the statement that imports it
        self.siblings = {}  # name: the part it comes from
        for i, statement in enumerate(ast.parse(source).body):
            if i == 0 or isinstance(statement, (ast.Import, ast.ImportFrom)):
                for line in range(statement.lineno - 1, statement.end_lineno):
                    lines[line] = ""
            if isinstance(statement, ast.Import):
                self.add_imports(statement.names, "import %s")
            elif isinstance(statement, ast.ImportFrom) and statement.level == 0:
                self.add_imports(statement.names, "from %s import %%s" % statement.module)
            elif isinstance(statement, ast.ImportFrom):
                if any(alias.asname for alias in statement.names):
                    self.fail("it gives another name to what it imports from %s" % statement.module)
                self.siblings.update((alias.name, statement.module) for alias in statement.names)
        self.text = "\n".join(lines).strip("\n")
        if any(isinstance(n, ast.ImportFrom) and n.level for n in ast.walk(ast.parse(self.text))):
            self.fail("it imports another part inside a function")
        self.defined, self.used = set(), set()
        self.look_at(symtable.symtable(self.text, self.path, "exec"))

    def add_imports(self, names, form):
        for alias in names:
            text = alias.name + (" as " + alias.asname if alias.asname else "")
            self.standard[alias.asname or alias.name] = form % text

    def look_at(self, scope):
        is_top = scope.get_type() == "module"
        for symbol in scope.get_symbols():
            if is_top or symbol.is_global():
                if symbol.is_assigned() or symbol.is_imported():
                    self.defined.add(symbol.get_name())
                if symbol.is_referenced():
                    self.used.add(symbol.get_name())
        for inner in scope.get_children():
            self.look_at(inner)

    def fail(self, why):
        sys.exit("join-worker: worker/%s.py: %s" % (self.name, why))


def check(parts):
    owners = {}  # name: the part that defines it, or the statement that imports it
    for part in parts:
        for name, owner in part.siblings.items():
            if owners.get(name) != owner:
                part.fail("it imports %s from %s, which does not define it or comes later" % (name, owner))
        for name, owner in [(n, part.name) for n in part.defined] + list(part.standard.items()):
            if owners.setdefault(name, owner) != owner:
                part.fail("%s has another meaning already: %s" % (name, owners[name]))
        known = part.defined | part.standard.keys() | part.siblings.keys()
        for name in sorted(part.used - known - set(dir(builtins))):
            part.fail("it uses %s, which it neither defines nor imports" % name)
        for name in sorted((part.standard.keys() | part.siblings.keys()) - part.used):
            part.fail("it imports %s and does not use it" % name)


def join(parts):
    imports = sorted({statement for part in parts for statement in part.standard.values()})
    texts = ['"""%s"""' % parts[-1].docstring, "\n".join(imports)]
    texts += ["# ---- worker/%s.py\n\n%s" % (part.name, part.text) for part in parts]
    return "\n\n\n".join(texts) + "\n"


def main():
    files = {name[:-3] for name in os.listdir(DIRECTORY) if name.endswith(".py")}
    if files != set(ORDER):
        sys.exit("join-worker: worker/ holds %s, which ORDER does not name, or lacks it"
                 % ", ".join(sorted(files ^ set(ORDER))))
    parts = [Part(name) for name in ORDER]
    check(parts)
    output, depfile = (sys.argv[1:] + [None, None])[:2]
    with open(output or 1, "w", encoding="utf-8") as file:
        file.write(join(parts))
    if depfile:
        with open(depfile, "w", encoding="utf-8") as file:
            file.write("%s: %s\n" % (output, " ".join(part.path.replace(" ", "\\ ") for part in parts)))


if __name__ == "__main__":
    main()
