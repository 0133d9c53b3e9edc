"""The users' document, tests/data/users-document.txt: its snippets are taken from it and run as they stand,
and each name in its prose does what it says there."""
import inspect
import os
import pty
import re
import subprocess
import sys
import threading

import pytest
import rlmflow
from conftest import PYTHON, ROOT, make_package
from test_flow import Replies, block

DOCUMENT = (ROOT / "tests/data/users-document.txt").read_text()


def snippet(first, last):
    """The lines of the document from the one that begins with `first` through the next that begins with
    `last`."""
    found = re.search(rf"^{re.escape(first)}.*?^{re.escape(last)}.*?$", DOCUMENT, re.M | re.S)
    assert found, f"the document has no snippet from {first!r}"
    return found[0]


DOCKER = snippet("DockerRuntime(", ")")
REVIEWING = snippet("import rlmflow", "        return await super().exec_turn(graph, code, replay=replay)")


def bullets():
    """The names that begin the bullets of the document, with what is said of each."""
    return dict(re.findall(r"^• (.*?) — (.*)$", DOCUMENT, re.M))


@pytest.fixture
def workspace(tmp_path, monkeypatch):
    """The current directory, in which there is the one that the document mounts."""
    (tmp_path / "workspace").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def docker(**changes):
    return rlmflow.DockerRuntime(**{"image": "rlmflow:local", **changes})


# Docker.


def test_the_documents_container_is_taken_as_it_stands(workspace):
    runtime = eval(DOCKER, vars(rlmflow))
    assert (runtime.image, runtime.network, runtime.cpus, runtime.user) == ("rlmflow:local", "none", 1.0, "1000:1000")
    assert runtime.memory == 512 << 20
    assert runtime.extra_args == ["--read-only", "--security-opt", "no-new-privileges"]
    assert runtime.mounts == {str(workspace / "workspace"): "/workspace"}
    os.chdir("/")
    assert list(runtime.mounts) == [str(workspace / "workspace")]  # of where it was made


def test_a_container_that_cannot_be_opened_yet_costs_nothing(workspace):
    class Gated(rlmflow.DockerRuntime):
        def open(self, graph):
            raise AssertionError("it was opened")

    for runtime in (eval(DOCKER, vars(rlmflow)), Gated("rlmflow:local"), rlmflow.ModalRuntime(), rlmflow.E2BRuntime(),
                    rlmflow.DaytonaRuntime(), rlmflow.SandboxRuntime()):
        client = Replies()
        with pytest.raises(NotImplementedError, match=r"cannot open sessions of \w+Runtime yet; use Subprocess"):
            rlmflow.Flow(client, runtime=runtime).run("q", journal=workspace / "run.rlm")
        assert client.asked == [] and not (workspace / "run.rlm").exists()


def test_a_mount_that_is_not_there_is_named(workspace):
    (workspace / "workspace").rmdir()
    with pytest.raises(FileNotFoundError, match=rf"mount at {workspace}/workspace \('./workspace' in the current"):
        eval(DOCKER, vars(rlmflow))


@pytest.mark.parametrize("changes, error, told", [
    ({"image": None}, TypeError, "image=None: it must be a str"),
    ({"image": ""}, ValueError, "image='': it is empty"),
    ({"image": "--privileged"}, ValueError, "no name of an image"),
    ({"network": True}, TypeError, "network=True: it must be a str"),
    ({"cpus": "1.0"}, TypeError, "cpus='1.0': it must be a number: processors"),
    ({"cpus": True}, TypeError, "cpus=True"),
    ({"cpus": 0}, ValueError, "cpus=0: it must be more than 0"),
    ({"cpus": float("nan")}, ValueError, "cpus=nan"),
    ({"memory": "512 megs"}, ValueError, "memory='512 megs': it is no size"),
    ({"memory": "0m"}, ValueError, "memory='0m': it is no size"),
    ({"memory": 0.5}, TypeError, "memory=0.5: it must be a size"),
    ({"user": "1000:1000:5"}, ValueError, "user='1000:1000:5'"),
    ({"user": 1000.0}, TypeError, "user=1000.0"),
    ({"extra_args": "--read-only"}, TypeError, "extra_args='--read-only': it must be a list of str"),
    ({"extra_args": ["--cpus", 2]}, TypeError, r"extra_args\[1\]=2: it must be a str"),
    ({"mounts": ["./workspace"]}, TypeError, "mounts=.*: it must be a dict"),
    ({"mounts": {"./workspace": None}}, TypeError, "it maps paths here to paths in the session"),
    ({"mounts": {"./workspace": "workspace"}}, ValueError, "'workspace' must be an absolute path"),
    ({"mounts": {"./workspace": "/w:rx"}}, ValueError, "'/w:rx' must be an absolute path; it may end in"),
    ({"env": {"A=B": "c"}}, ValueError, "'A=B' cannot be a variable"),
    ({"env": {"A": 1}}, TypeError, "names and values of variables must be str"),
    ({"workdir": "workspace"}, ValueError, "workdir='workspace': it must be an absolute path"),
    ({"working_directory": "elsewhere"}, FileNotFoundError, "nothing to mount at .*/elsewhere"),
    ({"docker_bin": None}, TypeError, "docker_bin=None"),
    ({"repl_timeout": -1}, ValueError, "repl_timeout=-1: it must be more than 0: seconds"),
    ({"privileged": True}, TypeError, "unexpected keyword argument 'privileged'"),
])
def test_a_wrong_argument_of_a_container_is_named_when_it_is_made(changes, error, told, workspace):
    with pytest.raises(error, match=told):
        docker(**changes)


def test_what_a_container_may_be_given_otherwise(workspace):
    assert docker().network == docker(network=None).network == "none"
    assert [docker(memory=m).memory for m in ("64k", "1.5G", "4096", 4096)] == [65536, 3 << 29, 4096, 4096]
    assert docker(user=1000).user == "1000" and docker(user="nobody:nogroup").user == "nobody:nogroup"
    runtime = docker(working_directory="workspace", mounts={workspace: "/all:ro"}, env={"A": ""}, docker_bin="podman")
    assert runtime.mounts == {str(workspace / "workspace"): "/workspace", str(workspace): "/all:ro"}
    assert (runtime.workdir, runtime.env, runtime.docker_bin) == ("/workspace", {"A": ""}, "podman")


@pytest.mark.parametrize("make, told", [
    (lambda: rlmflow.ModalRuntime(app_name=3), "ModalRuntime: app_name=3"),
    (lambda: rlmflow.ModalRuntime(timeout=0), "ModalRuntime: timeout=0"),
    (lambda: rlmflow.E2BRuntime(envs=["A"]), r"E2BRuntime: envs=\['A'\]: it must be a dict"),
    (lambda: rlmflow.E2BRuntime(setup_commands="make"), "E2BRuntime: setup_commands='make'"),
    (lambda: rlmflow.DaytonaRuntime(create_timeout="60"), "DaytonaRuntime: create_timeout='60'"),
    (lambda: rlmflow.DaytonaRuntime(remote_workdir="w"), "DaytonaRuntime: remote_workdir='w'"),
    (lambda: rlmflow.SandboxRuntime(network="none"), "SandboxRuntime: network='none': it must be True or False"),
    (lambda: rlmflow.SandboxRuntime(memory="lots"), "SandboxRuntime: memory='lots'"),
])
def test_a_wrong_argument_of_a_rented_or_local_sandbox_is_named(make, told):
    with pytest.raises((TypeError, ValueError), match=told):
        make()


def test_rented_sandboxes_take_what_their_providers_need():
    modal = rlmflow.ModalRuntime("mine", timeout=60, gpu="T4", cpu=2)
    assert (modal.app_name, modal.timeout, modal.container_kwargs) == ("mine", 60, {"gpu": "T4", "cpu": 2})
    e2b = rlmflow.E2BRuntime(template="t", envs={"A": "b"}, setup_commands=["make"], sandbox_kwargs={"secure": True})
    assert (e2b.template, e2b.envs, e2b.setup_commands, e2b.sandbox_kwargs) == (
        "t", {"A": "b"}, ["make"], {"secure": True})
    daytona = rlmflow.DaytonaRuntime(create_params=3, env={"A": "b"}, daytona=4)
    assert (daytona.create_params, daytona.env, daytona.daytona, daytona.repl_timeout) == (3, {"A": "b"}, 4, 30)


# The names of the bullets.


def test_each_bullet_names_a_runtime_or_an_option_of_a_flow():
    named = bullets()
    runtimes = [name for name in named if name.endswith("Runtime") and " " not in name]
    options = [name for name in named if name.islower()]
    assert runtimes == ["DockerRuntime", "ModalRuntime", "E2BRuntime", "DaytonaRuntime"]
    assert options == ["max_depth", "max_iters", "max_budget", "max_output_length", "workers"]
    assert set(named) == {*runtimes, *options, "Custom Runtime"}
    assert all(issubclass(getattr(rlmflow, name), rlmflow.Runtime) for name in [*runtimes, "LocalRuntime"])
    assert set(options) < set(inspect.signature(rlmflow.Flow).parameters)


class Generations:
    """Each agent launches one below it, and answers with what that said."""

    def chat(self, messages):
        return block("r, = await launch_subagents([{'query': 'deeper'}])\n"
                     "done(f'{ENV[\"RLMFLOW_AGENT_DEPTH\"]} > {r}')")


def test_max_depth_is_the_recursion_limit(runtime):
    answer = rlmflow.Flow(Generations(), runtime=runtime, max_depth=2).run("q")
    assert answer == "0 > 1 > 2 > [refused: max depth 2]"
    assert rlmflow.Flow(Generations(), runtime=runtime, max_depth=0).run("q") == "0 > [refused: max depth 0]"


def test_max_iters_is_the_number_of_model_calls_per_agent(runtime):
    class Never(Replies):
        def chat(self, messages):
            self.asked.append(messages)
            if "child" in messages[1]["content"] or len(self.asked) > 1:
                return block("print('again')")
            return block("r, = await launch_subagents([{'query': 'child'}])\nprint(r)")

    client = Never()
    with pytest.raises(rlmflow.RunEnded) as e:
        rlmflow.Flow(client, runtime=runtime, max_iters=3).run("root")
    assert e.value.reason == "max_iters"
    assert ["child" in m[1]["content"] for m in client.asked].count(True) == 3 and len(client.asked) == 6


def test_max_budget_is_of_the_tokens_of_all_agents_together(runtime):
    class Counted:
        last_usage = {"input_tokens": 100, "output_tokens": 20}

        def chat(self, messages, max_tokens):
            if "child" in messages[1]["content"]:
                return block("print('again')")
            return block("print(await launch_subagents([{'query': 'child'}] * 4))")

    with pytest.raises(rlmflow.RunEnded) as e:
        rlmflow.Flow(Counted(), runtime=runtime, max_budget=20_000, max_output_tokens=500, max_iters=1000).run("q")
    graph = e.value.graph
    assert e.value.reason == "budget" and {g.reason for g in graph.children.values()} == {"budget"}
    assert 0 < graph.total_tokens() <= 20_000
    assert graph.total_tokens(recursive=False) < 120 * len(graph.children)  # most was spent by these


def test_max_output_length_shortens_what_the_model_is_shown(runtime):
    client = Replies(block("print('a' * 5000, 'the end')"), block("done('b' * 5000)"))
    assert rlmflow.Flow(client, runtime=runtime, max_output_length=100).run("q") == "b" * 5000
    shown = client.asked[1][-1]["content"]
    assert 100 < len(shown) < 1000 and "aaa" in shown and "the end" in shown and "left out" in shown


def test_workers_caps_the_blocking_calls_at_once(runtime):
    pair, lock, now, most = threading.Barrier(2), threading.Lock(), [], []

    class Blocking:
        def chat(self, messages):
            if "child" not in messages[1]["content"]:
                return block("done(str(await launch_subagents([{'query': 'child'}] * 6)))")
            with lock:
                now.append(1)
                most.append(len(now))
            pair.wait(timeout=30)  # goes on when two are in here
            with lock:
                now.pop()
            return block("done('c')")

    assert rlmflow.Flow(Blocking(), runtime=runtime, workers=2).run("q") == str(["c"] * 6)
    assert max(most) == 2


# Tools.


def test_registered_tools_are_in_the_agents_session(runtime):
    @rlmflow.tool("doubles", proxy=True)
    def double(n: int):
        return 2 * n, os.getpid()

    @rlmflow.tool("halves", proxy=True)
    def halve(n: int):
        return n // 2

    def third(n):
        return n // 3

    runtime.register_tool(double)
    runtime.register_tools([halve, rlmflow.tool("thirds", proxy=True)(third)])
    code = block("import os\nn, pid = double(21)\ndone(f'{n} {halve(8)} {third(9)} {pid != os.getpid()} {pid}')")
    client = Replies(code)
    assert rlmflow.Flow(client, runtime=runtime).run("q") == f"42 4 3 True {os.getpid()}"
    lines = [f"- `{what}" for what in ("double(n: int)`: doubles", "halve(n: int)`: halves", "third(n)`: thirds")]
    assert [line in client.asked[0][0]["content"] for line in lines] == [True] * 3


def test_local_tools_are_taken_into_the_session_if_they_can_be(runtime):
    @rlmflow.tool("says where it runs")
    def where():
        import os
        return os.getpid()

    kept = object()

    @rlmflow.tool("holds what cannot be taken along")
    def held():
        return kept

    runtime.register_tool(where)
    answer = rlmflow.Flow(Replies(block("import os\ndone(f'{where()} {os.getpid()}')")), runtime=runtime).run("q")
    assert len(set(answer.split())) == 1 and answer.split()[0] != str(os.getpid())
    with pytest.raises(ValueError, match="(?s)uses `kept`, an object.*proxy=True"):
        runtime.register_tool(held)


def test_tools_run_relative_to_the_runtimes_working_directory(tmp_path):
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside" / "note").write_text("found")

    @rlmflow.tool("reads on the host", proxy=True)
    def peek(name: str, working_directory: str):
        return open(os.path.join(working_directory, name)).read()

    runtime = rlmflow.SubprocessRuntime(python=PYTHON, working_directory=tmp_path / "inside")
    runtime.register_tool(peek)
    client = Replies(block("done(peek('note') + ' ' + read_file('note') + ' ' + open('note').read())"))
    assert rlmflow.Flow(client, runtime=runtime).run("q") == "found found found"


# The reviewer.


def at_a_terminal(answer, tmp_path):
    """Runs the document's flow in a program on a terminal, whose user answers so. What the terminal
    showed."""
    program = tmp_path / "program.py"
    program.write_text(REVIEWING + f"""

class Client:
    turn = 0

    def chat(self, messages):
        self.turn += 1
        if self.turn == 1:
            return {block("print('rm -rf', 'build')")!r}
        told = "told: " + messages[-1]["content"].splitlines()[0].replace("rm -rf", "gone:")
        return f"```repl\\ndone({{told!r}})\\n```"


print(ReviewingFlow(Client(), runtime=rlmflow.SubprocessRuntime(python={PYTHON!r})).run("tidy up"))
""")
    control, terminal = pty.openpty()
    process = subprocess.Popen([sys.executable, program], stdin=terminal, stdout=terminal, stderr=terminal,
                               env={**os.environ, "PYTHONPATH": str(make_package())}, start_new_session=True)
    os.close(terminal)
    shown = b""
    try:
        while True:
            piece = os.read(control, 4096)
            before, shown = shown, shown + piece
            if shown.endswith(b"> ") and not before.endswith(b"> "):
                os.write(control, answer.encode() + b"\n")
    except OSError:  # the terminal is gone with its program
        pass
    finally:
        os.close(control)
    assert process.wait(timeout=30) == 0, shown
    return shown.decode().replace("\r\n", "\n")


@pytest.mark.parametrize("answer, told", [("y", "told: gone: build"), ("n", "told: rejected by reviewer")])
def test_the_documents_reviewer_asks_at_the_terminal_and_is_heard(answer, told, tmp_path):
    shown = at_a_terminal(answer, tmp_path)
    assert shown == f"run? print('rm -rf', 'build')\n> {answer}\n{told}\n"


def test_an_error_output_is_seen_by_the_next_turn_as_a_failure(runtime):
    space = {"input": lambda prompt: "n"}
    exec(REVIEWING, space)
    client = Replies(block("print('rm -rf')"), block("done('gave up')"))
    graph = rlmflow.Graph(query="q")
    assert space["ReviewingFlow"](client, runtime=runtime).run(graph=graph) == "gave up"
    assert client.asked[1][-1]["role"] == "user"
    assert client.asked[1][-1]["content"].startswith("rejected by reviewer")
    node = next(n for n in graph.nodes if n.type == "error_output")
    assert [node.content, node.output, node.error] == ["rejected by reviewer", "rejected by reviewer", "rejected"]
    assert [n.type for n in graph.nodes] == ["user_query", "llm_output", "error_output", "llm_output",
                                             "exec_action", "done_output"]


def test_the_transport_is_gated_by_what_open_returns():
    asked = []

    class Approving:
        """Any object with start, resume and close."""

        def __init__(self, inner):
            self.inner = inner

        async def start(self, code):
            asked.append(("start", code))
            if "rm -rf" in code:
                return rlmflow.Finished(error="not approved")
            return await self.inner.start(code)

        async def resume(self, results):
            asked.append(("resume", [r.value for r in results]))
            return await self.inner.resume(results)

        async def close(self):
            await self.inner.close()

    class Gated(rlmflow.SubprocessRuntime):
        def open(self, *args, **kwargs):
            return Approving(super().open(*args, **kwargs))

    @rlmflow.tool("looks something up", proxy=True)
    def look(word: str):
        return word + "!"

    runtime = Gated(python=PYTHON)
    runtime.register_tool(look)
    client = Replies(block("print('rm -rf')"), block("print(look('a'))"), block("done('good')"))
    assert rlmflow.Flow(client, runtime=runtime).run("q") == "good"
    assert asked == [("start", "print('rm -rf')"), ("start", "print(look('a'))"), ("resume", ["a!"]),
                     ("start", "done('good')"), ("resume", [None])]
    assert "not approved" in client.asked[1][-1]["content"] and "a!" in client.asked[2][-1]["content"]
