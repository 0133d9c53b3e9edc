"""kill -9 at random moments: of the engine, of the engine that resumes, of workers.

The seed of the moments is printed with a failure; RLMFLOW_SEED gives it anew. `make torture` takes many
more moments.
"""

import os
import random
import re
import signal
import time

import pytest
from hosts import Ended, make_host, results, until  # noqa: F401
from journal import Journal
from program import Result
from runs import command, descendants, go, look, mind  # noqa: F401
from test_resume import Resumer, bought

SEED = int(os.environ.get("RLMFLOW_SEED", random.SystemRandom().randrange(10**6)))
MOMENTS = int(os.environ.get("RLMFLOW_MOMENTS", 500 if os.environ.get("RLMFLOW_TORTURE") else 20))
SAFE = ("def safe(key):\n"
        "    try:\n        return buy(key)\n    except Exception:\n        return 'buy:' + key\n")
ROOT = [
    SAFE + "state = [look('r1'), safe('r2')]\nprint(state)",
    "import asyncio\n"
    "specs = [{'query': f'work {i}', 'name': f'w{i}', 'inputs': {'k': f'k{i}'}} for i in range(6)]\n"
    "first, note = await asyncio.gather(launch_subagents(specs), llm_query('a note'))\n"
    "state += first + [note]\nprint(len(state))",
    "state += await llm_query_batched(['one', 'two', 'three'])\nstate.append(look('r3'))\nprint(len(state))",
    "halves = await asyncio.gather(launch_subagents([{'query': 'work 7', 'inputs': {'k': 'k7'}},"
    " {'query': 'work 8', 'inputs': {'k': 'k8'}}]), launch_subagents([{'query': 'work 9', 'inputs': "
    "{'k': 'k9'}}, {'query': 'work 10', 'inputs': {'k': 'k10'}}]))\n"
    "state += halves[0] + halves[1]\nprint(len(state))",
    "done('|'.join(state))",
]
WORK = [
    SAFE + "k = INPUTS['k']\nmine = [look(k + 'a')]\nprint(mine)",
    "mine.append(safe(k + 'b'))\nmine.append(await llm_query('of ' + k))\nprint(mine)",
    "mine += [await llm_query('deep ' + k), look(k + 'c')]\nprint(len(mine))",
    "done('/'.join(mine))",
]
KEYS = [f"k{i}" for i in (0, 1, 2, 3, 4, 5, 7, 8, 9, 10)]
WORKED = [f"look:{k}a/buy:{k}b/of {k}!/deep {k}!/look:{k}c" for k in KEYS]
ANSWER = "|".join(["look:r1", "buy:r2", *WORKED[:6], "a note!", "one!", "two!", "three!", "look:r3",
                   *WORKED[6:]])
AGENTS = {"root", *(f"root.w{i}" for i in range(6)), *(f"root.child{i}" for i in range(4))}


def last_text(request):
    return [text for role, text in request.messages if role == "user"][-1]


def story():
    return mind({"go": ROOT, "work": WORK}, query=lambda request: last_text(request) + "!")


def whole_prefix(path):
    """Cuts off a torn record, as the program will."""
    os.truncate(path / "journal", Journal(path, torn=True).end)


class Bookkeeping:
    """What must hold over all drives of one run."""

    def __init__(self, host):
        self.host, self.gained, self.frozen = host, 0, {}

    def killed(self, requests):
        if self.host.size < 9:
            return False  # nothing of the run is there
        whole_prefix(self.host.run)
        had, self.gained = self.gained, len(bought(self.host.run))
        assert self.gained - had <= requests <= self.gained - had + 4, "replies that nobody asked for"
        counts = self.host.counts()
        for key, n in self.frozen.items():
            assert counts[key] == n, f"{key} had its result, and was performed again"
        self.frozen = {key: counts[key] for key in results(self.host.run)}
        return True

    def ended(self, requests, total):
        assert requests == total - self.gained, "a reply was bought twice, or left out"
        counts = self.host.counts()
        for key, n in self.frozen.items():
            assert counts[key] == n, f"{key} had its result, and was performed again"
        assert all(n == 1 for key, n in counts.items() if key.startswith("buy")), counts
        assert sum(key.startswith("look") for key in counts) == 22, counts


def check_graph(run):
    assert set(run.ends) == AGENTS and set(run.ends.values()) == {"answered"}
    for agent in AGENTS:
        launches = [n["call_id"] for n in run.nodes(agent, "supervising_output")]
        resumes = [n["call_id"] for n in run.nodes(agent, "resume_action")]
        assert sorted(launches) == sorted(resumes) and len(set(launches)) == len(launches)
        assert len(launches) == (3 if agent == "root" else 0)
        assert len(run.nodes(agent, "user_query")) == 1
        assert len(run.nodes(agent, "llm_output")) == (5 if agent == "root" else 4)


@pytest.fixture
def whole(make_host, make_server):
    """(bytes of the journal, number of replies) of a run that nobody disturbed."""
    host, server = make_host("whole"), make_server(story())
    ended = host.drive("run", server, workers=4, delay=3)
    assert ended.stdout == ANSWER, ended.stderr
    assert len(server.requests) == len(bought(host.run))
    return host.size, len(server.requests)


def test_the_engine_is_killed_at_random_moments(whole, make_host, make_server, run_rlmflow, look):
    size, total = whole

    def one(number):
        moments = random.Random(f"{SEED} {number}")
        host = make_host(f"killed{number}")
        book, kills, command = Bookkeeping(host), moments.choice([1, 1, 2, 3]), "run"
        while True:
            server = make_server(story())
            kill = None
            if kills:
                kill = (host.after(moments.uniform(0, 1.2)) if command == "resume" and moments.random() < 0.5
                        else host.at_size(moments.uniform(host.size, size)))
            ended = host.drive(command, server, kill=kill, workers=4, delay=3)
            where = f"seed {SEED}, run {number}, {kills} kills left: {ended.stderr}"
            if not ended.killed:
                answered = "has ended with an answer" in ended.stderr  # it was killed after that
                assert ended.stdout == ANSWER or answered and ended.code == 2, where
                break
            kills -= 1
            if book.killed(len(server.requests)):
                command = "resume"
            else:
                command, kills = "run", max(kills, 1)
                host = make_host(f"killed{number}again{moments.random()}")
                book = Bookkeeping(host)
        book.ended(len(server.requests), total)
        check_graph(look(ended, host.run))

    Resumer.each(one, range(MOMENTS))


def test_a_run_that_is_stopped_at_random_moments_goes_on(whole, make_host, make_server, look):
    """The engine, its workers or all of them, by SIGSTOP; nothing is bought or performed twice."""
    size, total = whole
    stops = []

    def one(number):
        moments = random.Random(f"{SEED} stop {number}")
        host, server = make_host(f"stopped{number}"), make_server(story())
        process = host.start("run", server, workers=4, delay=3)
        for part in sorted(moments.uniform(0.02, 0.98) for _ in range(4)):
            host.at_size(part * size)(process)
            workers = list(descendants(process.pid))
            who = moments.choice([[process.pid], workers, [process.pid, *workers]])
            for sign in (signal.SIGSTOP, signal.SIGCONT):
                for pid in who:
                    try:
                        os.kill(pid, sign)
                        stops.append(sign)
                    except ProcessLookupError:
                        pass  # its session ended meanwhile
                time.sleep(moments.uniform(0, 0.1))
        out, err = process.communicate(timeout=120)
        assert out == ANSWER + "\n", (f"seed {SEED}, run {number}", err)
        assert len(server.requests) == total and set(host.counts().values()) == {1}, host.counts()
        assert len(host.counts()) == 2 + 1 + 3 * len(KEYS)
        check_graph(look(Ended(out, err, process.returncode), host.run))

    n_runs = max(4, MOMENTS // 5)
    Resumer.each(one, range(n_runs))
    assert stops.count(signal.SIGSTOP) >= n_runs


LOST = ("variables are gone", "All variables are lost", "Your session had to be made again")


def steps(marks, *cells):
    """Replies that go by what the conversation shows to be done: a cell is written again until its
    number is printed, and all are when variables are gone. The first says that its worker is ready."""
    first = f"import os; open(f'{marks}/{{os.getpid()}}', 'w').close()\n"

    def reply(request):
        at = 0
        for role, text in request.messages:
            if role == "user" and any(said in text for said in LOST):
                at = 0
            elif role == "user" and re.search(rf"^done {at}$", text, re.MULTILINE):
                at += 1
        code = cells[at] if at == len(cells) - 1 else f"{cells[at]}\nprint('done {at}')"
        return code if at else first + code
    return reply


def kill_workers(process, marks, moments, times):
    """Kills a random worker that was ready, so many times."""
    while times and process.poll() is None:
        time.sleep(moments.uniform(0.02, 0.25))
        workers = sorted(descendants(process.pid) & {int(p.name) for p in marks.iterdir()})
        if workers:
            try:
                os.kill(moments.choice(workers), signal.SIGKILL)
            except ProcessLookupError:
                continue
            times -= 1


def test_workers_are_killed_and_their_state_comes_back(make_server, start_rlmflow, command, tmp_path):
    marks = tmp_path / "marks"
    marks.mkdir()
    child = steps(marks, "mine = [INPUTS['k']]", "mine.append(await llm_query('a ' + mine[0]))",
                  "import time; time.sleep(0.05); mine.append(len(mine))",
                  "done('/'.join(map(str, mine)))")
    root = steps(marks, "state = {'first': 1}", "state['note'] = await llm_query('note')",
                 "mine = [r for r in await launch_subagents([{'query': 'work', 'inputs': {'k': c}} for c in 'abc'])]",
                 "state['work'] = mine", "import time; time.sleep(0.1); state['last'] = len(state)",
                 "done(repr(state))")
    rules = mind({"go": root, "work": child}, query=lambda request: last_text(request) + "!")
    answer = repr({"first": 1, "note": "note!", "work": [f"{c}/a {c}!/2" for c in "abc"], "last": 3})
    deaths = []

    def one(number):
        moments = random.Random(f"{SEED} worker {number}")
        server = make_server(rules)
        args, path = command(server, "--restore", "replay", "--max-iters", "60")
        process = start_rlmflow(*args)
        kill_workers(process, marks, moments, 4)
        out, err = process.communicate(timeout=60)
        where = f"seed {SEED}, run {number}: {err.decode()}"
        assert out.decode() == answer + "\n", where
        journal = Journal(path)
        deaths.extend(journal.all("session_ended"))
        for r in journal.all("node", type="error_output"):
            assert r["error"] in ("signal", "exit", "exec", "session_died"), (r.members, where)

    Resumer.each(one, range(max(4, MOMENTS // 5)))
    assert deaths


def until_it_sleeps(log, cell, process):
    """The worker that began that cell last; [(cell, worker)] of all that began."""
    end = time.monotonic() + 60
    while True:
        began = [tuple(map(int, line.split())) for line in log.read_text().splitlines()] if log.exists() else []
        if began and began[-1][0] == cell:
            return began[-1][1], began
        assert process.poll() is None and time.monotonic() < end, process.communicate()
        time.sleep(0.01)


COMES_BACK = "The variables of the cells before it come back: those run again first."


@pytest.mark.parametrize("agent", ["root", "root.w"])
@pytest.mark.parametrize("in_cell", [True, False], ids=["in a cell", "between cells"])
def test_a_worker_that_dies_gets_its_variables_back(server, start_rlmflow, command, look, tmp_path, agent, in_cell):
    """Its model goes on by the number of the turn: nothing but the restored session has the variables."""
    log = tmp_path / "log"
    cells = ["state = ['one']", "state.append(await llm_query('a note'))", "state.append(len(state))\nprint(state)",
             *(["import time; time.sleep(1000)"] if in_cell else []),
             "state.append('more')\nprint(state)", "done(repr(state))"]
    story = [f"import os\nwith open({str(log)!r}, 'a') as f: print({i}, os.getpid(), file=f)\n{code}"
             for i, code in enumerate(cells)]
    if not in_cell:
        story[3] = {"reply": story[3], "gate": "later"}
    launch = "r = await launch_subagents([{'query': 'work', 'name': 'w'}])\ndone(r[0])"
    server.set_rules(mind({"go": story} if agent == "root" else {"go": launch, "work": story}))
    args, path = command(server, "--restore", "replay")
    process = start_rlmflow(*args)
    if in_cell:
        worker, began = until_it_sleeps(log, 3, process)
    else:
        worker, began = until_it_sleeps(log, 2, process)
        turns = (agent != "root") + 3 + 2  # that of launch, those before, the note, that which waits
        while len(server.requests) < turns:
            assert process.poll() is None, process.communicate()
            time.sleep(0.01)
    os.kill(worker, signal.SIGKILL)
    until(path, lambda journal: journal.all("session_ended", agent=agent))(process)
    server.release("later")
    out, err = process.communicate(timeout=60)
    run = look(Result(out, err, process.returncode), path)
    assert run.answer == repr(["one", "noted", 2, "more"]), run.stderr
    again = [(i, pid) for i, pid in until_it_sleeps(log, len(cells) - 1, process)[1] if pid != worker]
    assert began == [(i, worker) for i in range(4 if in_cell else 3)]
    assert [i for i, _ in again] == [0, 1, 2, *range(len(began), len(cells))]
    assert len({pid for _, pid in again}) == 1 and len(server.requests) == len(cells) + 1 + (agent != "root")
    told = [text for text in run.seen(agent) if COMES_BACK in text]
    assert len(told) == 1 and run.errors(agent) == (["signal"] if in_cell else []), run.seen(agent)
    assert not [text for text in run.seen(agent) for said in LOST if said in text], run.seen(agent)
    first, second = Journal(path).all("session_opened", agent=agent)
    assert not first["restored"] and second["restored"] == [r["cell"] for r in Journal(path).all(
        "cell_started", agent=agent)[:3]] and first["seed"] == second["seed"]
    assert Journal(path).all("session_ended", agent=agent)[0]["reason"] == "signal"
