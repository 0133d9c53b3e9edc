"""Sub-agents: names, order, widths, limits, and everything that can go wrong between agents."""

import pytest
from runs import command, go, look, mind  # noqa: F401


def test_results_come_in_the_order_of_the_specs_whoever_is_first(go, server):
    code = ('r = await launch_subagents([{"query": f"work {i}"} for i in range(6)])\n'
            'done(repr(r))')

    def work(request):
        number = int(request.user.split("work ")[1].split()[0])
        return {"reply": f"done({number})", "first_byte_delay_ms": 150 - 25 * number}

    run = go(mind({"go": code, "work": work}), "--workers", "6")
    assert run.answer == repr(list("012345"))


def test_refused_specs_stand_in_their_slots(go):
    code = ('specs = [{"query": "work a"}, {"query": "x" * 2001}, {"query": "work b", "name": "bee"},\n'
            '         {"query": "work", "model": "none"}, {"query": "work c"}]\n'
            'r = await launch_subagents(specs)\n'
            'done(repr([x if not isinstance(x, Failure) else (x.reason, x.agent_id) for x in r]))')
    run = go(mind({"go": code, "work": lambda r: f"done({r.user.split()[2]!r})"}))
    assert run.answer == repr(["a", ("refused", "root.child1"), "b", ("refused", "root.child2"), "c"])
    assert set(run.ends) == {"root", "root.child0", "root.bee", "root.child3"}
    launch, = run.nodes(type="supervising_output")
    assert launch["agents"] == ["root.child0", "root.bee", "root.child3"]


@pytest.mark.parametrize("specs, word", [
    ('[{"query": "work", "name": "a"}, {"query": "work", "name": "a"}]', '"a" exists already'),
    ('[{"query": "work", "name": "a b"}]', "letters, digits"),
    ('[{"query": "work", "name": "a.b"}]', "letters, digits"),
    ('[{"query": "work", "name": ""}]', "letters, digits"),
    ('[{"query": "work", "name": 3}]', "letters, digits"),
    ('[{"query": ""}]', "query"), ('[{}]', "query"), ('["work"]', "dict"), ('{"query": "work"}', "list"),
    ('"work"', "list"), ('[{"query": "work", "inputs": [1]}]', "inputs"),
    ('[{"query": "work", "task": 1}]', "unknown key"), ('[{"query": "work", "output_schema": 3}]', "schema"),
    ('None', "list"), ('[{"query": "work", "model": 3}]', "model"),
    ('[{"query": "work", "inputs": {"a": print}}]', "print"),
])
def test_wrong_specs_are_an_error_at_the_call_and_start_nothing(go, specs, word):
    run = go(mind({"go": [f"await launch_subagents({specs})", "done('then')"], "work": "done(1)"}))
    assert run.answer == "then" and run.ends == {"root": "answered"}
    assert word in run.seen()[0] and "<cell 1>" in run.seen()[0], run.seen()[0]
    assert run.errors() == ["exec"]


def test_a_name_is_never_used_twice(go):
    code = ('a = await launch_subagents([{"query": "work", "name": "child0"}])\n'
            'b = await launch_subagents([{"query": "work"}, {"query": "work"}])\n'
            'try: await launch_subagents([{"query": "work", "name": "child1"}])\n'
            'except ValueError as e: print("refused")\n'
            'done(len(a + b))')
    run = go(mind({"go": code, "work": "done(1)"}))
    assert run.answer == "3" and "refused" in run.nodes()[-1]["output"]
    assert set(run.ends) == {"root", "root.child0", "root.child1", "root.child2"}


def test_an_empty_launch_is_an_empty_list(go):
    run = go(mind({"go": "done(repr((await launch_subagents([]), await llm_query_batched([]))))"}))
    assert run.answer == "([], [])", run.stderr


def test_deeper_than_max_depth_is_refused(go):
    down = ('r, = await launch_subagents([{"query": "down"}])\n'
            'done(r.message if isinstance(r, Failure) else r)')
    run = go(mind({"go": down, "down": down}), "--max-depth", "3")
    assert run.answer == "max depth 3" and len(run.ends) == 4
    assert "root.child0.child0.child0" in run.ends


def test_children_at_depth_0_have_no_launch_in_their_prompt(go, server):
    run = go(mind({"go": "done(1)"}), "--max-depth", "0")
    assert run.answer == "1"
    assert "launch_subagents" not in str(server.requests[0].body)


def test_max_agents_refuses_what_is_too_many(go):
    code = ('r = await launch_subagents([{"query": "work"} for _ in range(5)])\n'
            'done(repr([x.message if isinstance(x, Failure) else x for x in r]))')
    run = go(mind({"go": code, "work": "done('w')"}), "--max-agents", "3")
    assert run.answer == repr(["w", "w"] + ["max_agents (3) reached"] * 3)


def test_several_launches_and_queries_at_once(go, server):
    code = ('import asyncio\n'
            'async def one(n):\n'
            '    r, = await launch_subagents([{"query": f"work {n}", "name": f"n{n}"}])\n'
            '    return r\n'
            'r = await asyncio.gather(*(one(i) for i in range(8)), llm_query("a"),\n'
            '    llm_query_batched(["b", "c"]))\n'
            'done(repr(r))')

    def work(request):
        number = int(request.user.split("work ")[1].split()[0])
        return {"reply": f"done({number})", "first_byte_delay_ms": 80 - 10 * number}

    run = go(mind({"go": code, "work": work}, query=lambda r: {"reply": r.user * 2, "together": 8}),
             "--workers", "16")
    assert run.answer == repr([str(i) for i in range(8)] + ["aa", ["bb", "cc"]]), run.stderr
    launches, resumes = run.nodes(type="supervising_output"), run.nodes(type="resume_action")
    assert {n["call_id"] for n in launches} == {n["call_id"] for n in resumes} and len(resumes) == 8
    for node in launches:
        assert [n["agents"] for n in resumes if n["call_id"] == node["call_id"]] == [node["agents"]]


def test_more_launches_at_once_than_any_table_is_long(go):
    code = ('import asyncio\n'
            'r = await asyncio.gather(*(launch_subagents([{"query": "x" * 3000}]) for i in range(200)))\n'
            'done(len([x for x, in r if x.reason == "refused"]))')
    assert go(mind({"go": code})).answer == "200"


def test_threads_may_query(go):
    code = ('import asyncio\n'
            'from concurrent.futures import ThreadPoolExecutor\n'
            'def ask(n): return asyncio.run(llm_query(f"q{n}"))\n'
            'with ThreadPoolExecutor(8) as pool: r = list(pool.map(ask, range(24)))\n'
            'done(repr(r == [f"q{n}" * 2 for n in range(24)]))')
    run = go(mind({"go": code}, query=lambda r: r.user * 2))
    assert run.answer == "True", run.stderr


def test_a_forgotten_await_is_made_up_for_and_said(go):
    run = go(mind({"go": ['x = llm_query("a")\nprint(type(x))', 'launch_subagents([{"query": "work"}])\n1',
                          'launch_subagents([{"query": "work"}])', 'llm_query_batched(["b"])',
                          "done(x)"], "work": "done('worked')"}, query="said"))
    kept, lost, launched, queried = run.seen()
    assert "its result is now in `x`" in kept and "its result is lost" in lost
    assert "await" not in launched + queried  # the value of a cell's last expression is awaited
    assert "['worked']" in launched and "['said']" in queried and run.answer == "said"
    assert set(run.ends) == {"root", "root.child0", "root.child1"} and run.usage["calls"] == 9


def test_a_task_that_nobody_awaits_ends_with_its_cell(go, server):
    code = ('import asyncio\n'
            't = asyncio.create_task(launch_subagents([{"query": "work"}]))\n'
            'await asyncio.sleep(0.05)\n'
            'print("on")')
    run = go(mind({"go": [code, "done('then')"],
                   "work": {"reply": "done(1)", "first_byte_delay_ms": 60_000}}))
    assert run.answer == "then" and run.ends == {"root": "answered", "root.child0": "terminated"}
    assert "on" in run.seen()[0] and "[" in run.seen()[0], run.seen()[0]
    assert server.wait_idle()["outcomes"] == {"answered": 2, "client_left": 1}


def test_done_while_children_run_terminates_them(go, server):
    code = ('import asyncio\n'
            't = asyncio.create_task(launch_subagents([{"query": "work"}, {"query": "work"}]))\n'
            'q = asyncio.create_task(llm_query("slow"))\n'
            'await asyncio.sleep(0.05)\n'
            'done("first")')
    run = go(mind({"go": code, "work": {"reply": "done(1)", "first_byte_delay_ms": 60_000}},
                  query={"reply": "x", "first_byte_delay_ms": 60_000}))
    assert (run.code, run.answer) == (0, "first")
    assert run.ends == {"root": "answered", "root.child0": "terminated", "root.child1": "terminated"}
    order = [(e["agent_id"], e["node"]["type"]) for e in run.events if e["type"] == "append_node"]
    assert order.index(("root", "done_output")) > order.index(("root", "resume_action"))
    assert server.wait_idle()["outcomes"] == {"answered": 1, "client_left": 3}
    assert run.usage["calls"] == 4  # what was sent may be billed


@pytest.mark.parametrize("code", [
    'try: done("first")\nexcept Exception: pass\ndone("second")',
    'try: done("first")\nexcept: print("caught")\ndone("second")',
    'try: done("first")\nfinally: print("unwound")',
    'done("first"); done("second")',
    'try: done("first")\nexcept BaseException: pass\nopen("went-on", "w")',
    'try: done("first")\nexcept BaseException: pass\nwhile True: pass',
    'import asyncio\nasync def f(): done("first")\nawait asyncio.gather(f(), asyncio.sleep(60))',
    'import threading\nt = threading.Thread(target=lambda: done("first")); t.start(); t.join()\n'
    'import time; time.sleep(60)',
    'try: done("first")\nexcept BaseException: pass\nawait launch_subagents([{"query": "work"}])',
    'import os\ntry: done("first")\nfinally: os._exit(3)',
], ids=range(10))
def test_the_first_answer_stands_whatever_follows(go, code):
    run = go(mind({"go": code, "work": "done(1)"}))
    assert (run.code, run.answer) == (0, "first"), run.stderr
    assert run.ends == {"root": "answered"} and len(run.nodes(type="llm_output")) == 1


def test_waiting_for_children_does_not_count_against_exec_timeout(go):
    code = ('r, = await launch_subagents([{"query": "work"}])\n'
            'q = await llm_query("slow")\n'
            'done(r + q)')
    run = go(mind({"go": code, "work": {"reply": "done('w')", "first_byte_delay_ms": 900}},
                  query={"reply": "q", "first_byte_delay_ms": 900}), "--exec-timeout", "700ms")
    assert run.answer == "wq", run.stderr


@pytest.mark.replayed("recorded", "with so short a limit it is chance how far a cell comes")
def test_a_hung_child_is_a_limit_and_a_value_to_its_parent(go):
    code = 'r, = await launch_subagents([{"query": "work"}])\ndone(r if isinstance(r, Failure) else "no")'
    run = go(mind({"go": code, "work": "while True: pass"}), "--exec-timeout", "300ms",
             "--child-max-iters", "1")
    assert run.answer.startswith("[max_iters") and run.errors("root.child0") == ["exec_timeout"]
    assert run.ends["root.child0"] == "max_iters"


def test_a_child_that_raises_goes_on_and_its_parent_never_knows(go):
    code = 'done((await launch_subagents([{"query": "work"}]))[0])'
    run = go(mind({"go": code, "work": ["1 / 0", "done('after all')"]}))
    assert run.answer == "after all" and run.errors("root.child0") == ["exec"]


def test_siblings_do_not_share_a_session_or_an_output(go):
    code = ('x = "mine"\n'
            'print("parent before")\n'
            'r = await launch_subagents([{"query": f"work {i}", "inputs": {"n": i}} for i in range(6)])\n'
            'print("parent after", x, r)')
    work = ("import os\n"
            "print('child', n, 'x' in globals())\n"
            "x = n; os.environ['SHARED'] = str(n)")
    run = go(mind({"go": [code, "done('end')"], "work": [work, "done(f'{x} {os.environ[\"SHARED\"]}')"]}),
             "--workers", "6")
    answers = [f"{i} {i}" for i in range(6)]
    assert run.seen()[0].startswith(f"parent before\nparent after mine {answers}")
    for i in range(6):
        assert run.seen(f"root.child{i}")[0].startswith(f"child {i} False")


def test_depth_does_not_deadlock_width(go):
    down = ('r = await launch_subagents([{"query": "down"}, {"query": "down"}])\n'
            'done(1 + sum(int(x) for x in r if not isinstance(x, Failure)))')
    run = go(mind({"go": down, "down": down}), "--max-live", "1", "--workers", "1", "--max-depth", "3")
    assert run.answer == "15" and len(run.ends) == 15


def test_inputs_reach_children_as_they_are(go, tmp_path):
    big = tmp_path / "big.txt"
    big.write_text("ä" * 200_000, encoding="utf-8")
    code = ('given = {"whole": big, "part": big[:100_000], "small": "s", "number": 3.5, "none": None,\n'
            '         "list": [1, {"a": (1, 2)}], "bytes": b"\\0\\xff"}\n'
            'r, = await launch_subagents([{"query": "work", "inputs": given}])\n'
            'done(r)')
    work = ('done(repr((len(whole), len(part), whole[:100_000] == part, small, number, INPUTS["none"],\n'
            '           INPUTS["list"], INPUTS["bytes"])))')
    run = go(mind({"go": code, "work": work}), "--input", f"big=@{big}")
    assert run.answer == repr((200_000, 100_000, True, "s", 3.5, None, [1, {"a": (1, 2)}], b"\0\xff"))
    blobs = [p for p in (run.path / "blobs").iterdir() if "." not in p.name]
    assert len(blobs) == 2  # one for the file, one for the slice, however many sessions have them


def test_names_of_inputs_are_protected(go):
    """Whatever would give the name another value is an error that says what to do instead."""
    cells = ["for x in range(3): pass", "x = 5", "del x", "def x(): pass", "import os as x", 'INPUTS["x"] = 1',
             'del INPUTS["x"]', "INPUTS.clear()", "done(x)"]
    run = go(mind({"go": cells}), "--input", "x=given")
    assert run.answer == "given", run.seen()
    assert run.errors() == ["exec"] * 8
    for shown in run.seen()[:5]:
        assert ("InputNameError: `x` is an input (str, 5 characters) and keeps its value: the real data is in "
                "it already; delete this line, or use another name") in shown, shown
    for shown in run.seen()[5:]:
        assert "TypeError: INPUTS cannot be changed; keep your own values under other names" in shown, shown
