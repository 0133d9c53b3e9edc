"""The package's types: its own files, the extension's stub, and what a program of the user's is told."""
import re
import subprocess
import sys

import pytest
from conftest import ROOT, make_package

CONFIG = str(ROOT / "pyproject.toml")


def checked(module, *arguments, cache):
    """What a module of mypy says of the package."""
    if subprocess.run([sys.executable, "-c", "import mypy"], capture_output=True).returncode:
        pytest.fail("mypy of tests/requirements.txt is not there")
    return subprocess.run([sys.executable, "-m", module, *arguments], cwd=make_package(), capture_output=True, text=True,
                          timeout=600, env={"PATH": "/usr/bin:/bin", "MYPY_CACHE_DIR": str(cache)}).stdout


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("mypy")


def test_the_files_of_the_package_are_well_typed(cache):
    told = checked("mypy", "--config-file", CONFIG, cache=cache)
    assert told.startswith("Success: no issues found in"), told


def test_the_stub_of_the_extension_says_what_is_there(cache):
    told = checked("mypy.stubtest", "--mypy-config-file", CONFIG, "rlmflow._engine", cache=cache)
    assert told.startswith("Success: no issues found in 1 module"), told


PROGRAM = """
import rlmflow

class Mine(rlmflow.Flow):
    async def exec_turn(self, graph: rlmflow.Graph, code: str, *, replay: bool = False) -> rlmflow.Node:
        node = rlmflow.ErrorOutput(content="no", output="no", error="rejected")
        self.append_node(graph, node)
        return await super().exec_turn(graph, code, replay=replay) if replay else node

    def build_system_prompt(self, graph: rlmflow.Graph) -> int:  # wrong: the base returns a str
        return 3

flow = Mine(rlmflow.OpenAIClient(model="m", price=(1, 1, 1, 2)), max_budget=1000, llm_request_timeout=3.5,
            prompt_builder=rlmflow.DEFAULT_BUILDER.section("a", lambda flow, graph: "text", before="tools"))
answer: str = flow.run("q", inputs={"n": 3}, output_schema={"type": "integer"})
number: int = flow.run("q")  # wrong: a str
rlmflow.Flow(None, max_depth="2")  # wrong: an int
rlmflow.DEFAULT_BUILDER.section("a", 3)  # wrong: a body
value = rlmflow.StructuredOutputParser()(answer, {"type": "integer"})

async def watch() -> None:
    async for event in flow.run_streaming("q", until="next", n=2):
        print(event.agent_id, event.node_type)
        event.nothing  # wrong: no such member

def reasons(graph: rlmflow.Graph) -> "list[str]":
    return [g.reason for g in graph.walk()] + [n.content for n in graph.nodes if isinstance(n, rlmflow.LLMOutput)]
"""


STRICT = """
from typing import AsyncIterator, Dict, List

import rlmflow

@rlmflow.tool("Adds.", proxy=True, max_calls=3)
def add(a: int, b: int = 1) -> int:
    return a + b

@rlmflow.tool
def plain(text: str) -> str:
    \"\"\"Says it.\"\"\"
    return text

@rlmflow.tool("Waits.")
async def wait(seconds: float) -> None:
    pass

class Gate(rlmflow.Backend):
    def __init__(self, inner: rlmflow.Backend) -> None:
        self.inner = inner

class Gated(rlmflow.SubprocessRuntime):
    async def open(self, graph: rlmflow.Graph) -> object:
        return Gate(await super().open(graph))

class Reviewed(rlmflow.Flow):
    async def exec_turn(self, graph: rlmflow.Graph, code: str, *, replay: bool = False) -> rlmflow.Node:
        return await super().exec_turn(graph, code, replay=replay)

def chat(messages: List[Dict[str, str]]) -> str:
    return "done"

runtime = Gated(working_directory="/tmp")
runtime.register_tools([*rlmflow.FILE_TOOLS, add])
flow = Reviewed(chat, runtime=runtime, tools=[plain, wait], llm_clients={"small": rlmflow.OpenAIClient("m", timeout=3)})
total: int = add(1, 2)
add("x", 2)  # wrong: an int
plain(3)  # wrong: a str
rlmflow.tool("Adds.", max_calls="3")  # wrong: an int
rlmflow.nothing  # wrong: no such name

async def events(graph: rlmflow.Graph) -> AsyncIterator[str]:
    await wait(0.5)
    async for event in flow.run_streaming(graph=graph, until="idle"):
        yield event.node_id
    last = graph.current()
    if isinstance(last, rlmflow.DoneOutput):
        yield last.result.upper() + str(graph.usage().cost) + str(sum(graph.tokens()))
    edit = graph.replace(graph.nodes[0], "q")
    if isinstance(edit, rlmflow.ReplaceNode) and edit.replaced_node:
        yield edit.replaced_node.id
    await flow.merge(graph, graph.fork(), summary=lambda branch: branch.result())
"""


@pytest.mark.parametrize("source, options", [(PROGRAM, ["--check-untyped-defs"]), (STRICT, ["--strict"])])
def test_a_program_of_the_users_is_told_its_mistakes_and_no_others(source, options, cache, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(source)
    told = checked("mypy", *options, str(program), cache=cache)
    wrong = {i for i, line in enumerate(source.splitlines(), 1) if "# wrong" in line}
    assert {int(n) for n in re.findall(r"program\.py:(\d+): error", told)} == wrong, told
