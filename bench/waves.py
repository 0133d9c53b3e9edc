"""waves.py BUILD [CHILDREN] [ROUNDS]: bench_waves against the test server, 50 ms to the first byte."""
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests"))
from server.model_server import ModelServer  # noqa: E402

build, *rest = sys.argv[1:]
children = rest[0] if rest else "64"
root = '```repl\nr = await launch_subagents([{"query": "child"}] * %s)\ndone(sum(x == "x" for x in r))\n```' % children
rules = [
    {"match": {"user": "Task: root"}, "reply": root, "first_byte_delay_ms": 50, "chunks": 1000},
    {"match": {"user": "Task: child"}, "reply": '```repl\ndone("x")\n```', "first_byte_delay_ms": 50, "chunks": 1000},
]
with ModelServer(rules=rules) as server:
    sys.exit(subprocess.call([f"{build}/bench/bench_waves", server.base_url, children, *rest[1:]]))
