"""resume.py BUILD [NODES=10000]: how long a run of many nodes that was killed takes to its first new step.

Two runs by the scripted model (no latency): one agent of NODES / 3 turns, and a root with NODES / 10
children of three turns each, 64 at a time. The journal is cut, as by a kill, behind the first output of a
cell from the NODESth node on, so that this agent's next step is to ask its model. Then `rlmflow
resume`, with fresh sessions (the default here) and with `--restore replay`: from the start of the process until
it has built the run, to the first new node, to the first new reply, and to the first new end of a cell,
by the clock that the records carry. The last two stand behind the starting of a worker for every agent that
was under way, and with replay the last one behind the cells that run again: their number and how long
they had taken in the first run are shown. Beside it: the time in which `rlmflow view` loads and shows
the same journal. ROUNDS by turns, medians. Runs lie in TMPDIR.
"""
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "integration"))
from journal import Journal, cut  # noqa: E402

rlmflow = pathlib.Path(sys.argv[1]).resolve() / "rlmflow"
NODES = int(sys.argv[2]) if len(sys.argv) > 2 else 10000
ROUNDS = 5
MODES = ("fresh", "replay")
STEPS = {  # kinds of records and of nodes
    "built": ("resumed",),
    "node": ("llm_output", "exec_action", "exec_output", "error_output", "done_output"),
    "reply": ("llm_output",),
    "end": ("exec_output", "done_output"),
}
SPARE_CHILDREN = 64  # that are under way where the journal is cut
work = pathlib.Path(tempfile.mkdtemp(prefix="rlmflow-bench-"))

ONE = "@reply turn=1-%d\n```repl\nprint(1)\n```\n@reply\n```repl\ndone(1)\n```\n" % (NODES // 3 + 1)
MANY = """@reply agent=root turn=1
```repl
r = await launch_subagents([{"query": "q"}] * %d)
done(len(r))
```
@reply agent=root
```repl
done("went on")
```
@reply turn=1-2
```repl
print(1)
```
@reply
```repl
done("x")
```
""" % (NODES // 10 + SPARE_CHILDREN)


def record(name, text):
    """Makes the run and cuts it. Returns its path and how long each of its cells took, in ms."""
    script, run = work / f"{name}.script", work / f"{name}.rlm"
    script.write_text(text)
    subprocess.run([rlmflow, "run", "go", "--model", f"script:{script}", "-o", run, "--quiet",
                    "--workers", "64", "--max-iters", str(NODES), "--max-agents", str(NODES),
                    "--python", "/usr/bin/python3"], check=True, stdout=subprocess.DEVNULL)
    journal = Journal(run)
    nodes = journal.all("node")
    end = next(i for i in range(NODES - 1, len(nodes)) if nodes[i]["type"] == "exec_output")
    nodes = nodes[:end + 1]
    took, began = {}, {}
    for node in nodes:
        agent = node["agent"]
        if node["type"] == "exec_action":
            began[agent] = node["t"]
        elif agent in began:
            took.setdefault(agent, []).append((node["t"] - began.pop(agent)) / 1000)
    return cut(run, work / f"{name}-cut.rlm", nodes[-1].end), took


def resume(run, took, mode):
    """Milliseconds to the first of each of STEPS; the number of cells that ran again; what they had taken."""
    copy = shutil.copytree(run, work / "again.rlm")
    cut_at = (run / "journal").stat().st_size
    start_us = time.time() * 1e6
    subprocess.run([rlmflow, "resume", copy, "--restore", mode, "--quiet"], check=True,
                   stdout=subprocess.DEVNULL)
    new = [r for r in Journal(copy).records if r.end > cut_at]
    shutil.rmtree(copy)
    first = {step: min(r["t"] for r in new if (r.get("type") or r.kind) in kinds)
             for step, kinds in STEPS.items()}
    again = [(r["agent"], cell) for r in new if r.kind == "session_opened" for cell in r["restored"]]
    # The last cell of an agent may have been under way: it had not ended.
    had_taken = sum(took[agent][cell - 1] for agent, cell in again if cell <= len(took.get(agent, [])))
    return *((first[step] - start_us) / 1000 for step in STEPS), len(again), had_taken


def view(run):
    start = time.perf_counter()
    subprocess.run([rlmflow, "view", run], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - start


try:
    for what, name, text in (("one agent", "one", ONE), ("many agents", "many", MANY)):
        run, took = record(name, text)
        rounds = [[view(run), *(resume(run, took, mode) for mode in MODES)] for _ in range(ROUNDS)]
        print(f"{what}, {NODES} nodes, {sum(map(len, took.values()))} cells that had ended: "
              f"viewing it {statistics.median(r[0] for r in rounds) * 1e3:.0f} ms")
        for i, mode in enumerate(MODES, 1):
            built, node, reply, end, again, had_taken = (statistics.median(column)
                                                         for column in zip(*(r[i] for r in rounds)))
            print(f"  --restore {mode:6}: built after {built:.0f} ms, first new node {node:.0f} ms, reply "
                  f"{reply:.0f} ms, end of a cell {end:.0f} ms; {again:.0f} cells ran again, which had taken "
                  f"{had_taken:.0f} ms", flush=True)
finally:
    shutil.rmtree(work)
