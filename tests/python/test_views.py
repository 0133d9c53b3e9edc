"""Watching runs: on a terminal, in a pipe, in a notebook, by code of the user's; trees and pages."""
import asyncio
import io
import os
import pty
import re
import subprocess
import sys
import types

import pytest
import rlmflow
from test_flow import block

PROGRAM = """
import rlmflow
def chat(messages):
    if "child task" in messages[1]["content"]:
        return "```repl\\nprint('\\x1b[2J evil')\\ndone('c')\\n```"
    return "```repl\\nr = await launch_subagents([{'query': 'child task', 'name': n} for n in 'ab'])\\ndone('-'.join(r))\\n```"
print(rlmflow.Flow(chat, runtime=rlmflow.LocalRuntime(), watch=True).run("the \\x1b]0;query"))
"""


class Tree:
    """Two children, whose answers make the root's."""

    def chat(self, messages):
        if "child task" in messages[1]["content"]:
            return block("done('c')")
        return block("r = await launch_subagents([{'query': 'child task', 'name': n} for n in 'ab'])\ndone('-'.join(r))")


def flow_of(**options):
    return rlmflow.Flow(Tree(), runtime=rlmflow.LocalRuntime(), **options)


def start(**options):
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "TERM": "xterm"}
    return subprocess.Popen([sys.executable, "-c", PROGRAM], env=env, stdout=subprocess.PIPE, text=True, **options)


def test_in_a_pipe_each_change_is_a_line_and_the_answer_stands_alone():
    process = start(stderr=subprocess.PIPE)
    out, err = process.communicate(timeout=60)
    assert out == "c-c\n" and "\x1b" not in err
    lines = err.splitlines()
    assert [line for line in lines if "root.a" in line and "done" in line], err
    assert len(lines) == len(set(lines)) and not any("exec_action" in line for line in lines)
    assert "c-c" in lines[-1] and "query" in lines[0], err


def test_on_a_terminal_the_tree_is_drawn_anew_in_its_place():
    ours, theirs = pty.openpty()
    process = start(stderr=theirs)
    os.close(theirs)
    shown = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # its end
            break
        if not piece:
            break
        shown += piece
    os.close(ours)
    assert process.communicate(timeout=60)[0] == "c-c\n"
    text = shown.decode()
    drawn = re.split(r"\r\x1b\[\d+A\x1b\[J", text)
    ups = [int(n) for n in re.findall(r"\r\x1b\[(\d+)A", text)]
    assert ups == [d.count("\n") for d in drawn[:-1]] and len(drawn) >= 2  # each erases what stood there
    last = re.sub(r"\x1b\[[0-9;]*m", "", drawn[-1])
    assert last.count("answered") == 3 and "─ a " in last and "─ b " in last
    assert "\x1b" not in last and "\x1b[2J" not in text and "\x1b]" not in text  # of the agents'


class Display:
    """What IPython.display would show."""

    def __init__(self, monkeypatch, is_notebook=True):
        self.displayed, self.updates = [], []
        shell = types.SimpleNamespace(**({"kernel": object()} if is_notebook else {}))
        monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
        monkeypatch.setitem(sys.modules, "IPython.display", types.SimpleNamespace(display=self.display))

    def display(self, data, *, raw, display_id):
        assert raw and display_id
        self.displayed.append(data)
        return types.SimpleNamespace(update=lambda data, *, raw: self.updates.append(data))


def test_in_a_notebook_one_output_is_updated(monkeypatch, capsys):
    display = Display(monkeypatch)

    async def cell():
        return flow_of(watch=True).run("<q>")  # its loop runs

    assert asyncio.run(cell()) == "c-c"
    assert len(display.displayed) == 1 and display.updates
    last = display.updates[-1]
    assert last["text/plain"].count("answered") == 3 and "&lt;q&gt;" in last["text/html"] and "<q>" not in last["text/html"]
    assert capsys.readouterr().err == ""


def test_ipython_in_a_terminal_is_no_notebook(monkeypatch, capsys):
    display = Display(monkeypatch, is_notebook=False)
    assert flow_of(watch=True).run("q") == "c-c"
    assert display.displayed == [] and "root.a" in capsys.readouterr().err


def test_nothing_of_ipython_is_imported():
    done = subprocess.run([sys.executable, "-c", PROGRAM + "import sys\nassert 'IPython' not in sys.modules"],
                          env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("stream", [False, True])
def test_a_function_is_told_of_each_change_in_order(stream):
    told = []

    async def main():
        flow = flow_of(watch=lambda event, graph: told.append((event, graph)))
        if stream:
            return [e async for e in flow.run_streaming("q")][-1].graph_id
        graph = rlmflow.Graph("q")
        assert await flow.arun(graph=graph) == "c-c"
        return graph.graph_id

    graph_id = asyncio.run(main())
    assert {g.graph_id for _, g in told} == {graph_id} and {g.agent_id for _, g in told} == {"root"}
    assert [e.type for e, _ in told if e.type != "append_node"] == ["graph_created", "add_child", "add_child"]
    root = [e.node_type for e, _ in told if e.type == "append_node" and e.agent_id == "root"]
    assert root == ["user_query", "llm_output", "exec_action", "supervising_output", "resume_action", "done_output"]


def test_consumers_are_told_in_order_and_closed_in_reverse():
    log = []

    class Logging(rlmflow.StreamConsumer):
        def __init__(self, name):
            self.name = name

        def handle(self, event, graph):
            log.append((self.name, event.type))

        def close(self):
            log.append((self.name, "closed"))

    flow, graph = flow_of(watch=rlmflow.ConsumerGroup([Logging(1), Logging(2)])), rlmflow.Graph("q")
    assert flow.run(graph=graph) == "c-c"
    assert log[:2] == [(1, "graph_created"), (2, "graph_created")] and log[-2:] == [(2, "closed"), (1, "closed")]
    assert [e for n, e in log if n == 1] == [e for n, e in log if n == 2]


async def awaitable(event, graph):
    pass


class ClosesBadly(rlmflow.StreamConsumer):
    def close(self):
        raise KeyError("x")


@pytest.mark.parametrize("watch, told", [
    (lambda event, graph: 1 / 0, "ZeroDivisionError: division by zero"), (lambda: None, "TypeError"),
    (awaitable, "TypeError: it returned an awaitable"), (ClosesBadly(), "KeyError: 'x'")])
def test_one_that_raises_is_told_nothing_more_and_the_run_goes_on(watch, told):
    with pytest.warns(UserWarning, match="what watches the run raised " + re.escape(told)) as caught:
        assert flow_of(watch=watch).run("q") == "c-c"
    assert len(caught) == 1


def test_what_cannot_be_told_is_refused():
    with pytest.raises(TypeError, match="watch=5 is none of True, a function"):
        flow_of(watch=5).run("q")


def test_one_that_watches_may_run_another_flow():
    answers = []

    def watch(event, graph):
        if event.type == "add_child":
            answers.append(flow_of().run("inner"))

    assert flow_of(watch=watch).run("q") == "c-c" and answers == ["c-c"] * 2


def test_a_renderer_shows_a_stream_as_lines_or_trees():
    async def main(out):
        renderer, root = rlmflow.LiveTreeRenderer(out), None
        async for event in flow_of().run_streaming("q"):
            root = event.graph if event.type == "graph_created" else root
            renderer.handle(event, root)
        renderer.close()
        return root

    class Terminal(io.StringIO):
        def isatty(self):
            return True

        def fileno(self):
            return terminal

    lines = io.StringIO()
    root = asyncio.run(main(lines))
    assert "root.a" in lines.getvalue() and "\x1b" not in lines.getvalue()
    ours, terminal = pty.openpty()
    trees = Terminal()
    try:
        asyncio.run(main(trees))
    finally:
        os.close(ours)
        os.close(terminal)
    assert trees.getvalue().rpartition("\x1b[J")[2].count("answered") == 3 and "\x1b[" in trees.getvalue()
    assert rlmflow.render_tree(root) == str(root) and "─ b " in str(root)
    assert root._repr_html_().startswith("<pre") and "─ b " in root._repr_html_()


def test_graphs_of_hostile_texts_are_shown_harmlessly():
    graph = rlmflow.Graph("<script>alert(1)</script>\x1b[2J & more")
    assert "<script>" not in graph._repr_html_() and "\x1b" not in graph._repr_html_() + str(graph)
    assert "<script>alert(1)" not in graph.to_html()
