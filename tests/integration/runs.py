"""Runs of the program against a test's model server: what each agent's model says, what a run left.

A mind is {regex over the task: replies}: the replies of an agent whose task fits, by turn, the last
one again and again. A reply is code (it gets its block), Text, a dict of fields of a rule (see
server/rules.py; its "reply" is code or Text), or a function of the request that returns one of these.
"""

import itertools
import json
import re
from pathlib import Path

import pytest
from replies import cell


class Text(str):
    """A reply that is sent as it stands."""


def task_of(request):
    """The first user message: the agent's task, or the prompt of an llm_query."""
    return next((text for role, text in request.messages if role == "user"), "")


def _fields(reply, request):
    if callable(reply):
        return _fields(reply(request), request)
    if isinstance(reply, dict):
        inner = reply.get("reply", "done('no reply was given')")
        return {**reply, "reply": inner if isinstance(inner, Text) else cell(inner)}
    return {"reply": reply if isinstance(reply, Text) else cell(reply)}


def mind(tasks, query="noted", **fields):
    """The rules of a mind. `query` answers each llm_query: text, or a function of the request that
    returns text or fields. `fields` hold for all."""
    def answer(request):
        task = task_of(request)
        if not task.startswith("Task: "):
            got = query(request) if callable(query) else query
            return {**fields, **(got if isinstance(got, dict) else {"reply": got})}
        turn = sum(role == "assistant" for role, _ in request.messages)
        for pattern, replies in tasks.items():
            if re.match("Task: " + pattern, task):
                replies = replies if isinstance(replies, list) else [replies]
                return {**fields, **_fields(replies[min(turn, len(replies) - 1)], request)}
        raise AssertionError(f"no task of the mind fits {task[:200]!r}")

    return [{"reply": answer}]


def descendants(pid):
    """Process ids below a process."""
    found, todo = set(), [pid]
    while todo:
        parent = todo.pop()
        try:
            below = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
        except OSError:
            continue
        todo += map(int, below)
        found |= set(map(int, below))
    return found


class Run:
    """A run that has ended: how the program ended and what its journal says."""

    def __init__(self, result, path, lines):
        self.code, self.stdout, self.stderr = result.code, result.stdout, result.stderr
        self.answer = result.stdout.removesuffix("\n")
        self.path = path
        self.events = [json.loads(line) for line in lines]

    def nodes(self, agent="root", type=None):
        """The nodes of an agent."""
        return [e["node"] for e in self.events if e["type"] == "append_node"
                and e["agent_id"] == agent and type in (None, e["node"]["type"])]

    def seen(self, agent="root"):
        """What an agent was shown after each of its cells."""
        return [n["content"] for n in self.nodes(agent) if n["type"] in ("exec_output", "error_output")]

    def errors(self, agent="root"):
        """The kinds of the errors of an agent's cells."""
        return [n["error"] for n in self.nodes(agent, "error_output")]

    @property
    def ends(self):
        """{agent: reason}."""
        return {e["agent_id"]: e["node"]["reason"] for e in self.events
                if e["type"] == "append_node" and e["node"]["type"] == "done_output"}

    @property
    def usage(self):
        """The sums of the result."""
        return self.events[-1]["usage"]


@pytest.fixture
def look(run_rlmflow):
    """look(result, path): the Run that a program which has ended left at path; its journal must be
    whole."""
    def read(result, path):
        view = run_rlmflow("view", path, "--json")
        assert view.code == 0 and not view.stderr, f"{view.stderr}\nthe run said: {result.stderr}"
        return Run(result, path, view.stdout.splitlines())

    return read


@pytest.fixture
def command(tmp_path):
    """command(server, *flags, api="openai", query="go"): (arguments of a run with that server, the
    path of its journal)."""
    numbers = itertools.count(1)

    def make(server, *flags, api="openai", query="go", model="m"):
        path = tmp_path / f"run{next(numbers)}.rlm"
        url = server.base_url if api == "openai" else server.anthropic_url
        return ["run", query, "--model", model, "--api", api, "--base-url", url, "-o", path,
                *flags], path

    return make


@pytest.fixture
def go(run_rlmflow, server, command, look):
    """go(rules, *flags, api="openai", query="go", env=None, ...): gives `server` the rules, runs the
    program to its end and returns the Run."""
    def start(rules, *flags, api="openai", query="go", model="m", **options):
        server.set_rules(rules)
        args, path = command(server, *flags, api=api, query=query, model=model)
        return look(run_rlmflow(*args, **options), path)

    return start
