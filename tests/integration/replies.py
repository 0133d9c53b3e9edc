"""Replies of scripted models for the tests of the program."""


def cell(code):
    """A reply whose code block is this."""
    return f"```repl\n{code}\n```"


def says(code, **attributes):
    """The script of a model whose root runs this code at every turn."""
    return [({"agent": "root", **attributes}, cell(code))]


# Two sub-agents, whose answers the root joins.
FAMILY = [
    ({"agent": "root", "turn": 1}, cell(
        'parts = await launch_subagents([{"query": "left", "name": "a"},'
        ' {"query": "right", "name": "b"}])\ndone("+".join(parts))')),
    ({"agent": "root.a"}, cell('done("A")')),
    ({"agent": "root.b"}, cell('done("B")')),
]
