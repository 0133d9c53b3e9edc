"""Tools that go into the session as source: what goes along, what is refused, and where they are there again."""
import asyncio
import functools
import math
import os
import re
import threading
from collections import Counter as Tally

import pytest
import rlmflow
from test_flow import Replies, block
from test_tools import answer, anywhere  # noqa: F401

RATES = {"a": [1, 2.5, (None, b"\0")], "inf": float("-inf"), "set": {3, 4}}
WORD = re.compile(r"\w+", re.I)
LOCK = threading.Lock()


def words(text, least=RATES["a"][0]):
    return [w for w in WORD.findall(text) if len(w) > least]


def total(n):
    return n + total(n - 1) if n else 0


@rlmflow.tool("Counts words.")
def count_words(text, *, root=math.sqrt, near=0.5, more=[1 << 2000]):
    found: "NoSuchType" = Tally(words(text))  # noqa: F821
    return dict(found), RATES, root(total(3) + 10), near, more[0] == 1 << 2000, os.path.basename("/x/y")


@rlmflow.tool("Waits.", name="wait")
async def wait_a_little(n):
    await asyncio.sleep(0.001)
    return [n]


def refused(function, name="f"):
    """The problems for which a function cannot go into a session."""
    with pytest.raises(ValueError) as error:
        rlmflow.SubprocessRuntime().register_tool(function, name=name)
    first, *problems, last = str(error.value).split("\n")
    assert first == f"the tool {name} cannot go into a session:"
    assert last == "Mark it @tool(proxy=True), and it runs on the host."
    return [p[4:] for p in problems]


# ---- what goes along


def test_a_tool_takes_along_what_it_uses(anywhere):  # noqa: F811
    code = """
    import asyncio
    out = [count_words("a bb BB ccc"), await wait(2), await asyncio.gather(wait(3), wait(4))]
    done(repr(out))
    """
    made = answer(code, count_words, wait_a_little, runtime=anywhere)
    assert made == repr([count_words("a bb BB ccc"), [2], [[3], [4]]])


def made_by(prefix, times=2):
    def repeat(text):
        return total(times), prefix + text * times
    return repeat


def twice(function):
    @functools.wraps(function)
    def call(*args):
        return [function(*args), function(*args)]
    return call


@twice
def shout(text):
    return text.upper()


class Holder:
    @staticmethod
    def half(n):
        return n / 2

    def method(self):
        return self


def test_lambdas_closures_and_wrapped_functions_go_as_well(runtime):
    runtime.register_tools([shout, made_by("<"), Holder.half])
    runtime.register_tool(lambda n, *rest, by=10: n * by + len(rest), name="scale")
    assert answer("done(repr([shout('a'), repeat('x'), half(3), scale(2, 0, 0, by=3)]))", runtime=runtime) == repr(
        [["A", "A"], (3, "<xx"), 1.5, 8])


def test_each_agent_has_the_tool(runtime):
    parent = block("done((await launch_subagents([{'query': 'child'}]))[0])")
    flow = rlmflow.Flow(Replies(parent, block("done(str(total(4)))")), runtime=runtime, tools=[total])
    assert flow.run("q") == "10"


def test_values_are_those_of_the_registration(runtime):
    flow = rlmflow.Flow(Replies(block("done(repr(count_words('')[1]['a']))")), runtime=runtime, tools=[count_words])
    RATES["a"].append("later")
    try:
        assert flow.run("q") == "[1, 2.5, (None, b'\\x00')]"
    finally:
        RATES["a"].pop()


def test_the_model_is_shown_the_signature_and_what_the_tool_does(runtime):
    client = Replies(block("done(1)"))
    rlmflow.Flow(client, runtime=runtime, tools=[count_words, wait_a_little]).run("q")
    prompt = client.asked[0][0]["content"]
    counting = "- `count_words(text, *, root=..., near=0.5, more=...)`: Counts words."
    assert f"\n{counting}\n- `await wait(n)`: Waits.\n" in prompt
    lines = [rlmflow.format_tool_line(f) for f in (count_words, wait_a_little, total)]
    assert "\n".join(lines[:2]) in prompt and lines[2] == ""


# ---- what does not


def test_all_that_cannot_go_along_is_listed_at_once():
    made = object()

    def helper():
        return LOCK, made, pytest.undefined, rlmflow_undefined  # noqa: F821

    def f(a=made, *, b=LOCK):
        global RATES
        RATES = helper()
        return Holder, Holder().method, test_all_that_cannot_go_along_is_listed_at_once, __file__, hosted

    problems = refused(f)
    where = test_all_that_cannot_go_along_is_listed_at_once.__name__ + ".<locals>."
    kind = f"an object of class {type(LOCK).__name__}"
    assert set(problems) >= {
        f"{where}f has the default `a`, which is an object of class object",
        f"{where}f has the default `b`, which is {kind}",
        f"{where}f sets the global `RATES`, which would be another one there",
        f"{where}f uses `Holder`, the class Holder",
        f"{where}f uses `__file__`, which names a file of this machine",
        f"{where}f uses `hosted`, a tool that runs on the host",
        f"{where}helper uses `LOCK`, {kind}",
        f"{where}helper uses `made`, an object of class object",
        f"{where}helper uses `rlmflow_undefined`, which is defined nowhere"}


def test_what_sets_a_variable_around_it_cannot_go_along():
    count = own = 0

    def f():
        nonlocal count
        own = 0

        def inner():
            nonlocal own
            own += count

        count += 1
        return inner

    where = test_what_sets_a_variable_around_it_cannot_go_along.__name__ + ".<locals>."
    assert refused(f) == [f"{where}f sets the variable around it `count`, which would be another one there"]
    assert (count, own) == (0, 0)


@rlmflow.tool("hosted", proxy=True)
def hosted():
    return 1


@pytest.mark.parametrize("function, problem", [
    (Holder().method, "it is a method of an object of class Holder, which stays on the host"),
    (print, "it is a function without source in Python"), (Holder, "it is the class Holder"),
    (functools.partial(words, least=2), "it is an object of class partial")])
def test_what_is_no_function_of_python_is_refused(function, problem):
    assert refused(function) == [problem]


def test_functions_whose_source_is_not_there_are_refused():
    space = {}
    exec("def made(): return 1", space)
    assert refused(space["made"]) == [
        "made: its source cannot be found, or has changed since (it was defined in <string>)"]
    two = [lambda x: x + 1, lambda x: x + 2]
    assert refused(two[0])[0].endswith("several lambdas like it stand in one line: give it one of its own, or a `def`")

    class Child(Holder):
        def method(self):
            return super().method()

    assert refused(Child.method)[0].endswith("it uses super() or __class__ of its class")


def test_modules_of_the_program_are_refused_and_functions_of_theirs_are_not(runtime):
    import test_tools as module

    def f():
        return module.dedent("  a")

    assert refused(f)[0].endswith("uses `module`, the module test_tools, which is not installed, so that sessions "
                                  "cannot import it; functions that are imported from it by name go along")
    space = dict(words=words)

    def g():
        return words("a bb")

    runtime.register_tool(g)
    assert answer("done(repr(g()))", runtime=runtime) == repr(space["words"]("a bb"))


def test_one_name_with_two_meanings_is_refused():
    LOCK = 3

    def f():
        return LOCK, helper()

    def helper():
        return words_of_lock()

    def words_of_lock():
        return WORD

    def other(WORD=1):
        def inner():
            return WORD, words_of_lock()
        return inner

    runtime = rlmflow.SubprocessRuntime()
    runtime.register_tool(f)
    assert refused(other())[0].endswith(
        "words_of_lock uses `WORD`, which means something else in another function that goes along")


def test_a_source_that_is_too_large_is_refused():
    large = "x" * (256 << 10)

    def f():
        return large

    assert refused(f) == ["its source, with what goes along, has more than 256 KiB"]


def test_a_flow_refuses_before_it_runs_anything(runtime):
    client = Replies()
    with pytest.raises(ValueError, match="the tool method cannot go into a session"):
        rlmflow.Flow(client, runtime=runtime, tools=[Holder().method])
    assert client.asked == []
    with pytest.raises(ValueError, match='"<lambda>" is no name for a tool'):
        runtime.register_tool(lambda: 1)
    with pytest.raises(ValueError, match="limit tools with proxy=True"):
        rlmflow.tool("limited", max_calls=2)


def test_local_sessions_are_handed_anything_that_can_be_called():
    runtime = rlmflow.LocalRuntime()
    holder = Holder()
    runtime.register_tool(Holder)
    runtime.register_tool(holder.method, name="own")
    runtime.register_tool(LOCK.locked, name="locked")
    code = "done(repr([type(Holder().method()) is Holder, type(own()) is Holder, locked(), Holder.half(1)]))"
    assert answer(code, runtime=runtime) == "[True, True, False, 0.5]"


# ---- tracebacks


def test_tracebacks_name_the_tool_and_no_path_of_the_host(anywhere):  # noqa: F811
    client = Replies(block("count_words(5)"), block("done(1)"))
    rlmflow.Flow(client, runtime=anywhere, tools=[count_words]).run("q")
    told = client.asked[1][-1]["content"]
    assert "TypeError: expected string or bytes-like object" in told and 'File "<cell 1>", line 1, in <module>' in told
    own, line = "<tool count_words>", "found: 'NoSuchType' = Tally(words(text))"
    if isinstance(anywhere, rlmflow.LocalRuntime):
        own, line = "test_source_tools.py", 'found: "NoSuchType" = Tally(words(text))  # noqa: F821'
    assert re.findall(r'File "([^"]*)", line \d+, in (\w+)\n    (.*)', told) == [
        (own, "count_words", line), (own, "words", "return [w for w in WORD.findall(text) if len(w) > least]")]
    assert os.path.dirname(__file__) not in told


# ---- again


CELLS = [block("x = total(3)\nprint(x)"), block("done(str(x + total(2)))")]


class StopsAtSecond(Replies):
    """Its run is stopped when it is asked a second time."""

    async def chat(self, messages):
        if len(self.asked) == 1:
            asyncio.get_running_loop().call_soon(self.task.cancel)
            await asyncio.sleep(60)
        return super().chat(messages)


def test_a_resumed_run_has_the_tool_in_its_new_session(runtime, tmp_path):
    client = StopsAtSecond(*CELLS)

    async def main():
        flow = rlmflow.Flow(client, runtime=runtime, tools=[total])
        client.task = asyncio.ensure_future(flow.arun("q", journal=tmp_path / "r.rlm"))
        with pytest.raises(asyncio.CancelledError):
            await client.task

    asyncio.run(main())
    again = rlmflow.Flow(Replies(CELLS[1]), runtime=runtime, tools=[total])
    assert again.resume(tmp_path / "r.rlm", restore="replay") == "9"


def test_a_replay_runs_the_tool_again(anywhere, tmp_path):  # noqa: F811
    flow = rlmflow.Flow(Replies(*CELLS), runtime=anywhere, tools=[total])
    assert flow.run("q", journal=tmp_path / "r.rlm") == "9"
    report = flow.replay(tmp_path / "r.rlm", execute=True)
    assert report.same and report.reason == "answered" and report.cells_run == 2, report


def test_a_new_worker_has_the_tool(runtime):
    client = Replies(block("total(1)\nimport os\nos._exit(1)"), block("done(str(total(5)))"))
    assert rlmflow.Flow(client, runtime=runtime, tools=[total]).run("q") == "15"
