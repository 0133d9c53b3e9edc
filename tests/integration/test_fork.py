"""A run goes on from a node of another one, or of its own after a rewind."""

import subprocess
import time

import pytest
from journal import Journal
from runs import command, go, look, mind  # noqa: F401
from test_resume import ANSWER, INPUT, bought, check_graph, story

COUNT = [
    "import random\nlucky = random.random()\nseen = [1]\nprint(lucky)",
    "seen.append(2)\nprint(seen)",
    "seen.append(3)\nprint(seen)",
    "print(seen)\ndone(f'{seen} {await llm_query(\"say\")}')",
]


def tree(path):
    """Every file of a run with its bytes."""
    return {p.relative_to(path): p.read_bytes() for p in sorted(path.rglob("*")) if p.is_file()}


def asked_in(server):
    return len(server.requests)


@pytest.fixture
def whole(go):
    run = go(story(), "--input", INPUT, "--workers", "4")
    assert run.answer == ANSWER, run.stderr
    return run


@pytest.fixture
def count(go):
    run = go(mind({"go": COUNT}))
    assert run.answer == "[1, 2, 3] noted", run.stderr
    return run


@pytest.fixture
def fork(tmp_path, server, run_rlmflow, look):
    """fork(run, node, rules, *arguments): the new run."""
    numbers = iter(range(10**6))

    def start(run, node, rules, *arguments, restore="replay"):
        path = tmp_path / f"fork{next(numbers)}.rlm"
        server.reset()
        server.set_rules(rules)
        result = run_rlmflow("run", "--from", f"{run.path}@{node}", "-o", path, "--restore", restore,
                             *arguments)
        return look(result, path)

    return start


@pytest.fixture
def rewind(server, run_rlmflow, look):
    """rewind(run, node, rules): rewound in place, and resumed."""
    def start(run, node, rules, restore="replay"):
        result = run_rlmflow("rewind", f"{run.path}@{node}")
        assert result.code == 0, result.stderr
        server.reset()
        server.set_rules(rules)
        return look(run_rlmflow("resume", run.path, "--restore", restore), run.path)

    return start


def test_fork_at_every_node_gives_the_same_answer(whole, fork, server, run_rlmflow):
    nodes = [r for r in Journal(whole.path).records if r.kind == "node"]
    before, total = tree(whole.path), len(bought(whole.path))
    for node in nodes[:-1]:
        run = fork(whole, node["id"], story())
        assert run.answer == ANSWER, (node["id"], node["type"], run.stderr)
        check_graph(run)
        kept = [r for r in Journal(run.path).records if r.position <= node.position]
        assert [r.members for r in kept] == [r.members for r in Journal(whole.path).records][:len(kept)]
        assert asked_in(server) == total - sum(
            r.kind == "node" and r["type"] == "llm_output" or r.kind == "settle" and "reply" in r.members
            for r in kept), (node["id"], node["type"])
        assert run.events[0]["graph_id"] != whole.events[0]["graph_id"]
    assert run_rlmflow("replay", run.path, "--execute").code == 0
    assert tree(whole.path) == before
    last = run_rlmflow("run", "--from", f"{whole.path}@{nodes[-1]['id']}", "-o", whole.path.with_name("x.rlm"))
    assert last.code == 2 and "ended with an answer" in last.stderr
    assert not whole.path.with_name("x.rlm").exists()


def test_places_by_agent_and_number(whole, fork):
    root = whole.nodes()
    by_turn = fork(whole, "root:turn2", story())
    second = [i for i, n in enumerate(root) if n["type"] == "llm_output"][2] - 1
    assert [n["id"] for n in by_turn.nodes()][:second + 1] == [n["id"] for n in root[:second + 1]]
    assert by_turn.nodes()[second + 1]["id"] != root[second + 1]["id"]
    assert by_turn.answer == ANSWER
    in_child = fork(whole, "root.w1:2", story())
    assert [n["id"] for n in in_child.nodes("root.w1")][:3] == [n["id"] for n in whole.nodes("root.w1")][:3]
    assert in_child.answer == ANSWER
    assert fork(whole, "turn1", story()).answer == fork(whole, "4", story()).answer == ANSWER


def test_another_reply_goes_another_way(count, fork):
    other = mind({"go": COUNT[:2] + ["done(seen + ['other'])"]})
    run = fork(count, "turn2", other)
    assert run.answer == "[1, 2, 'other']", run.stderr
    assert not any("printed something else" in n["content"] for n in run.nodes())  # the seed is the old one


def test_a_query_and_a_model_and_caps_of_its_own(count, fork, server):
    def reply(request):
        assert request.messages[-1][1].endswith("now only say two"), request.messages
        return "done(seen[-1])"

    run = fork(count, "turn2", mind({"go": reply}), "now only say two", "--model", "other-model",
               "--max-budget", "1000k")
    assert run.answer == "2", run.stderr
    assert {r.body["model"] for r in server.requests} == {"other-model"}
    assert Journal(run.path).records[-1]["reason"] == "answered"
    resumed = Journal(run.path).one("resumed")
    assert resumed["options"]["limits"]["max_budget"] == 1000000
    # behind the answer, too
    again = fork(count, str(len(count.nodes()) - 1), mind({"go": "done(seen)"}), "and now?")
    assert again.answer == "[1, 2, 3]", again.stderr
    assert [n["content"] for n in again.nodes(type="user_query")][-1] == "and now?"


def test_without_its_variables_the_model_is_told(count, fork):
    told = []

    def reply(request):
        told.append(request.messages[-1][1])
        return "done('x')"

    fork(count, "turn2", mind({"go": reply}), restore="auto")
    assert "gone: lucky, random, seen" in told[0], told


def test_what_was_under_way_elsewhere_is_not_charged(count, fork):
    """A call that was in flight where the copy ends is the other run's."""
    node = count.nodes(type="exec_action")[-1]
    run = fork(count, node["id"], mind({"go": COUNT}))
    assert run.answer == "[1, 2, 3] noted", run.stderr
    assert run.usage["calls"] == count.usage["calls"] == 5


def test_rewind_at_every_node_then_resume(whole, rewind, run_rlmflow, server):
    """In place, again and again: the same answer, and what was spent stays counted."""
    asked = len(bought(whole.path))
    total = asked
    agents = ["root", "root.w0", "root.w1", "root.child0", "root.child1"]
    for agent in agents:
        for seq in range(len(whole.nodes(agent)) - 1, -1, -1):
            if agent == "root" and seq == len(whole.nodes()) - 1:
                continue
            run = rewind(whole, f"{agent}:{seq}", story())
            assert run.answer == ANSWER, (agent, seq, run.stderr)
            check_graph(run)
            total += asked_in(server)
            assert run.usage["calls"] == total, (agent, seq)
    replayed = run_rlmflow("replay", whole.path, "--execute")
    assert replayed.code == 0, replayed.stderr


def test_rewind_brings_the_variables_of_that_point(count, rewind):
    run = rewind(count, "root:turn2", mind({"go": COUNT[:2] + ["print(seen)", "done(seen)"]}))
    assert run.seen()[2] == "[1, 2]", run.seen()
    assert run.answer == "[1, 2]"
    again = rewind(run, "root:turn1", mind({"go": COUNT[:1] + ["done([seen, lucky])"]}))
    assert again.answer == f"[[1], {count.seen()[0].strip()}]"


def test_rewind_into_a_running_cell(whole, rewind, server):
    """To where the children of a launch are waited for: they have answered, and the cell goes on."""
    node = whole.nodes(type="supervising_output")[0]
    run = rewind(whole, node["id"], story())
    assert run.answer == ANSWER, run.stderr
    assert [n["id"] for n in run.nodes("root.w0")] == [n["id"] for n in whole.nodes("root.w0")]
    fresh = rewind(run, node["id"], mind({"go": ["done(RECOVERED)"], "work": "done('new')"}), restore="fresh")
    assert fresh.answer == "{'w0': '15:noted', 'w1': '15:noted'}", fresh.stderr


def test_a_run_that_is_written_is_not_rewound(server, command, run_rlmflow, rlmflow_program):
    args, path = command(server)
    server.set_rules(mind({"go": "import time\ntime.sleep(600)"}))
    process = subprocess.Popen([rlmflow_program, *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        while not (path / "journal").exists() or not Journal(path).all("cell_started"):
            time.sleep(0.05)
        result = run_rlmflow("rewind", f"{path}@0")
        assert result.code != 0 and "in use" in result.stderr
        copy = path.with_name("copy.rlm")  # to copy it is possible
        server.set_rules(mind({"go": "done('free')"}))
        forked = run_rlmflow("run", "--from", f"{path}@0", "-o", copy)
        assert forked.stdout == "free\n", forked.stderr
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("place", ["", "@", "@x", "RUN", "RUN@", "RUN@n_0", "RUN@root", "RUN@root:99",
                                   "RUN@root:turn0", "RUN@root:turn-1", "RUN@nobody:0", "RUN@-1",
                                   "RUN@99999999999999999999", "RUN@\n", "RUN@../../x", "nowhere@0",
                                   "RUN@root:" + "9" * 5000])
def test_hostile_places(count, tmp_path, run_rlmflow, place):
    place = place.replace("RUN", str(count.path))
    before = tree(count.path)
    new = tmp_path / "new.rlm"
    forked = run_rlmflow("run", "--from", place, "-o", new)
    rewound = run_rlmflow("rewind", place)
    for result in forked, rewound:
        assert result.code in (1, 2) and result.stderr.startswith("rlmflow: "), result.stderr
        assert not result.stdout
    assert not new.exists() and tree(count.path) == before


def test_refusals_leave_nothing_behind(count, tmp_path, run_rlmflow):
    new = tmp_path / "new.rlm"
    start = ["run", "--from", f"{count.path}@turn1", "-o", new]
    for flags, says in ((["--input", "a=b"], "--input"), (["--schema", "x"], "--schema"),
                        (["--continue", count.path], "--continue"), ([""], "empty"),
                        (["--model", "script:/nowhere"], "nowhere")):
        result = run_rlmflow(*start, *flags)
        assert result.code in (1, 2) and says in result.stderr, (flags, result.stderr)
        assert not new.exists(), flags
    new.mkdir()
    result = run_rlmflow(*start)
    assert result.code == 2 and "new.rlm exists already" in result.stderr and list(new.iterdir()) == []
    action = count.nodes(type="exec_action")[0]
    result = run_rlmflow("run", "more", "--from", f"{count.path}@{action['id']}", "-o", tmp_path / "y.rlm")
    assert result.code == 2 and "under way" in result.stderr and not (tmp_path / "y.rlm").exists()


def test_large_values_are_shared(go, fork, tmp_path):
    code = ["big = INPUTS['text'] + 'x' * 100000\nprint(len(big))", "done(len(big))"]
    file = tmp_path / "big.txt"
    file.write_text("é" * 200000)
    run = go(mind({"go": code}), "--input", f"text=@{file}")
    file.unlink()
    assert run.answer == "300000", run.stderr
    copy = fork(run, "turn1", mind({"go": code}))
    assert copy.answer == "300000", copy.stderr
    names = [p.name for p in (run.path / "blobs").iterdir() if "." not in p.name]
    assert names
    for name in names:
        assert (run.path / "blobs" / name).stat().st_ino == (copy.path / "blobs" / name).stat().st_ino
