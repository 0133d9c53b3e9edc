"""Sessions as threads of this process."""
import asyncio
import collections
import contextlib
import gc
import io
import os
import subprocess
import sys
import threading
import time
import types

import pytest
import rlmflow


def block(code):
    return f"```repl\n{code}\n```"


class Scripted:
    """Answers each agent, told apart by a word of its task, with its own replies in turn, and keeps what it read."""

    def __init__(self, **replies):
        self.replies = {word: [block(r) for r in many] for word, many in replies.items()}
        self.read = {word: [] for word in replies}
        self.lock = threading.Lock()

    def chat(self, messages):
        task = messages[1]["content"].split("\n")[0]
        word = next(w for w in self.replies if w in task)
        with self.lock:
            self.read[word].append(messages[-1]["content"])
            return self.replies[word].pop(0)


def run(*cells, runtime=None, inputs=None, journal=None, **options):
    """Runs an agent through these cells; the answer and what its model read after each."""
    client = Scripted(task=cells)
    flow = rlmflow.Flow(client, runtime=runtime or rlmflow.LocalRuntime(), **options)
    return flow.run("task", inputs=inputs, journal=journal), client.read["task"][1:]


def eventually(condition, seconds=20):
    """Whether it comes true; what ends in other threads ends a little later."""
    until = time.monotonic() + seconds
    while not condition() and time.monotonic() < until:
        time.sleep(0.01)
    return condition()


before = collections.Counter()


@pytest.fixture(autouse=True)
def threads_before():
    """Other tests leave threads whose clients never return, and sessions that wait to be collected."""
    gc.collect()
    before.clear()
    before.update(t.name for t in threading.enumerate())


def threads():
    """Names of the package's threads, but for those that there were before the test: one that waits for sessions while
    there are flows may have been relieved by another."""
    gc.collect()  # runs are let go of when they are collected
    now = collections.Counter(t.name for t in threading.enumerate())
    return [name for name in now - before if name.startswith("rlmflow") and name != "rlmflow monitor"]


# ---- cells


def test_cells_share_a_namespace_in_this_process():
    answer, (first, second) = run("import os\nx = os.getpid()\nprint('printed')", "x", "done(f'{x} {INPUTS[\"n\"]}')",
                                  inputs={"n": 7})
    assert answer == f"{os.getpid()} 7"
    assert first.startswith("printed\n") and second.startswith(f"{os.getpid()}\n")


def test_errors_show_the_lines_of_the_cell_alone():
    answer, (first, second) = run("def f():\n    return 1/0", "f()", "done('x')")
    assert 'File "<cell 2>", line 1, in <module>\n    f()\n' in second and 'File "<cell 1>", line 2, in f' in second
    assert "#" not in second and "_worker" not in second


def test_host_calls_are_awaited_in_loops_of_the_agents_own_too():
    client = Scripted(task=["import asyncio\nasync def ask(w):\n    return await llm_query('word ' + w)\n"
                            "a = await asyncio.gather(ask('a'), ask('b'))\n"
                            "b = asyncio.run(ask('c'))\ndone('-'.join([*a, b]))"])
    client.chat = lambda messages, chat=client.chat: (
        messages[-1]["content"][-1] if "word" in messages[-1]["content"] else chat(messages))
    assert rlmflow.Flow(client, runtime=rlmflow.LocalRuntime()).run("task") == "a-b-c"
    asyncio.run(asyncio.sleep(0))  # and ours are as ever


def test_inputs_and_the_api_keep_their_names_in_each_session():
    answer, (first,) = run("text = 'mine'", "done(text)", inputs={"text": "given"})
    assert answer == "given" and "keeps its value" in first
    assert not hasattr(__import__("builtins"), "__rlmflow_keep__")


@pytest.mark.parametrize("text", ["a" * 100_000, "ü" * 100_000, "行" * 100_000, "\ud800🙂" * 70_000])
def test_big_inputs_are_what_they_were(text):
    answer, _ = run("done(str(hash(corpus) == hash(INPUTS['corpus'])) + str(len(corpus)) + ascii(corpus[:2]))",
                    inputs={"corpus": text})
    assert answer == f"True{len(text)}{ascii(text[:2])}"


# ---- output


def test_output_of_agents_that_interleave_is_each_ones_own(capsys):
    """Each child prints, lets the other print, and so on, inside the other's print too."""
    child = ("for i in range(50):\n    print(INPUTS['me'], i)\n    turn()\n"
             "    print(INPUTS['me'], 'again')", "done('ok')")
    barrier = threading.Barrier(2, timeout=60)

    def turn():
        """Lets the other one print."""
        barrier.wait()

    client = Scripted(
        root=["r = await launch_subagents([{'query': w, 'inputs': {'me': w}} for w in ('ann', 'ben')])\ndone('-'.join(r))"],
        ann=child, ben=child)
    flow = rlmflow.Flow(client, runtime=rlmflow.LocalRuntime(), tools=[turn], max_output_length=0)
    assert flow.run("root") == "ok-ok"
    for me in ("ann", "ben"):
        expected = "".join(f"{me} {i}\n{me} again\n" for i in range(50))
        assert client.read[me][1].startswith(expected)
    assert capsys.readouterr() == ("", "")


def test_a_stream_that_one_agent_replaces_is_replaced_for_it_alone():
    barrier = threading.Barrier(2, timeout=60)

    def turn():
        """Waits for the other one."""
        barrier.wait()

    ann = "import io, contextlib\nwith contextlib.redirect_stdout(io.StringIO()) as f:\n    turn(); print('to f'); turn()"
    client = Scripted(root=["r = await launch_subagents([{'query': 'ann'}, {'query': 'ben'}])\ndone('-'.join(r))"],
                      ann=[ann, "done(f.getvalue())"], ben=["turn(); print('to ben'); turn()", "done('x')"])
    flow = rlmflow.Flow(client, runtime=rlmflow.LocalRuntime(), tools=[turn])
    assert flow.run("root") == "to f\n-x"
    assert client.read["ben"][1].startswith("to ben\n") and "to f" not in client.read["ben"][1]


def test_threads_of_the_agents_code_print_to_its_session(capsys):
    code = ("import threading, concurrent.futures, sys\n"
            "t = threading.Thread(target=print, args=('from a thread',))\nt.start(); t.join()\n"
            "with concurrent.futures.ThreadPoolExecutor(2) as pool:\n    list(pool.map(print, ['of a pool']))\n"
            "t = threading.Thread(target=lambda: 1/0, name='fails')\nt.start(); t.join()\n"
            "print('warned', file=sys.stderr)")
    _, (first,) = run(code, "done('x')")
    assert "from a thread\n" in first and "of a pool\n" in first and "warned\n" in first
    assert "Exception in thread fails:\nTraceback" in first and "ZeroDivisionError" in first
    assert capsys.readouterr() == ("", "")


def test_other_threads_print_where_they_did_while_sessions_live(capsys):
    ours = io.StringIO()

    def host():
        thread = threading.Thread(target=lambda: None)
        thread.start()
        thread.join()
        return asyncio.run(asyncio.sleep(0, "slept"))

    class Client:
        def chat(self, messages):
            print("from the client")
            with contextlib.redirect_stdout(ours):
                print("into ours", host())
            return block("print('agent')\ndone(input.__name__)")

    assert rlmflow.Flow(Client(), runtime=rlmflow.LocalRuntime()).run("q") == "input"
    assert capsys.readouterr().out == "from the client\n" and ours.getvalue() == "into ours slept\n"


def test_a_print_that_finds_a_route_while_it_is_taken_away_arrives(capsys):
    from rlmflow._local_changes import CHANGES

    CHANGES.hold()
    found_by_print = sys.__dict__["stdout"]
    assert sys.stdout is not found_by_print
    CHANGES.release()
    print("late", file=found_by_print)
    assert capsys.readouterr().out == "late\n"


def test_input_is_empty():
    answer, _ = run("import sys\ntry:\n    input('? ')\nexcept EOFError:\n    done(repr(sys.stdin.read()))")
    assert answer == "''"


# ---- how cells end


@pytest.mark.parametrize("code, says", [("import sys\nsys.exit(3)", "SystemExit: 3"), ("exit()", "SystemExit"),
                                        ("raise KeyboardInterrupt('stop')", "KeyboardInterrupt: stop")])
def test_what_would_end_a_process_ends_a_cell(code, says):
    answer, (first,) = run("x = 1\n" + code, "done(str(x))")
    assert answer == "1" and says in first


@pytest.mark.parametrize("loop", ["while True:\n    pass", "import asyncio\nwhile True:\n    await asyncio.sleep(0)",
                                  "import asyncio\nawait asyncio.sleep(60)", "while True:\n    print(1)"])
def test_an_endless_cell_is_ended_by_its_clock_and_keeps_variables(loop):
    answer, (first,) = run("x = 5\n" + loop, "done(str(x))", runtime=rlmflow.LocalRuntime(exec_timeout=0.2))
    assert answer == "5" and "ran too long (exec_timeout: 200 ms)" in first
    assert "CellInterrupted" in first


def test_a_cell_that_cannot_be_stopped_is_abandoned_by_name_and_the_run_goes_on():
    release = threading.Event()
    runtime = rlmflow.LocalRuntime(exec_timeout=1)

    def block_forever():
        """Waits where nobody can interrupt it."""
        release.wait()

    def look():
        """Looks."""
        seen.extend(runtime.abandoned)

    seen = []
    runtime.register_tools([block_forever, look])
    answer, (first,) = run("print('before')\nx = 1\nblock_forever()", "look()\ndone(str('x' in globals()))", runtime=runtime)
    assert answer == "False" and seen == ["root"]
    assert "it was abandoned, and its thread may run on in this process" in first and "before" in first
    assert "rlmflow root" in threads()
    release.set()
    assert eventually(lambda: not threads()) and runtime.abandoned == []


def test_done_in_a_thread_ends_a_cell_that_waits():
    answer, _ = run("import threading, time\nthreading.Thread(target=done, args=('from a thread',)).start()\n"
                    "while True:\n    time.sleep(0.01)")
    assert answer == "from a thread"


def test_a_forked_child_of_a_cell_leaves_the_session_alone():
    code = ("import os\npid = os.fork()\nif pid == 0:\n    try:\n        budget()\n    except RuntimeError:\n        os._exit(7)\n"
            "print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))")
    _, (first,) = run(code, "done('x')")
    assert first.startswith("7\n")


def test_a_fork_of_the_program_meets_its_own_streams():
    codes = []

    class Client:
        turns = 0

        def chat(self, messages):
            self.turns += 1
            if self.turns == 2:
                mine, pid = sys.stdout, os.fork()
                if pid == 0:
                    os._exit(7 if sys.__dict__["stdout"] is mine and type(sys) is type(os) else 1)
                codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
            return block("print(1)" if self.turns == 1 else "done('x')")

    assert rlmflow.Flow(Client(), runtime=rlmflow.LocalRuntime()).run("q") == "x"
    assert codes == [7]


def test_a_process_ends_although_a_cell_does_not():
    program = ("import sys; sys.path.insert(0, %r)\nimport rlmflow\nreplies = ['import time; time.sleep(600)', 'done(1)']\n"
               "class Client:\n    def chat(self, messages): return '```\\n%%s\\n```' %% replies.pop(0)\n"
               "runtime = rlmflow.LocalRuntime(exec_timeout=0.05)\n"
               "print(rlmflow.Flow(Client(), runtime=runtime).run('q'), runtime.abandoned)"
               % os.path.dirname(os.path.dirname(rlmflow.__file__)))
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "1 ['root']\n", "")


def test_a_run_is_replayed_with_its_cells_in_this_process(tmp_path):
    run("print(1)", "x = 2", "done(str(x))", runtime=rlmflow.LocalRuntime(), journal=tmp_path / "run.rlm")
    report = rlmflow.Flow(Scripted(), runtime=rlmflow.LocalRuntime()).replay(tmp_path / "run.rlm", execute=True)
    assert (report.cells_run, report.outputs_differ, report.diverged) == (3, 0, False)


def test_a_run_inside_of_a_session_has_sessions_of_its_own():
    inner = rlmflow.Flow(Scripted(inner=["print('inside')\ndone('inner')"]), runtime=rlmflow.LocalRuntime())

    def ask():
        """Runs another agent."""
        return inner.run("inner")

    answer, (first,) = run("print('before')\na = ask()\nprint('after')", "done(a)", tools=[ask])
    assert answer == "inner" and first.startswith("before\nafter\n")


# ---- tools, directories


def test_tools_are_handed_over_by_reference_unless_they_are_proxies():
    kept, threads_of = [], []

    @rlmflow.tool("keeps an object")
    def keep(thing):
        threads_of.append(threading.current_thread().name)
        kept.append(thing)
        return kept

    @rlmflow.tool("runs on the host", proxy=True)
    def proxied():
        threads_of.append(threading.current_thread().name)

    runtime = rlmflow.LocalRuntime()
    runtime.register_tool(keep)
    answer, _ = run("f = lambda: 1\nback = keep(f)\nproxied()\ndone(str(back[0] is f))", runtime=runtime, tools=[proxied])
    assert answer == "True" and kept[0]() == 1
    assert threads_of[0] == "rlmflow root" and threads_of[1] != "rlmflow root"


def test_the_working_directory_is_the_sessions_alone(tmp_path):
    before = os.getcwd()
    (tmp_path / "inner").mkdir()
    runtime = rlmflow.LocalRuntime(working_directory=tmp_path)
    code = ("import os, threading\nwrite_file('f', 'text')\nos.chdir('inner')\nplaces = [os.getcwd()]\n"
            "t = threading.Thread(target=lambda: places.append(os.getcwd()))\nt.start(); t.join()")
    answer, _ = run(code, "done(' '.join(places))", runtime=runtime)
    assert answer == f"{tmp_path}/inner {tmp_path}/inner"
    assert os.getcwd() == before and (tmp_path / "f").read_text() == "text"
    assert run("import os\ndone(os.getcwd())")[0] == before
    with pytest.raises(rlmflow.RunEnded, match="No such file or directory"):
        run("1", runtime=rlmflow.LocalRuntime(working_directory=tmp_path / "none"))


def test_sessions_with_other_working_directories_are_no_conflict(tmp_path):
    """Two at once in one process: each says where it is while the other is there too."""
    both = threading.Barrier(2)

    @rlmflow.tool("meets", proxy=True)
    def meet():
        both.wait(20)

    async def main():
        runs = []
        for name in "ab":
            (tmp_path / name).mkdir()
            flow = rlmflow.Flow(lambda messages: block("import os\nmeet()\nhere = os.getcwd()\nmeet()\ndone(here)"),
                                runtime=rlmflow.LocalRuntime(working_directory=tmp_path / name), tools=[meet])
            runs.append(flow.arun("q"))
        return await asyncio.gather(*runs)

    before = os.getcwd()
    assert asyncio.run(main()) == [f"{tmp_path}/a", f"{tmp_path}/b"] and os.getcwd() == before


# ---- many, anywhere, and nothing left


def test_two_hundred_children():
    class Tree:
        async def chat(self, messages):
            if "child" in messages[1]["content"].split("\n")[0]:
                return block("import asyncio\nawait asyncio.sleep(0.001)\nprint(INPUTS['i'])\ndone(str(INPUTS['i']))")
            return block("r = await launch_subagents([{'query': 'child', 'inputs': {'i': i}} for i in range(200)])\n"
                         "done(' '.join(r))")

    flow = rlmflow.Flow(Tree(), runtime=rlmflow.LocalRuntime(), workers=32)
    assert flow.run("root").split() == [str(i) for i in range(200)]


def test_a_run_in_a_thread_that_is_not_the_main_one():
    answers = []
    thread = threading.Thread(target=lambda: answers.append(run("print(1)", "done('x')")))
    thread.start()
    thread.join()
    (answer, (first,)), = answers
    assert answer == "x" and first.startswith("1\n")


def test_a_thread_that_an_agent_leaves_behind_reaches_nothing(tmp_path):
    """Also not through a descriptor's number, which files get that are opened after the session's end."""
    release, ended, asked = threading.Event(), [], []

    def wait():
        """Waits until the run has ended."""
        release.wait()

    def note(text):
        """Takes a note."""
        ended.append(text)

    @rlmflow.tool("is asked", proxy=True)
    def ask(text: str):
        asked.append(text)

    code = ("import threading\ndef late():\n    wait()\n    for size in (1, 100_000):\n        try:\n            ask('x' * size)\n"
            "        except BaseException as e:\n            note(type(e).__name__)\n"
            "threading.Thread(target=late).start()")
    with pytest.raises(rlmflow.RunEnded):
        run(code, tools=[wait, note, ask], max_iters=1)
    assert eventually(lambda: "rlmflow root" not in threads())
    files = [open(tmp_path / str(i), "w+b") for i in range(40)]
    release.set()
    assert eventually(lambda: len(ended) == 2) and not asked
    assert ended == ["HostCallError", "SessionOver"]
    assert not any(os.fstat(f.fileno()).st_size for f in files)
    for file in files:
        file.close()


def test_what_is_dropped_in_a_session_that_has_not_opened_is_warned_of_as_ever(monkeypatch):
    from rlmflow import _local_changes as changes

    told = []

    def in_session():
        changes.OF_THREAD.session = types.SimpleNamespace(place=types.SimpleNamespace(cells=None))
        changes._note_unawaited("of another thread")

    monkeypatch.setattr(changes.CHANGES, "warn", told.append, raising=False)
    thread = threading.Thread(target=in_session)  # which prints nothing: it has no streams
    thread.start()
    thread.join()
    assert told == ["of another thread"]


def test_nothing_is_left():
    run("done('x')")  # what is made once
    gc.collect()
    assert eventually(lambda: not threads())
    streams = sys.stdin, sys.stdout, sys.stderr, type(sys), threading.Thread.start, asyncio.run
    descriptors = len(os.listdir("/proc/self/fd"))  # with some that the tests before have only just let go of
    for _ in range(20):
        run("import asyncio\nawait asyncio.sleep(0)\nprint(1)", "1/0", "done('x')", inputs={"a": "b" * 100_000})
    assert eventually(lambda: not threads())
    gc.collect()
    assert eventually(lambda: len(os.listdir("/proc/self/fd")) <= descriptors)
    assert streams == (
        sys.stdin, sys.stdout, sys.stderr, type(sys), threading.Thread.start, asyncio.run)
    import linecache

    assert not [name for name in linecache.cache if name.startswith("<cell ")]


def test_a_big_input_is_one_object_for_all_sessions_of_a_run():
    class Tree:
        def chat(self, messages):
            if "child" in messages[1]["content"]:
                return block("done(f\"{id(INPUTS['t'])} {INPUTS['t'][-2:]}\")")
            return block("r = await launch_subagents([{'query': 'child', 'inputs': {'t': INPUTS['t']}}] * 3)\n"
                         "done(repr([f\"{id(INPUTS['t'])} {INPUTS['t'][-2:]}\", *r]))")

    for text in ("a" * 100_000 + "xy", "ä" * 100_000 + "xy", "\U00010001" * 100_000 + "\ud800y"):
        told = eval(rlmflow.Flow(Tree(), runtime=rlmflow.LocalRuntime()).run("q", inputs={"t": text}))
        assert len(told) == 4 and len(set(told)) == 1 and told[0].endswith(text[-1])
