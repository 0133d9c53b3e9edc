"""Faults that engines of this kind are known for, each shown to be gone: runs that hang or die, answers that are
wrong, waits that are not needed. Those of cells, limits and secrets are in test_known_faults_of_cells.py."""
import asyncio
import os
import stat
import sys
import threading
import time

import pytest
import rlmflow
from conftest import PYTHON
from test_flow import Replies, block


class Minds:
    """Replies by what the task contains, each agent's in turn; keeps what was asked."""

    def __init__(self, **replies):
        self.replies = {task: list(texts) if isinstance(texts, (list, tuple)) else texts
                        for task, texts in replies.items()}
        self.asked = []
        self.lock = threading.Lock()

    def chat(self, messages):
        with self.lock:
            self.asked.append(messages)
            asked = next(m["content"] for m in messages if m["role"] == "user")
            mine = self.replies[next(task for task in self.replies if task in asked)]
            if callable(mine):
                return mine(messages)
            turn = sum(m["role"] == "assistant" for m in messages)
            return mine[min(turn, len(mine) - 1)]


def launch(*specs, then="done(str(r))", more=""):
    """A reply that launches these."""
    return block(f"{more}r = await launch_subagents([{', '.join(map(str, specs))}])\n{then}")


def run(client, runtime, *, tools=(), **options):
    """The graph of a run that was answered, and the answer."""
    graph = rlmflow.Graph(query=options.pop("query", "main"), inputs=options.pop("inputs", None))
    journal = options.pop("journal", None)
    answer = rlmflow.Flow(client, runtime=runtime, tools=list(tools), **options).run(graph=graph, journal=journal)
    return graph, answer


# Runs that hang or die.


def test_a_child_whose_model_fails_is_a_value_and_its_siblings_go_on(runtime):
    def broken(messages):
        raise ValueError("out of words")

    client = Minds(bad=broken, good=[block("done('fine')")], main=[launch(
        {"query": "good"}, {"query": "bad"}, {"query": "good"},
        then="done(f'{r[0]} {r[2]} {r[1].reason}: {r[1].message}')")])
    assert run(client, runtime)[1] == "fine fine failed: chat() raised ValueError: out of words"


def test_a_flood_of_errors_stops_no_session(runtime):
    code = block("import os, sys\nfor _ in range(3000): sys.stderr.write('x' * 100)\n"
                 "os.system('head -c 300000 /dev/zero >&2')\ndone('went on')")
    assert run(Replies(code), runtime)[1] == "went on"


def test_what_code_writes_to_descriptors_never_meets_the_protocol(runtime):
    code = block("import os, threading\nos.write(1, b'{\"id\": 1}\\n')\nos.system('echo child')\n"
                 "t = threading.Thread(target=lambda: os.write(1, b'\\xff\\x00' * 50))\nt.start(), t.join()\n"
                 "try:\n    input()\nexcept EOFError:\n    print('no input')")
    client = Replies(code, block("done('x')"))
    assert run(client, runtime)[1] == "x"
    assert all(said in client.asked[1][-1]["content"] for said in ('{"id": 1}', "child", "no input"))


def test_parents_that_wait_take_no_worker_from_their_children(runtime):
    parents = [{"query": "middle"}] * 6
    client = Minds(middle=[launch({"query": "leaf"}, {"query": "leaf"}, then="done('+'.join(r))")],
                   leaf=[block("done('leaf')")], main=[launch(*parents, then="done('|'.join(r))")])
    assert run(client, runtime, workers=1)[1] == "|".join(["leaf+leaf"] * 6)


@pytest.mark.parametrize("code", ["import sys\nsys.exit(3)", "raise KeyboardInterrupt", "raise SystemExit",
                                  "while True: pass"])
def test_no_cell_ends_or_stalls_the_program_it_runs_in(code):
    client = Replies(block("x = 1"), block(code), block("done(x)"))
    graph, answer = run(client, rlmflow.LocalRuntime(exec_timeout=0.5))
    assert answer == "1"
    assert [n.type for n in graph.nodes].count("error_output") == 1


def test_values_that_cannot_cross_end_no_session(runtime):
    @rlmflow.tool("returns what cannot cross", proxy=True)
    def odd():
        return object()

    client = Replies(block("x = 1\nENV['odd'] = object()"), block("odd()"), block("done(f'{x} {INPUTS}')"))
    graph, answer = run(client, runtime, tools=[odd], inputs={"nothing": None})
    assert answer == "1 {'nothing': None}"
    assert "what the tool odd returned is an object" in client.asked[2][-1]["content"]


def test_cells_have_a_time_limit_unless_told_otherwise(runtime, tmp_path):
    run(Replies(block("done(1)")), runtime, journal=tmp_path / "run.rlm")
    assert b'"exec_timeout_ms":120000' in (tmp_path / "run.rlm" / "journal").read_bytes()


# Wrong results.


def test_results_stand_in_the_order_of_the_specs_refused_ones_too(runtime):
    client = Minds(good=[block("done(INPUTS['n'])")], main=[launch(
        {"query": "x" * 3000}, {"query": "good", "inputs": {"n": "one"}}, {"query": "y" * 3000},
        {"query": "good", "inputs": {"n": "two"}}, then="done(' '.join(str(x)[:9] for x in r))")])
    assert run(client, runtime)[1] == "[refused: one [refused: two"


def test_names_of_children_never_repeat_and_each_has_its_own_inputs(runtime):
    two = [{"query": "good", "inputs": {"n": n}} for n in (1, 2)]
    again = [{"query": "good", "inputs": {"n": n}} for n in (3, 4)]
    client = Minds(good=[block("done(str(INPUTS['n']))")], main=[
        launch(*two, then="print(r)"), launch(*again, then="print(r)"),
        launch({"query": "good", "name": "same"}, {"query": "good", "name": "same"}, then="print('never')"),
        block("done('x')")])
    graph, _ = run(client, runtime)
    assert list(graph.children) == [f"root.child{i}" for i in range(4)]
    assert [g.result() for g in graph.children.values()] == ["1", "2", "3", "4"]
    told = [n.content for n in graph.nodes if n.type == "error_output"]
    assert len(told) == 1 and "ValueError" in told[0] and "same" in told[0]


def test_names_of_children_are_no_paths(runtime):
    names = ["a/b", "..", "a.b", "a\\b", ""]
    client = Minds(good=[block("done(1)")], main=[
        *(launch({"query": "good", "name": name}, then="print('never')") for name in names), block("done('x')")])
    graph, _ = run(client, runtime)
    told = [n.content for n in graph.nodes if n.type == "error_output"]
    assert len(told) == len(names) and all("must be 1 to 64 letters, digits, _ or -" in t for t in told)
    assert list(graph.children) == []


def test_a_call_that_fails_and_is_made_again_is_counted(runtime):
    class RateLimitError(Exception):
        pass

    class Failing(Replies):
        def chat(self, messages):
            if not self.asked:
                self.asked.append(messages)
                raise RateLimitError("later")
            return super().chat(messages)

    graph, _ = run(Failing(block("done('x')")), runtime)
    assert (graph.usage().calls, graph.usage().estimated) == (2, 2)  # which says no usage of its own


def test_forks_are_told_apart_by_their_graphs_and_nodes_by_ids_of_64_bits(runtime, tmp_path):
    graph, _ = run(Replies(block("print(1)"), block("done('x')")), runtime, journal=tmp_path / "run.rlm")
    fork = graph.fork()
    assert fork.graph_id != graph.graph_id and [n.id for n in fork.nodes] == [n.id for n in graph.nodes]
    assert all(len(n.id) == len("n_") + 16 for n in graph.nodes)


def test_restoring_a_session_launches_and_buys_nothing_again(runtime, tmp_path):
    client = Minds(child=[block("done('c')")], main=[launch({"query": "child"}, then="print(r)")])
    with pytest.raises(rlmflow.RunEnded):
        run(client, runtime, max_iters=1, journal=tmp_path / "run.rlm")
    more = Replies(block("done(f'{r} again')"))
    assert rlmflow.Flow(more, runtime=runtime).resume(tmp_path / "run.rlm", restore="replay") == "['c'] again"
    assert len(more.asked) == 1


@pytest.mark.parametrize("how", ["cancelled", "terminated"])
def test_a_flow_whose_run_was_ended_runs_again(how, runtime):
    async def main():
        class Slow(Replies):
            async def chat(self, messages):
                if not self.replies:
                    asked.set()
                    await asyncio.sleep(3600)
                return self.replies.pop(0)

        client, asked = Slow(), asyncio.Event()
        flow = rlmflow.Flow(client, runtime=runtime)
        task = asyncio.ensure_future(flow.arun("main"))
        await asked.wait()
        if how == "cancelled":
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        else:
            flow.terminate(["root"])
            with pytest.raises(rlmflow.RunEnded, match="terminated"):
                await task
        client.replies.append(block("done('second')"))
        return await flow.arun("main")

    assert asyncio.run(main()) == "second"


def test_a_child_that_hits_a_limit_under_a_schema_costs_its_siblings_nothing(runtime):
    schema = {"type": "integer"}
    client = Minds(good=[block("done(7)")], never=[block("print('again')")], main=[launch(
        {"query": "good", "output_schema": schema}, {"query": "never", "output_schema": schema},
        then="done(f'{r[0] + 1} {type(r[1]).__name__} {r[1].reason}')")])
    assert run(client, runtime, child_max_iters=2)[1] == "8 Failure max_iters"


def test_the_task_is_never_dropped_from_a_long_conversation(runtime):
    client = Replies(*[block(f"print({i})") for i in range(8)], block("done('x')"))
    run(client, runtime, max_messages=4, query="the task itself")
    assert all("the task itself" in messages[1]["content"] for messages in client.asked)
    assert max(map(len, client.asked)) <= 4


def test_a_reply_that_is_paid_for_is_used_when_the_budget_ends_with_it(runtime):
    class Dear(Replies):
        last_usage = {"input_tokens": 2000, "output_tokens": 3000}

        def chat(self, messages, max_tokens):
            return super().chat(messages)

    assert run(Dear(block("done('paid for')")), runtime, max_budget=5000)[1] == "paid for"


def test_tokens_are_counted_for_the_agent_that_used_them(runtime):
    class Shared(Minds):
        last_usage = {"input_tokens": 0, "output_tokens": 0}

        def chat(self, messages):
            reply = super().chat(messages)
            asked = next(m["content"] for m in messages if m["role"] == "user")
            tokens = next(n for task, n in BILLED.items() if task in asked)
            self.last_usage = {"input_tokens": tokens, "output_tokens": 1}
            time.sleep(0.01)  # others may come meanwhile
            return reply

    BILLED = {"child one": 100, "child two": 200, "prompt": 60, "main": 10}
    client = Shared(child=[block("done('c')")], prompt=["p"], main=[
        launch({"query": "child one"}, {"query": "child two"}, then="print(r)"),
        block("await llm_query('prompt ' * 9)\ndone('x')")])
    graph, _ = run(client, runtime, workers=3)
    assert [g.usage().input_tokens for g in graph.children.values()] == [100, 200]
    assert graph.usage(recursive=False).input_tokens == 10 + 10 + 60


def test_one_block_runs_whatever_stands_before_and_behind_it(runtime):
    reply = 'First:\n```json\n{"a": 1}\n```\nthen\n' + block("x = 1") + "\nand\n" + block("x = 2")
    client = Replies(reply, block("done(x)"))
    assert run(client, runtime)[1] == "1"
    assert "Only the first code block of a reply runs: 1 more was ignored." in client.asked[1][-1]["content"]


def test_messages_take_turns_and_none_is_empty(runtime):
    client = Minds(child=[block("done('c')")], main=[
        launch({"query": "child"}, then="pass"), "no code at all", "", block("done('x')")])
    run(client, runtime)
    for messages in client.asked:
        roles = [m["role"] for m in messages]
        assert roles == (["system"] + ["user", "assistant"] * len(roles))[:len(roles)]
        assert all(m["content"].strip() for m in messages)


def test_a_checkpoint_knows_of_a_change_in_any_text():
    graph = rlmflow.Graph("q")
    graph.append(rlmflow.ExecOutput(content="seen", output="seen"))
    checkpoint = graph.checkpoint()
    graph.replace(graph.nodes[1], rlmflow.ExecOutput(content="other", output="seen"))
    with pytest.raises(ValueError):
        graph.revert(checkpoint)


def test_a_saved_tree_keeps_the_order_of_children_and_every_field(runtime, tmp_path):
    names = ["zeta", "alpha", "mid", "beta"]
    client = Minds(child=[block("done('c')")], main=[launch(*[{"query": "child", "name": n} for n in names])])
    graph = run(client, runtime)[0].fork()
    graph.append(rlmflow.UserQuery(content="more", metadata={"by": "me"}))
    graph.save(tmp_path / "saved")
    loaded = rlmflow.Graph.load(tmp_path / "saved")
    assert list(loaded.children) == list(graph.children) == [f"root.{n}" for n in names]
    assert [[said(n) for n in g.nodes] for g in loaded.walk()] == [[said(n) for n in g.nodes] for g in graph.walk()]
    assert loaded.nodes[-1].metadata == {"by": "me"} and loaded.total_tokens() == graph.total_tokens()
    assert all(len(n.id) == 18 for g in graph.walk() for n in g.nodes)


def said(node):
    """All of a node but the number of its call and the parts of its usage, which the saved form does not have."""
    return {key: value for key, value in node.to_dict().items() if key not in ("call_id", "metadata")}


def test_errors_show_their_line_and_output_before_a_launch_is_cut_too(runtime):
    client = Minds(child=[block("done('c')")], main=[
        launch({"query": "child"}, then="y = 1\nraise KeyError('z')", more="print('w' * 9000)\n"),
        block("done('x')")])
    run(client, runtime, max_output_length=500)
    shown = next(m for m in client.asked if len(m) > 2)[-1]["content"]
    assert "line 4" in shown and "KeyError: 'z'" in shown and len(shown) < 2000


def test_agents_in_one_process_each_have_a_directory_of_their_own(tmp_path):
    steps = [block(f"import os\nos.makedirs(ENV['RLMFLOW_AGENT_ID'])\nos.chdir(ENV['RLMFLOW_AGENT_ID'])\n"
                   "await llm_query('pause')\nprint(os.getcwd())"),
             block("import os\ndone(os.path.basename(os.getcwd()))")]
    client = Minds(child=steps, pause=["p"], main=[launch(*[{"query": "child"}] * 4, then="done(' '.join(r))")])
    before = os.getcwd()
    answer = run(client, rlmflow.LocalRuntime(working_directory=tmp_path))[1]
    assert answer == " ".join(f"root.child{i}" for i in range(4)) and os.getcwd() == before


def test_a_text_is_an_answer_under_a_schema_that_asks_for_one(runtime):
    flow = rlmflow.Flow(Replies(block("done('hi')")), runtime=runtime)
    assert flow.run("q", output_schema={"type": "string"}) == '"hi"'


# Waits that are not needed.


def test_big_values_cross_in_few_reads(runtime):
    @rlmflow.tool("takes a text", proxy=True)
    def take(text: str):
        return len(text)

    def reads():
        return int(open("/proc/self/io").read().split("syscr: ")[1].split()[0])

    before = reads()
    assert run(Replies(block("done(take('x' * 8_000_000))")), runtime, tools=[take])[1] == "8000000"
    assert reads() - before < 3000  # a byte at a time would be eight million


def test_the_callers_loop_goes_on_while_a_cell_of_its_process_blocks():
    waits, let_go = threading.Event(), threading.Event()

    @rlmflow.tool("waits in C code")
    def wait():
        waits.set()
        return let_go.wait(30)

    async def main():
        flow = rlmflow.Flow(Replies(block("done(wait())")), runtime=rlmflow.LocalRuntime(), tools=[wait])
        task = asyncio.ensure_future(flow.arun("q"))
        while not waits.is_set():
            await asyncio.sleep(0.01)
        let_go.set()
        return await task

    assert asyncio.run(main()) == "True"


def test_sessions_of_children_open_at_the_same_time():
    opening = []

    class Together(rlmflow.SubprocessRuntime):
        async def open(self, graph):
            if graph.depth:
                opening.append(graph.agent_id)
                while len(opening) < 3:  # the others come meanwhile
                    await asyncio.sleep(0.005)
            return await super().open(graph)

    client = Minds(child=[block("done('c')")], main=[launch(*[{"query": "child"}] * 3)])
    assert run(client, Together(python=PYTHON))[1] == "['c', 'c', 'c']"


def test_long_trajectories_are_copied_saved_and_loaded(tmp_path):
    nodes = [{"type": "exec_output", "content": str(i)} for i in range(10_000)]
    graph = rlmflow.Graph.from_dict({"query": "q", "nodes": [{"type": "user_query", "content": "q"}, *nodes]})
    graph.fork().save(tmp_path / "saved")
    assert [n.content for n in rlmflow.Graph.load(tmp_path / "saved").nodes] == ["q", *map(str, range(10_000))]


def test_each_step_is_written_once_behind_those_before_it(runtime, tmp_path):
    journals = []

    class Watching(Replies):
        def chat(self, messages):
            journals.append((tmp_path / "run.rlm" / "journal").read_bytes())
            return super().chat(messages)

    run(Watching(*[block("print(1)")] * 9, block("done(1)")), runtime, journal=tmp_path / "run.rlm")
    assert all(later.startswith(earlier) for earlier, later in zip(journals, journals[1:]))
    assert len(journals[-1]) < 10 * len(journals[0]) + 40_000


def test_host_tools_that_are_gathered_run_at_the_same_time(runtime):
    meet = []

    @rlmflow.tool("waits for the other", proxy=True)
    async def wait(n: int):
        meet.append(n)
        while len(meet) < 2:
            await asyncio.sleep(0.005)
        return n

    code = block("import asyncio\ndone(str(await asyncio.gather(wait(1), wait(2))))")
    assert run(Replies(code), runtime, tools=[wait])[1] == "[1, 2]"


def test_the_beginning_of_each_prompt_is_that_of_the_last_one(runtime):
    client = Replies(block("print(1)"), block("print(2)"), block("done(3)"))
    run(client, runtime)
    first, second, third = client.asked
    assert second[:2] == first and third[:4] == second


def test_no_more_sessions_live_at_once_than_are_allowed_and_none_imports_the_package():
    living, most = set(), []

    class Counting(rlmflow.SubprocessRuntime):
        def open(self, graph):
            inner = super().open(graph)
            living.add(graph.agent_id)
            most.append(len(living - {"root"}))  # which waits for the others
            return Counted(inner, graph.agent_id)

    class Counted(rlmflow.Backend):
        def __init__(self, inner, name):
            self.inner, self.name = inner, name

        def start(self, code):
            return self.inner.start(code)

        def resume(self, results):
            return self.inner.resume(results)

        async def close(self):  # on the loop, as open(): in the order in which they are asked for
            living.discard(self.name)
            self.inner.close()

    heavy = block("import sys\ndone(str({'rlmflow', 'pydantic', 'jsonschema', 'tenacity'} & set(sys.modules)))")
    client = Minds(child=[heavy], main=[launch(*[{"query": "child"}] * 12, then="done(str(set(r)))")])
    assert run(client, Counting(python=PYTHON), max_live=4, workers=12)[1] == "{'set()'}"
    assert max(most) <= 4 and len(most) == 13


# Ways in.


def test_isolation_is_never_given_up_without_a_word():
    with pytest.warns(UserWarning, match="this version of rlmflow has no sandbox. Say runtime="):
        assert not isinstance(rlmflow.Flow(None).runtime, rlmflow.LocalRuntime)
    with pytest.raises(NotImplementedError):
        rlmflow.Flow(Replies(), runtime=rlmflow.SandboxRuntime()).run("q")
    assert rlmflow.DockerRuntime("image").network == "none"


def test_an_override_that_lets_replay_pass_lets_nothing_run(runtime, tmp_path):
    marker = tmp_path / "marker"

    class Reviewing(rlmflow.Flow):
        async def exec_turn(self, graph, code, *, replay=False):
            if not replay and "marker" in code:
                return rlmflow.ErrorOutput(content="no", output="no", error="rejected")
            return await super().exec_turn(graph, code, replay=replay)

    flow = Reviewing(Replies(block(f"open({str(marker)!r}, 'w')  # marker"), block("done('x')")), runtime=runtime)
    flow.run("q", journal=tmp_path / "run.rlm")
    assert flow.replay(tmp_path / "run.rlm", execute=True).same and not marker.exists()


def test_nothing_that_a_session_sends_is_run_on_the_host(runtime, tmp_path):
    taken = []

    @rlmflow.tool("takes anything", proxy=True)
    def take(value):
        taken.append(value)

    marker = tmp_path / "marker"
    evil = (f"class Evil:\n    def __reduce__(self):\n        return open, ({str(marker)!r}, 'w')\n"
            "import pickle, base64\n"
            "try:\n    take(Evil())\nexcept TypeError as e:\n    print(e)\n"
            "take(base64.b64decode(base64.b64encode(b'\\x80\\x04.')))\ndone(Evil())")
    run(Replies(block(evil)), runtime, tools=[take])
    assert taken == [b"\x80\x04."] and not marker.exists()


def test_arguments_are_checked_and_calls_counted_before_a_tool_runs(runtime):
    got = []

    @rlmflow.tool("takes a number", proxy=True, max_calls=2)
    def take(n: int):
        got.append(n)

    code = ("for n in ('1', 1, None, 2, 3):\n    try:\n        take(n)\n    except Exception as e:\n"
            "        print(type(e).__name__)")
    client = Replies(block(code), block("done('x')"))
    run(client, runtime, tools=[take])
    assert got == [1, 2] and client.asked[1][-1]["content"].count("Error") == 3


def test_a_run_is_its_owners_alone_and_one_process_writes_it(runtime, tmp_path):
    journal = tmp_path / "run.rlm"

    class Looking(Replies):
        def chat(self, messages):
            with pytest.raises(BlockingIOError):
                rlmflow.Flow(Replies(), runtime=runtime).resume(journal)
            return super().chat(messages)

    flow = rlmflow.Flow(Looking(block("done('x')")), runtime=runtime)
    assert flow.run("q", inputs={"secret": "s" * 100_000}, journal=journal) == "x"
    assert all(stat.S_IMODE(os.stat(os.path.join(where, name)).st_mode) & 0o077 == 0
               for where, folders, files in os.walk(tmp_path) for name in [*folders, *files])


def test_streams_of_the_program_are_as_they_were_and_nothing_is_printed(capsys, runtime):
    streams = sys.stdin, sys.stdout, sys.stderr
    for where in (rlmflow.LocalRuntime(), runtime):
        flow = rlmflow.Flow(Replies(block("print('loud')"), block("done('x')")), runtime=where)
        flow.run("q")
        flow.close_repls()
    assert (sys.stdin, sys.stdout, sys.stderr) == streams and capsys.readouterr() == ("", "")


def test_cancelling_ends_code_that_runs(runtime, tmp_path):
    written = tmp_path / "pid"

    async def main():
        code = block(f"import os\nopen({str(written)!r}, 'w').write(f'{{os.getpid()}}\\n')\nwhile True: pass")
        task = asyncio.ensure_future(rlmflow.Flow(Replies(code), runtime=runtime).arun("q"))
        while not (written.exists() and written.read_text().endswith("\n")):
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    for _ in range(2000):
        if not os.path.exists(f"/proc/{written.read_text().strip()}"):
            return
        threading.Event().wait(0.01)
    pytest.fail("its process still runs")
