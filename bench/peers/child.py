"""child.py ADAPTER VARIANT FIGURE AMOUNT [SITE]: one figure of one engine, in a process of its own.

Does a run of one turn, so that all is loaded, prints "ready", waits for a line, measures, and prints the
outcome as JSON.

An adapter is a module with `one(variant, reply)`, `wide(variant, children, reply)` and `big(variant, text,
reply)`: each makes a function that does a run and gives its answer. `reply(text)` is what the adapter's
client calls for a turn, with the text that the model is shown; what it gives is the code of a cell, which the
client puts into the fence its engine knows. `LAST` is the code that ends a run with the answer x, `LENGTH`
that which answers the length of the text, `root(children)` that which asks the children "child-0",
"child-1"... and answers how many of their answers have "<0>", "<1>"... in them. `HOW`: how many children run
at once."""
import importlib.util
import json
import re
import resource
import statistics
import sys
import time

TURNS = 11
LINE = "The quick brown fox jumps over the lazy dog.\n"


class Replies:
    """Replies without latency, and when they were asked for."""

    def __init__(self, code):
        self.code, self.times = code, []

    def __call__(self, text=""):
        self.times.append(time.perf_counter())
        return self.code(len(self.times), text)


def timed(run, replies):
    replies.times.clear()
    start = time.perf_counter()
    answer = run()
    return time.perf_counter() - start, replies.times[0] - start, answer


def turns(adapter, variant, seconds):
    """One-turn runs for as long as that, then the turns of longer runs, from one model call to the next."""
    one = Replies(lambda n, text: adapter.LAST)
    many = Replies(lambda n, text: adapter.LAST if n == TURNS else f"print('y', {n})")
    yield
    took = {}
    for what, replies in (("one", one), ("turn", many)):
        run, times = adapter.one(variant, replies), []
        assert timed(run, replies)[2] == "x"  # what only the first run of an engine does is not counted
        stop = time.perf_counter() + seconds
        while len(times) < 5 or time.perf_counter() < stop and len(times) < 2000:
            whole, _, answer = timed(run, replies)
            assert answer == "x" and len(replies.times) == (1 if what == "one" else TURNS)
            at = replies.times
            times += [whole] if what == "one" else [later - earlier for earlier, later in zip(at, at[1:])]
        took[what] = {"median": statistics.median(times), "best": min(times), "count": len(times)}
    yield took


def wide(adapter, variant, children):
    """The client reads a child's number in its query and the child answers it; the root counts them."""
    def code(n, text):
        number = re.search(r"child-(\d+)", text)
        return adapter.LAST.replace("x", f"<{number[1]}>") if number else adapter.root(children)

    replies = Replies(code)
    run = adapter.wide(variant, children, replies)
    yield
    whole, _, answer = timed(run, replies)
    yield {"seconds": whole, "failures": children - int(answer), "how": adapter.HOW}


def big(adapter, variant, mib):
    text = LINE * ((mib << 20) // len(LINE))
    replies = Replies(lambda n, shown: adapter.LENGTH)
    run = adapter.big(variant, text, replies)
    yield
    whole, first, answer = timed(run, replies)
    assert int(answer) == len(text), answer
    yield {"first": first, "seconds": whole}


def main(path, variant, figure, amount, site=None):
    if site:
        sys.path.insert(0, site)
    memory = int(re.search(r"MemTotal: *(\d+)", open("/proc/meminfo").read())[1]) << 10
    resource.setrlimit(resource.RLIMIT_AS, (memory * 3 // 4, resource.RLIM_INFINITY))
    spec = importlib.util.spec_from_file_location("adapter", path)
    adapter = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(adapter)
    out, sys.stdout = sys.stdout, sys.stderr  # engines that print do so elsewhere
    assert adapter.one(variant, Replies(lambda n, text: adapter.LAST))() == "x"
    steps = {"turns": turns, "wide": wide, "big": big}[figure](adapter, variant, json.loads(amount))
    next(steps)
    print("ready", file=out, flush=True)
    sys.stdin.readline()
    print(json.dumps(next(steps)), file=out, flush=True)


main(*sys.argv[1:])
