"""Other interpreters of the process, interpreters without their lock, forks of the process, and its end: each in a
process of its own, which ends in time and leaves no worker behind."""
import os
import subprocess
import sys
import time
import uuid

import pytest
from conftest import PYTHON, SITE

TIMEOUT_S = 60  # of what would not end

# What the programs have: a run that is alive, from a thread of its own, until `release` is set.
PRELUDE = '''
import os, sys, threading, time
sys.path.insert(0, {site!r})

def runtime(kind):
    import rlmflow
    if kind == "local":
        return rlmflow.LocalRuntime()
    return rlmflow.SubprocessRuntime(python={python!r}, env={{"MARK": {mark!r}}})

class Client:
    """The first turn opens the session; the second waits for `release`, or is a cell that works on."""
    def __init__(self, last="done('x')"):
        self.asked, self.release, self.last = threading.Event(), threading.Event(), last

    def chat(self, messages):
        if len(messages) < 4:
            return "```repl\\nprint(1)\\n```"
        self.asked.set()
        self.release.wait()
        return "```repl\\n" + self.last + "\\n```"

class Alive(threading.Thread):
    def __init__(self, kind, **options):
        import rlmflow
        super().__init__(daemon=True)
        self.client = Client(**options)
        class Flow(rlmflow.Flow):
            async def exec_turn(self, graph, code, **known):
                self.graph = graph
                return await super().exec_turn(graph, code, **known)

        self.flow = Flow(self.client, runtime=runtime(kind))
        self.answer = None
        self.start()
        self.client.asked.wait()

    def run(self):
        self.answer = self.flow.run("q")

    def finish(self):
        self.client.release.set()
        self.join()
        return self.answer
'''


def marked(mark):
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/environ", "rb") as environ:
                if f"MARK={mark}".encode() in environ.read().split(b"\0"):
                    found.append(entry)
        except OSError:
            pass
    return found


def run_program(program, *arguments, code=0):
    """What it prints. It ends with this code, in time, silently, and no worker of its is left."""
    mark = uuid.uuid4().hex
    prelude = PRELUDE.format(site=str(SITE), python=PYTHON, mark=mark)
    ran = subprocess.run([sys.executable, "-c", prelude + program, *arguments], capture_output=True, text=True,
                         timeout=TIMEOUT_S)
    assert (ran.returncode, ran.stderr) == (code, ""), ran.stdout + ran.stderr
    until = time.monotonic() + TIMEOUT_S
    while marked(mark) and time.monotonic() < until:
        time.sleep(0.01)
    assert not marked(mark)
    return ran.stdout


both = pytest.mark.parametrize("kind", ["local", "subprocess"])

# ---- interpreters

INNER = '''
import _xxsubinterpreters
{first}
inner = _xxsubinterpreters.create(isolated={isolated})
_xxsubinterpreters.run_string(inner, """
import os, sys
sys.path.insert(0, %r)
try:
    import rlmflow
except ImportError as e:
    os.write(1, str(e).encode())
""" % sys.path[0])
_xxsubinterpreters.destroy(inner)
print("", Alive("local").finish())
'''


@pytest.mark.parametrize("isolated", [True, False])
@pytest.mark.parametrize("first", ["", "import rlmflow"])
def test_a_sub_interpreter_is_told_that_it_cannot(first, isolated):
    """Also where the main interpreter has it already, which goes on."""
    told = run_program(INNER.format(first=first, isolated=isolated))
    assert told == ("rlmflow has one engine a process, for the main interpreter: no sub-interpreter can import it x\n")


LOCK = '''
sys._is_gil_enabled = lambda: sys.argv[1] == "on"
try:
    import rlmflow
    print("imported")
except ImportError as e:
    print(e)
'''


def test_an_interpreter_that_runs_without_its_lock_is_refused():
    assert run_program(LOCK, "off").startswith("rlmflow needs the interpreter's lock (the GIL)")
    assert run_program(LOCK, "on") == "imported\n"


AGAIN = '''
alive = Alive(sys.argv[1])
old = sys.modules["rlmflow"]
for name in [name for name in sys.modules if name.startswith("rlmflow")]:
    del sys.modules[name]
import rlmflow
assert rlmflow is not old and rlmflow._engine.Run is old._engine.Run
print(Alive(sys.argv[1]).finish(), alive.finish())
'''


@both
def test_the_package_may_be_imported_anew(kind):
    assert run_program(AGAIN, kind) == "x x\n"


INTERRUPTED = '''
class Interrupts:
    """Interrupts the import of the n-th module."""
    n = 0

    def find_spec(self, name, path, target=None):
        if name.startswith("rlmflow"):
            self.n += 1
            if self.n == self.at:
                raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupts())
for sys.meta_path[0].at in range(1, 100):
    sys.meta_path[0].n = 0
    try:
        import rlmflow
        break
    except KeyboardInterrupt:
        for name in [name for name in sys.modules if name.startswith("rlmflow")]:
            if sys.argv[1] == "fresh":
                del sys.modules[name]
print(sys.meta_path.pop(0).at > 4, Alive("local").finish())
'''


@pytest.mark.parametrize("left", ["fresh", "as they are"])
def test_an_import_that_is_interrupted_can_be_done_again(left):
    assert run_program(INTERRUPTED, left) == "True x\n"


# ---- forks

FORKED = '''
import gc, rlmflow
alive = Alive(sys.argv[1])
graph = alive.flow.graph
child = os.fork()
if child == 0:
    for use in (lambda: alive.flow.run("q"), lambda: graph.nodes, lambda: graph.to_html(),
                lambda: rlmflow.Flow(Client(), runtime=runtime("local")).run("q"), lambda: rlmflow.Graph.load("/")):
        try:
            use()
            print("used")
        except RuntimeError as e:
            print(str(e).partition(":")[0])
    del graph, alive.flow, alive
    gc.collect()
    sys.exit(7)
_, status = os.waitpid(child, 0)
print(os.waitstatus_to_exitcode(status), len(graph.nodes) > 1, alive.finish())
'''


@both
def test_a_forked_child_is_told_that_it_cannot_and_its_parent_goes_on(kind):
    told = run_program(FORKED, kind).splitlines()
    assert told[:-1] == ["rlmflow cannot be used in a process that was forked from one that uses it"] * 5
    assert told[-1] == "7 True x"


TOOLS = '''
import multiprocessing, rlmflow

def in_child():
    os.write(1, b"child ")

@rlmflow.tool("forks", proxy=True)
def fork() -> str:
    if sys.argv[2] == "multiprocessing":
        process = multiprocessing.get_context("fork").Process(target=in_child)
        process.start()
        process.join()
        return str(process.exitcode)
    pid = os.fork()
    if pid == 0:
        in_child()
        os._exit(0)
    return str(os.waitpid(pid, 0)[1])

class Forks:
    def chat(self, messages):
        return "```repl\\ndone(fork())\\n```"

flow = rlmflow.Flow(Forks(), runtime=runtime(sys.argv[1]), tools=[fork])
print(flow.run("q"), flow.run("q"))
'''


@both
@pytest.mark.parametrize("how", ["multiprocessing", "fork"])
def test_a_tool_may_fork(kind, how):
    assert run_program(TOOLS, kind, how) == "child child 0 0\n"


BEFORE = '''
import rlmflow
child = os.fork()
print(Alive(sys.argv[1]).finish() + "\\n", end="", flush=True)  # in one piece: both write
if child:
    print(os.waitpid(child, 0)[1])
'''


@both
def test_a_fork_before_the_first_use_leaves_both_free_to_use_it(kind):
    assert run_program(BEFORE, kind) == "x\nx\n0\n"


# ---- the end

ENDS = {
    "return": "",
    "exit": "sys.exit()",
    "_exit": "os._exit(0)",
    "slowly": "",
}
LAST = {"client": "", "working": "while True: pass", "waiting": "import time; time.sleep(3600)",
        "awaiting": "import asyncio; await asyncio.sleep(3600)"}
ENDING = '''
if "slowly" in sys.argv:
    import atexit
    atexit.register(time.sleep, 0.2)  # when the engine has stopped, its threads live on
alive = Alive(sys.argv[1], last=sys.argv[2] or "done('x')")
if sys.argv[2]:
    alive.client.release.set()
    time.sleep(0.2)  # for the cell to begin; it may be late, and then another moment is tried
print("ends", flush=True)
'''


@both
@pytest.mark.parametrize("last", LAST)
@pytest.mark.parametrize("how", ENDS)
def test_the_process_ends_while_a_run_is_alive(kind, last, how):
    assert run_program(ENDING + ENDS[how], kind, LAST[last], how) == "ends\n"


LATE = '''
import atexit

def late():
    try:
        rlmflow.Flow(Client(), runtime=runtime(sys.argv[1])).run("q")
    except RuntimeError as e:
        print(e)

atexit.register(late)
import rlmflow
print(Alive(sys.argv[1]).finish())
'''


@both
def test_a_run_that_begins_after_the_engine_has_stopped_is_refused(kind):
    assert run_program(LATE, kind) == "x\nrlmflow has stopped: the process is ending\n"
