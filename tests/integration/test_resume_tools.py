"""Tools and equal calls of a run that was killed: what was answered is answered so again, in order."""

import pytest
from hosts import make_host, until  # noqa: F401
from journal import Journal, cut
from runs import command, go, look, mind  # noqa: F401

INTERRUPTED = ("the run was stopped while this tool was at work, and goes on now; what the tool did is "
               "not known, and it was not called again")


def shown(host):
    """The texts that the root's model was shown after its cells."""
    return [r["content"] for r in Journal(host.run).all("node", agent="root")
            if r["type"] in ("exec_output", "error_output")]


def has_call(name):
    return lambda journal: any(r["name"] == name for r in journal.all("call_started"))


@pytest.fixture
def kill_in_call(make_host, make_server):
    """kill_in_call(cells, name, **options): a host that was killed while the tool was at work, and the
    rules."""
    def kill(cells, name, **options):
        host, rules = make_host("tools"), mind({"go": cells})

        def at_work(process):
            until(host.run, has_call(name))(process)
            host.counts()  # the line stands before the record of a result could
        ended = host.drive("run", make_server(rules), kill=at_work, workers=1, delay=600000, **options)
        assert ended.killed and not Journal(host.run).all("call_finished", value=f"{name}:a")
        return host, rules

    return kill


def test_a_tool_that_was_at_work_is_not_called_again(kill_in_call, make_server):
    host, rules = kill_in_call([
        "x = 5\nprint(x)",
        "try:\n    buy('a')\nexcept HostCallError as e:\n    print(type(e).__name__, e.reason, e.message, x)",
        "done(str(x))"], "buy")
    ended = host.drive("resume", make_server(rules), delay=1)
    assert ended.stdout == "5", ended.stderr
    assert shown(host) == ["5", f"ToolInterrupted interrupted {INTERRUPTED} 5"]
    assert host.counts()["buy a"] <= 1


def test_an_idempotent_tool_that_was_at_work_is_called_again(kill_in_call, make_server):
    host, rules = kill_in_call(["print(look('a'))", "done('1')"], "look")
    ended = host.drive("resume", make_server(rules), delay=1)
    assert ended.stdout == "1", ended.stderr
    assert shown(host) == ["look:a"]
    assert 1 <= host.counts()["look a"] <= 2


@pytest.mark.parametrize("name", ["buy", "look"])
def test_a_result_that_is_written_is_what_the_code_gets(make_host, make_server, name):
    """It had not been handed over yet: the tool is not called again, whatever it may be."""
    rules = mind({"go": [f"x = {name}('a')\nprint(x)", "done(x)"]})
    whole, host = make_host("whole"), make_host("cut")
    assert whole.drive("run", make_server(rules), delay=1).stdout == f"{name}:a"
    cut(whole.run, host.run, Journal(whole.run).one("call_finished", value=f"{name}:a").end)
    ended = host.drive("resume", make_server(rules), delay=1)
    assert ended.stdout == f"{name}:a", ended.stderr
    assert shown(host) == [f"{name}:a"] and not host.counts()


def test_a_fresh_session_calls_no_tool(kill_in_call, make_server):
    host, rules = kill_in_call(["print(look('a'))", "done('1')"], "look")
    before = host.counts()
    ended = host.drive("resume", make_server(rules), restore="auto", delay=1)
    assert ended.stdout == "1", ended.stderr
    assert host.counts() == before


@pytest.mark.parametrize("answered, left", [(1, 1), (2, 0)])
def test_the_limit_of_a_tool_holds_over_kills(make_host, make_server, answered, left):
    """Two calls in a run, of which some were answered before the kill."""
    cells = ["".join(f"print(buy('{i}'))\n" for i in range(answered)), "await llm_query('wait')",
             "for key in 'xyz':\n    try:\n        print(buy(key))\n    except HostCallError as e:\n"
             "        print(e)", "done('1')"]
    host = make_host("limited")
    server = make_server(mind({"go": cells}, query=lambda request: {"reply": "", "gate": "never"}))
    host.drive("run", server, kill=until(host.run, has_call("llm_query")), max_calls=2, delay=1)
    ended = host.drive("resume", make_server(mind({"go": cells})), max_calls=2, delay=1)
    assert ended.stdout == "1", ended.stderr
    refused = "the tool buy may be called 2 times in a run, and has been\n"
    assert shown(host)[2] + "\n" == "".join(f"buy:{k}\n" for k in "xyz"[:left]) + refused * (3 - left)
    assert sum(n for key, n in host.counts().items() if key.startswith("buy")) == 2


EQUAL = ["import asyncio\n"
         "a, b = await asyncio.gather(llm_query('x'), llm_query('x'))\n"
         "c = await llm_query('y')\nprint(a, b, c)", "done(a + b + c)"]


def drive_equal(host, make_server, command, answers, kill):
    """A drive in which the n-th request for "x", and "y", get these answers; None: never."""
    numbers = iter(range(100))

    def query(request):
        prompt = [text for role, text in request.messages if role == "user"][-1]
        answer = answers["y"] if prompt == "y" else answers["x"][next(numbers)]
        return answer if answer else {"reply": "", "gate": "never"}

    return host.drive(command, make_server(mind({"go": EQUAL}, query=query)), kill=kill)


def test_equal_calls_keep_their_answers_over_two_kills(make_host, make_server):
    """The second of two equal calls was answered first; the first is asked again, and stands first."""
    for attempt in range(20):  # which request comes first is the network's affair
        host = make_host(f"equal{attempt}")
        drive_equal(host, make_server, "run", {"x": [None, "quick"], "y": "!"},
                    until(host.run, lambda j: j.all("call_delivered")))
        journal = Journal(host.run)
        calls = [r["call"] for r in journal.all("call_started")]
        if len(calls) == 2 and journal.one("call_delivered")["calls"] == [calls[1]]:
            break
    else:
        raise AssertionError("the second call was never answered first")
    drive_equal(host, make_server, "resume", {"x": ["again"], "y": None},
                until(host.run, lambda j: any(r["args"] == ["y"] for r in j.all("call_started"))))
    ended = drive_equal(host, make_server, "resume", {"x": [], "y": "last"}, None)
    assert ended.stdout == "againquicklast", ended.stderr
    assert shown(host) == ["again quick last"]
