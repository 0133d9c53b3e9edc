"""Tools of the host: what they are given, what becomes of what they return and raise, and their limits."""
import asyncio
import dataclasses
import functools
import os
import threading
from textwrap import dedent
from typing import Dict, List, Literal, Optional, Union

import pytest
import rlmflow
from test_flow import Replies, block


@pytest.fixture(params=["subprocess", "local"])
def anywhere(request, runtime):
    """Each runtime."""
    return runtime if request.param == "subprocess" else rlmflow.LocalRuntime()


def answer(code, *tools, runtime, **options):
    """What the code of one cell gives to done()."""
    return rlmflow.Flow(Replies(block(dedent(code))), runtime=runtime, tools=list(tools), **options).run("q")


def errors(*calls):
    """Code that answers with what each of the calls returns or raises."""
    lines = ["out = []"]
    for call in calls:
        lines += ["try:", f"    out.append(repr({call}))", "except Exception as e:",
                  "    out.append(f'{type(e).__name__}: {e}')"]
    return "\n".join(lines + ["done('\\n'.join(out))"])


# ---- values


def test_large_values_cross_both_ways_however_deep_they_stand(anywhere):
    seen = []

    @rlmflow.tool("echoes", proxy=True)
    def echo(value):
        seen.append(value)
        return {"back": [value]}

    code = """
    text, data = "\\xe9" * 70_000, b"\\0\\xff" * 40_000
    values = [text, [text, {"k": (text, "small")}], data, {"d": [data]}, {1: text, "s": {data}}]
    done(str([echo(v) == {"back": [v]} for v in values]))
    """
    assert answer(code, echo, runtime=anywhere) == str([True] * 5)
    text, data = "\xe9" * 70_000, b"\0\xff" * 40_000
    assert seen == [text, [text, {"k": (text, "small")}], data, {"d": [data]}, {1: text, "s": {data}}]


@dataclasses.dataclass
class Point:
    x: int
    around: list


class Model:
    """As those of pydantic."""

    def model_dump(self):
        return {"point": Point(1, [Point(2, [])])}


def test_dataclasses_and_models_are_returned_as_dicts(runtime):
    @rlmflow.tool("gives", proxy=True)
    def give():
        return [Point(1, ["a"]), Model()]

    assert answer("done(repr(give()))", give, runtime=runtime) == (
        "[{'x': 1, 'around': ['a']}, {'point': {'x': 1, 'around': [{'x': 2, 'around': []}]}}]")


def test_a_result_that_cannot_cross_names_the_tool_and_what_it_is(anywhere):
    @rlmflow.tool("gives", proxy=True)
    def give(what):
        value = [1]
        value.append(value)
        return {"object": [threading.Lock()], "class": Point, "deep": value, "iterator": iter([1])}[what]

    @rlmflow.tool("gives", proxy=True)
    async def give_later():
        return {"k": {1, Ellipsis}}

    calls = ["give('object')", "give('class')", "give('deep')", "give('iterator')", "await give_later()",
             "give_again()"]
    only = (": only None, bool, int, float, str, bytes, list, tuple, set, frozenset, dict, dataclasses and pydantic "
            "models can cross into a session")
    told = answer(errors(*calls), give, give_later, rlmflow.tool("x", name="give_again", proxy=True)(lambda: 5),
                  runtime=anywhere).split("\n")
    assert told[:2] == [f"HostCallError: what the tool give returned[0] is a lock{only}",
                        f"HostCallError: what the tool give returned is the class Point{only}"]
    assert told[2].startswith("HostCallError: what the tool give returned[1][1]")
    assert told[2].endswith("is nested more than 100 deep")
    assert told[3] == f"HostCallError: what the tool give returned is a list_iterator{only}"
    assert told[4].startswith("HostCallError: what the tool give_later returned['k'][") and "an ellipsis" in told[4]
    assert told[5] == "5"


# ---- arguments


def test_calls_are_bound_to_the_signature_before_the_tool_runs(anywhere):
    seen = []

    @rlmflow.tool("takes", proxy=True)
    def take(first, /, second, third=3, *, by="name", **more: int):
        seen.append((first, second, third, by, more))
        return len(seen)

    good = ["take(1, 2)", "take(1, second=2, third=None)", "take(1, 2, by='x', extra=5)"]
    bad = ["take()", "take(1)", "take(1, 2, 3, 4, 5)", "take(1, 2, second=3)", "take(1, 2, extra='text')"]
    told = answer(errors(*good, *bad), take, runtime=anywhere).split("\n")
    assert told[:3] == ["1", "2", "3"]
    assert [line.split("()")[0] for line in told[3:]] == ["TypeError: take"] * 5
    assert "missing" in told[3] and "'second'" in told[4] and "too many" in told[5] and "multiple values" in told[6]
    assert told[7] == "TypeError: take(): at /extra: expected an integer, found \"text\""
    assert seen == [(1, 2, 3, "name", {}), (1, 2, None, "name", {}), (1, 2, 3, "x", {"extra": 5})]


@pytest.mark.parametrize("annotation, fits, not_fits", [
    (int, ["3", "-10**30"], ["'3'", "3.5", "True", "None"]),
    (float, ["2", "2.5", "float('nan')", "float('-inf')"], ["'2'"]), (bool, ["True"], ["1"]),
    (str, ["''"], ["b''", "1"]), (bytes, ["b''", "b'x' * 70_000"], ["''", "[1]"]),
    (list, ["[1, 'a']", "(1,)", "{2}"], ["'ab'", "{'a': 1}"]), (dict, ["{}", "{1: 2}", "{'$bytes': 1}"], ["[]", "b''"]),
    (tuple, ["(1, 2)", "[1]"], ["1"]), (set, ["{1}"], ["{}"]), (type(None), ["None"], ["0"]),
    (List[int], ["[1, 2]", "()"], ["[1, '2']"]), (Dict[str, str], ["{'a': 'b'}"], ["{'a': 1}", "b''"]),
    (Optional[int], ["None", "4"], ["'4'"]), (Union[int, str], ["1", "'a'"], ["1.5"]),
    (Literal["a", 2, None], ["'a'", "2", "None"], ["'b'", "3"]), (Point, ["{'x': 1}", "5"], [])])
def test_annotations_of_plain_types_are_checked(annotation, fits, not_fits, runtime):
    seen = []

    def take(value):
        seen.append(value)

    take.__annotations__["value"] = annotation
    marked = rlmflow.tool("takes", proxy=True)(take)
    told = answer(errors(*[f"take({v})" for v in fits + not_fits]), marked, runtime=runtime)
    values = [eval(v) for v in fits]
    assert repr(seen) == repr(values)
    kinds = [line.split(":")[0] for line in told.split("\n")]
    assert kinds == ["None"] * len(fits) + ["TypeError"] * len(not_fits), told


def with_a_name_of_type_checkers(n: "int", frame: "NotHere" = None, *, by: "Optional[int]" = 0):  # noqa: F821
    return f"{n} {frame} {by}"


class ByCall:
    def __call__(self, n: "int", frame: "NotHere" = None, *, by: "Optional[int]" = 0):  # noqa: F821
        return f"{n} {frame} {by}"


@pytest.mark.parametrize("function", [
    with_a_name_of_type_checkers, ByCall(), ByCall().__call__, functools.partial(with_a_name_of_type_checkers, by=0)],
    ids=["function", "object", "method", "partial"])
def test_an_annotation_that_cannot_be_resolved_leaves_the_others_checked(function, runtime):
    def take(*args, **kwargs):
        return function(*args, **kwargs)

    take.__wrapped__ = function
    flow = rlmflow.Flow(Replies(block(errors("take('3')", "take(3, by='x')", "take(3, {'any': 'thing'}, by=None)"))),
                        runtime=runtime)
    with pytest.warns(UserWarning, match="the tool take: annotations of frame cannot be resolved") as warned:
        flow.add_tool(rlmflow.tool("takes", proxy=True)(take))
    assert warned[0].filename == __file__
    told = flow.run("q").split("\n")
    assert [line.split(", ")[0] for line in told[:2]] == ["TypeError: take(): at /n: expected an integer",
                                                          "TypeError: take(): at /by: expected an integer or null"]
    assert told[2] == repr("3 {'any': 'thing'} None")
    assert rlmflow.format_tool_line(take).startswith("- `take(n: int, frame: NotHere = None, *, by: Optional[int] = 0)`")


def test_what_cannot_be_a_tool_is_refused_when_it_is_made(anywhere):
    def add(function, name=None):
        rlmflow.Flow(Replies(), runtime=anywhere).add_tool(function, name=name)

    with pytest.raises(TypeError, match=r"f cannot be a tool of the host: it takes \*rest"):
        add(rlmflow.tool("x", proxy=True)(lambda *rest: 1), "f")
    with pytest.raises(TypeError, match="a tool is a function, not 5"):
        add(5)
    for name in ("done", "launch_subagents", "INPUTS", "llm_query", "read_file", "class", "no name", "<lambda>"):
        with pytest.raises(ValueError, match="is no name for a tool"):
            add(lambda: 1, name)
        with pytest.raises(ValueError, match="is no name for a tool"):
            anywhere.register_tool(rlmflow.tool("x", proxy=True)(lambda: 1), name=name)
    assert anywhere.tools == {}


def test_added_and_removed_tools_are_those_of_later_runs(anywhere):
    def one():
        return 1

    look = block("done(repr([n for n in ('one', 'two') if n in globals()]))")
    client = Replies(look, look, look)
    flow = rlmflow.Flow(client, runtime=anywhere)
    flow.add_tool(one)
    flow.add_tool(one, name="two")
    assert sorted(flow.tools) == ["one", "two"] and flow.run("q") == "['one', 'two']"
    assert flow.remove_tool("one") is one and flow.remove_tool("one") is None
    assert flow.run("q") == "['two']"
    prompts = [asked[0]["content"] for asked in client.asked]
    assert ["`one()`" in p for p in prompts] == [True, False] and all("`two()`" in p for p in prompts)


# ---- where they run


def test_async_tools_overlap_and_are_awaited(anywhere):
    met = []

    @rlmflow.tool("meets others", proxy=True)
    async def meet(n):
        met.append(n)
        while len(met) < 3:
            await asyncio.sleep(0.001)
        return n * 2

    code = "import asyncio\ndone(repr(await asyncio.gather(*[meet(n) for n in range(3)])))"
    assert answer(code, meet, runtime=anywhere) == "[0, 2, 4]"


class Callable:
    def __call__(self, a):
        return "object", a, threading.current_thread() is threading.main_thread()

    def method(self, a):
        return "method", a, threading.current_thread() is threading.main_thread()

    async def later(self, a):
        return "later", a, threading.current_thread() is threading.main_thread()


def test_anything_that_can_be_called_is_a_tool_of_the_host(runtime):
    shared = Callable()

    def proxied(function, name):
        function = functools.partial(function)
        runtime.register_tool(rlmflow.tool("x", proxy=True)(function), name=name)

    proxied(shared, "of_object")
    proxied(shared.method, "of_method")
    proxied(shared.later, "of_later")
    proxied(lambda a: shared.later(a), "of_lambda")
    code = "done(repr([of_object(1), of_method(a=2), await of_later(3), of_lambda(4)]))"
    assert answer(code, runtime=runtime) == repr(
        [("object", 1, False), ("method", 2, False), ("later", 3, True), ("later", 4, True)])


# ---- what they raise


def test_the_code_gets_type_and_message_of_an_exception_without_paths_of_the_host(anywhere, tmp_path):
    secret = tmp_path / "deep" / "secret.txt"
    secret.parent.mkdir()

    @rlmflow.tool("fails", proxy=True)
    def fail(how, path=""):
        if how == "open":
            open(secret)
        if how == "given":
            open(path)
        if how == "said":
            raise ValueError(f"look at {secret.parent}, not file://{secret}; see https://host/some/path or /no/such/it")
        if how == "exit":
            raise SystemExit("leaves")
        raise {"key": KeyError("k"), "empty": RuntimeError(), "unspeakable": Unspeakable()}[how]

    class Unspeakable(Exception):
        def __str__(self):
            raise OSError(f"not even {secret}")

    calls = ["fail('open')", f"fail('given', {str(secret)!r})", "fail('said')", "fail('exit')", "fail('key')",
             "fail('empty')", "fail('unspeakable')"]
    told = answer(errors(*calls), fail, runtime=anywhere).split("\n")
    assert told == [
        "HostCallError: FileNotFoundError: [Errno 2] No such file or directory: 'secret.txt'",
        f"HostCallError: FileNotFoundError: [Errno 2] No such file or directory: '{secret}'",
        "HostCallError: ValueError: look at deep, not file://secret.txt; see https://host/some/path or /no/such/it",
        "HostCallError: SystemExit: leaves", "HostCallError: KeyError: 'k'", "HostCallError: RuntimeError",
        "HostCallError: Unspeakable: <its str() failed>"]


def test_a_path_in_the_working_directory_is_told_as_the_session_knows_it(tmp_path):
    @rlmflow.tool("reads", proxy=True)
    async def read(working_directory):
        return open(os.path.join(working_directory, "sub", "none.txt"))

    runtime = rlmflow.SubprocessRuntime(python="/usr/bin/python3", working_directory=tmp_path)
    code = "import sys\ntry:\n    await read()\nexcept HostCallError as e:\n    done(e.reason + ' ' + e.message)"
    assert answer(code, read, runtime=runtime) == (
        "tool FileNotFoundError: [Errno 2] No such file or directory: 'sub/none.txt'")


# ---- limits


def test_calls_are_counted_over_all_agents_of_a_run(anywhere):
    made = []

    @rlmflow.tool("buys", proxy=True, max_calls=2)
    def buy():
        made.append(1)
        return "bought"

    child = "done((await launch_subagents([{'query': 'child'}]))[0] + ' ' + str([once() for _ in range(1)]))"
    once = "def once():\n    try:\n        return buy()\n    except HostCallError as e:\n        return e.message\n"
    client = Replies(block(once + "once()\n" + child), block(once + "done(once())"))
    assert rlmflow.Flow(client, runtime=anywhere, tools=[buy]).run("q") == (
        "bought ['the tool buy may be called 2 times in a run, and has been']")
    assert len(made) == 2


def test_a_call_has_a_time_limit_and_the_run_goes_on(anywhere):
    ended, release = [], threading.Event()

    @rlmflow.tool("hangs", proxy=True, timeout=0.1)
    def hang():
        release.wait(60)

    @rlmflow.tool("hangs", proxy=True, timeout=0.1)
    async def hang_later():
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(1)

    try:
        told = answer(errors("hang()", "await hang_later()"), hang, hang_later, runtime=anywhere).split("\n")
    finally:
        release.set()
    assert told == ["HostCallError: the tool hang did not answer within 0.1 s",
                    "HostCallError: the tool hang_later did not answer within 0.1 s"]
    assert ended == [1]


def test_tools_that_never_return_leave_threads_for_others(runtime):
    release, begun = threading.Event(), []

    @rlmflow.tool("hangs", proxy=True, timeout=0.1)
    def hang(n):
        begun.append(n)
        if not release.wait(60):
            begun.append("was waited for")

    @rlmflow.tool("is quick", proxy=True)
    def quick():
        return "quick"

    first = """
    import threading
    def call(n):
        try:
            hang(n)
        except HostCallError:
            pass
    threads = [threading.Thread(target=call, args=[n]) for n in range(3)]
    for t in threads: t.start()
    for t in threads: t.join()
    """
    client = Replies(block(dedent(first)), block("done(quick())"))
    try:
        assert rlmflow.Flow(client, runtime=runtime, tools=[hang, quick], workers=1).run("q") == "quick"
    finally:
        release.set()
    assert begun and set(begun) <= {0, 1, 2}


def test_a_result_has_a_largest_size(anywhere):
    @rlmflow.tool("gives", proxy=True, max_result_bytes=100)
    def give(n):
        return "x" * n

    told = answer(errors("len(give(98))", "give(99)"), give, runtime=anywhere).split("\n")
    assert told == ["98", "HostCallError: the tool give returned 101 bytes; the limit is 100"]


# ---- directories and files


@pytest.fixture(params=[rlmflow.SubprocessRuntime, rlmflow.LocalRuntime])
def in_directory(request, tmp_path):
    (tmp_path / "here.txt").write_text("one\ntwo\n")
    return request.param(working_directory=tmp_path)


@rlmflow.tool("looks, in the session")
def look(name, *, working_directory):
    with open(name) as file:
        return os.path.samefile(working_directory, os.getcwd()), file.read()


def test_tools_work_relative_to_the_working_directory_on_both_sides(in_directory, tmp_path):
    @rlmflow.tool("looks, on the host", proxy=True)
    def look_here(name, working_directory, more=1):
        return working_directory == str(tmp_path), more, open(os.path.join(working_directory, name)).read()

    in_directory.register_tools([look, look_here])
    client = Replies(block("done(repr([look('here.txt'), look_here('here.txt', 2), open('here.txt').read()]))"))
    flow = rlmflow.Flow(client, runtime=in_directory)
    assert flow.run("q") == repr([(True, "one\ntwo\n"), (True, 2, "one\ntwo\n"), "one\ntwo\n"])
    prompt = client.asked[0][0]["content"]
    assert "`look(name)`" in prompt and "`look_here(name, more=1)`" in prompt
    with pytest.raises(rlmflow.RunEnded):
        rlmflow.Flow(Replies(block("look_here('here.txt', working_directory='/')")), runtime=in_directory,
                     max_iters=1).run("q")


def test_file_tools_may_be_registered_and_work_in_the_working_directory(in_directory, tmp_path):
    names = ["read_file", "write_file", "append_file", "edit_file", "ls", "read_lines", "line_count", "grep"]
    assert [f.__name__ for f in rlmflow.FILE_TOOLS] == names
    in_directory.register_tools(rlmflow.FILE_TOOLS)
    assert list(in_directory.tools) == names
    code = """
    new = 'sub/new.txt'
    done(repr([write_file(new, 'a\\nb\\nb\\n'), append_file(new, 'c\\n'), ls(), ls('sub'),
               edit_file(new, ('b\\nb', 'B'), ('c', 'C')), read_file(new), line_count(new),
               read_lines(new, 1, 3), grep('t[wh]', '.'), grep('^[ABC]', max_results=1)]))
    """
    assert answer(code, runtime=in_directory) == repr([
        "Wrote 6 bytes to sub/new.txt", "Appended 2 bytes to sub/new.txt", ["here.txt", "sub"], ["sub/new.txt"],
        "Applied 2 edits to sub/new.txt", "a\nB\nC\n", 3, "B\nC", "here.txt:2: two", "sub/new.txt:2: B"])
    assert (tmp_path / "sub" / "new.txt").read_text() == "a\nB\nC\n"


def test_file_tools_are_functions_of_the_host_too(tmp_path):
    read_file, write_file, _, edit_file, ls, *_ = rlmflow.FILE_TOOLS
    path = str(tmp_path / "f")
    assert write_file(path, "x x x") == f"Wrote 5 bytes to {path}" and ls(str(tmp_path)) == [path]
    for edits, why in (([("y", "z")], "anchor not found"), ([("x", "z")], "appears 3x"),
                       ([("x x x", "a"), ("no", "b")], "not found")):
        with pytest.raises(ValueError, match=why):
            edit_file(path, *edits)
        assert read_file(path) == "x x x"
    edit_file(path, ("x", "z"), replace_all=True)
    assert read_file(path) == "z z z"


# ---- what the model is shown


def test_without_a_description_the_first_paragraph_of_the_docstring_is_shown(anywhere):
    @rlmflow.tool(proxy=True)
    def fetch(url: str) -> str:
        """Fetches a page,
        as text.

        No word of this is for the model."""
        return url

    @rlmflow.tool(proxy=True)
    def silent() -> None:
        pass

    client = Replies(block("done(fetch('u'))"))
    assert rlmflow.Flow(client, runtime=anywhere, tools=[fetch, silent]).run("q") == "u"
    shown = client.asked[0][0]["content"]
    assert "fetch(url: str) -> str`: Fetches a page, as text.\n" in shown and "No word" not in shown
    assert rlmflow.get_tool_metadata(fetch).description == "Fetches a page, as text."
    assert rlmflow.get_tool_metadata(silent).description == "" and "silent() -> None`" in shown


# ---- after a stop


def test_only_an_idempotent_call_is_made_again_after_a_stop(runtime, tmp_path):
    calls = []

    def make(name, idempotent, first):
        @rlmflow.tool("works", name=name, proxy=True, idempotent=idempotent)
        async def work():
            calls.append(name)
            if first:
                asyncio.get_running_loop().call_soon(task.cancel)
                await asyncio.sleep(60)
            return name
        return work

    for name, idempotent in (("twice", True), ("once", False)):
        path = tmp_path / name
        code = block(f"try:\n    done(await {name}())\nexcept ToolInterrupted as e:\n    done('interrupted')")

        async def main():
            nonlocal task
            flow = rlmflow.Flow(Replies(code), runtime=runtime, tools=[make(name, idempotent, True)])
            task = asyncio.ensure_future(flow.arun("q", journal=path))
            with pytest.raises(asyncio.CancelledError):
                await task

        task = None
        asyncio.run(main())
        flow = rlmflow.Flow(Replies(), runtime=runtime, tools=[make(name, idempotent, False)])
        assert flow.resume(path, restore="replay") == (name if idempotent else "interrupted")
    assert calls == ["twice", "twice", "once"]
