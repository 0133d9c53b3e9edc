"""python_turns.py [SITE] [RUNS]: what a run costs from Python with a client that answers at once.

SITE is a directory with the package (build/python/site after the tests have run), else the installed one is taken.
Prints medians and minima: a run of one turn, each further turn, and 1,000 children of which 64 live at once."""
import statistics
import sys
import time

if len(sys.argv) > 1:
    sys.path.insert(0, sys.argv[1])
import rlmflow  # noqa: E402

RUNS = int(sys.argv[2]) if len(sys.argv) > 2 else 200
TURNS = 11


def block(code):
    return f"```repl\n{code}\n```"


class Client:
    """The last turn of `turns` gives the answer."""

    def __init__(self, turns=1):
        self.turns = turns

    def chat(self, messages):
        turn = len(messages) // 2
        return block("done('x')" if turn == self.turns else f"print('y', {turn})")


class AsyncClient(Client):
    async def chat(self, messages):
        return super().chat(messages)


class Tree:
    def __init__(self, children):
        self.root = block(f"r = await launch_subagents([{{'query': 'child'}}] * {children})\ndone(str(r.count('x')))")

    async def chat(self, messages):
        return block("done('x')") if "child" in messages[1]["content"] else self.root


def time_runs(flow, runs):
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        assert flow.run("q") == "x"
        times.append(time.perf_counter() - start)
    return times


def show(what, times, unit=1e3):
    print(f"{what:44} median {statistics.median(times) * unit:8.3f} ms, best {min(times) * unit:8.3f} ms")


def main():
    for runtime in (rlmflow.LocalRuntime(), rlmflow.SubprocessRuntime(spare=4)):
        name = type(runtime).__name__
        for client in (Client, AsyncClient):
            one = time_runs(rlmflow.Flow(client(), runtime=runtime), RUNS)
            many = time_runs(rlmflow.Flow(client(TURNS), runtime=runtime), max(RUNS // 10, 5))
            show(f"{name}, {client.__name__}: one turn", one)
            show(f"{name}, {client.__name__}: a further turn",
                 [(t - statistics.median(one)) / (TURNS - 1) for t in many])
    for children in (200, 1000):
        flow = rlmflow.Flow(Tree(children), runtime=rlmflow.LocalRuntime(), max_agents=2000, max_live=64, workers=64)
        start = time.perf_counter()
        answer = flow.run("q")
        print(f"LocalRuntime: {children} children, 64 at a time {'':8} {time.perf_counter() - start:.3f} s, {answer} answered")


main()
