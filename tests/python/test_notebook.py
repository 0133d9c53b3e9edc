"""A real kernel of a notebook: its loop runs already, its input comes over a socket, and its stop button is a signal."""
import os
import threading

import pytest
from conftest import SITE
from jupyter_client.manager import start_new_kernel

SECONDS = 60
BEGIN = '''
import asyncio, contextvars, threading, rlmflow

class Client:
    """Two children, then their answers."""
    def chat(self, messages):
        if "child task" in messages[1]["content"]:
            return "```repl\\ndone('c')\\n```"
        return "```repl\\nr = await launch_subagents([{'query': 'child task'}] * 2)\\ndone('-'.join(r))\\n```"

class Asking(rlmflow.Flow):
    async def exec_turn(self, graph, code, *, replay=False):
        if input("run it? ") != "y":
            node = rlmflow.ErrorOutput(content="refused", output="refused", error="refused")
            self.append_node(graph, node)
            return node
        return await super().exec_turn(graph, code, replay=replay)

class Endless:
    """Says when its cell has begun."""
    def chat(self, messages):
        return "```repl\\nhere()\\nwhile True: pass\\n```"

@rlmflow.tool("Tells that it is called.", proxy=True)
def here():
    print("here", flush=True)

flow = rlmflow.Flow(Client(), runtime=rlmflow.LocalRuntime())
'''


class Notebook:
    def __init__(self):
        self.manager, self.client = start_new_kernel(env={**os.environ, "PYTHONPATH": str(SITE)})
        assert self.run(BEGIN) == []

    def run(self, code, typed="", interrupt_at=None):
        """What a cell gives out: (kind, text) of each. `typed` are the answers to its questions; it is interrupted
        when it has printed `interrupt_at`."""
        outputs, answers = [], iter(typed)

        def output(message):
            content = message["content"]
            data = content.get("data", {})
            text = content.get("text") or data.get("text/html") or data.get("text/plain") or content.get("ename")
            if message["msg_type"] in ("stream", "display_data", "update_display_data", "execute_result", "error"):
                outputs.append((content.get("name", message["msg_type"]), text))
            if interrupt_at is not None and interrupt_at in (content.get("text") or ""):
                threading.Thread(target=self.manager.interrupt_kernel).start()

        self.client.execute_interactive(code, timeout=SECONDS, allow_stdin=True, output_hook=output,
                                        stdin_hook=lambda message: self.client.input(next(answers)))
        return outputs


@pytest.fixture(scope="module")
def notebook():
    made = Notebook()
    yield made
    made.client.stop_channels()
    made.manager.shutdown_kernel(now=True)


@pytest.mark.parametrize("call", ["flow.run('q')", "await flow.arun('q')"])
def test_a_run_in_a_cell(notebook, call):
    assert notebook.run(call) == [("execute_result", "'c-c'")]


def test_a_stream_in_a_cell(notebook):
    told = notebook.run("async for event in flow.run_streaming('q'): print(event.agent_id, event.node_type)")
    lines = "".join(text for _, text in told).splitlines()
    assert {kind for kind, _ in told} == {"stdout"} and lines[0] == "root user_query"
    assert lines.count("root.child1 done_output") == 1 and lines[-1] == "root done_output"


def test_the_last_line_of_a_cell_shows_a_graph(notebook):
    graph = "g = rlmflow.Graph(query='third')\nflow.run(graph=g)\n"
    [(kind, page)] = notebook.run(graph + "g")
    assert kind == "execute_result" and "child0  answered" in page and page.startswith("<pre")
    [(kind, tree)] = notebook.run("print(g)")
    assert kind == "stdout" and len(tree.splitlines()) >= 3 and "child1  answered" in tree


def test_the_tree_grows_in_one_output(notebook):
    outputs = notebook.run("watched = rlmflow.Flow(Client(), runtime=rlmflow.LocalRuntime(), watch=True)\n"
                           "x = watched.run('hello <b>')")
    kinds = [kind for kind, _ in outputs]
    assert kinds[0] == "display_data" and kinds.count("display_data") == 1
    assert set(kinds[1:]) <= {"update_display_data"}
    assert "child1  answered" in outputs[-1][1] and "hello <b>" not in outputs[-1][1]


@pytest.mark.parametrize("call", ["asking.run('q')", "await asking.arun('q')"])
def test_a_gate_asks_with_input(notebook, call):
    make = "asking = Asking(Client(), runtime=rlmflow.LocalRuntime())\n"
    assert notebook.run(make + call, "nyyy") == [("execute_result", "'c-c'")]


def test_context_variables_are_those_of_the_cell(notebook):
    code = ("who = contextvars.ContextVar('who')\nwho.set('me')\nseen = []\n"
            "def client(messages): return \"```repl\\ndone('x')\\n```\"\n"
            "class Looking(rlmflow.Flow):\n"
            "    async def exec_turn(self, graph, code, *, replay=False):\n"
            "        seen.append(who.get('nobody'))\n"
            "        return await super().exec_turn(graph, code, replay=replay)\n"
            "(Looking(client, runtime=rlmflow.LocalRuntime()).run('q'), seen)")
    assert notebook.run(code) == [("execute_result", "('x', ['me'])")]


def test_the_stop_button_stops_a_run(notebook):
    outputs = notebook.run("endless = rlmflow.Flow(Endless(), runtime=rlmflow.SubprocessRuntime(), tools=[here])\n"
                           "endless.run('q')", interrupt_at="here")
    assert [kind for kind, _ in outputs] == ["stdout", "error"] and outputs[-1][1] == "KeyboardInterrupt"
    assert notebook.run("(endless.runs, flow.run('q'))") == [("execute_result", "({}, 'c-c')")]
