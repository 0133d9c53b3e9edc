#!/usr/bin/python3
"""make.py PROGRAM DIRECTORY: writes the small runs that tests/integration/test_format.py keeps readable.

DIRECTORY is new and named by the version of the program. It holds story.script (the scripted model),
corpus.txt (an input), the runs, and expected.json ({run: what it holds}). Everything is named relative
to DIRECTORY, so no path of the machine gets into the runs.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "integration"))
from journal import Journal, cut  # noqa: E402
from program import script_text  # noqa: E402


def cell(code):
    return f"```repl\n{code}\n```"


STORY = [
    ({"agent": "root", "turn": 1}, cell(
        "words = INPUTS['corpus'].split()\nprint(len(words), await llm_query('a note'))")),
    ({"agent": "root", "turn": 2}, cell(
        "few = words[:50]\nparts = await launch_subagents([\n"
        "    {'query': 'count', 'name': 'left', 'inputs': {'part': ' '.join(few[:20])}},\n"
        "    {'query': 'count', 'name': 'right', 'inputs': {'part': ' '.join(few[20:])}}])\nprint(parts)")),
    ({"agent": "root", "turn": 3}, cell("print(words[10 ** 9])")),
    ({"agent": "root", "turn": 4}, cell("done(f'{len(words)} words: ' + ' and '.join(parts) + ' \\u00e9\\0\\udc80')")),
    ({"agent": "root.*", "turn": 1}, cell("n = len(INPUTS['part'].split())\nprint(n)")),
    ({"agent": "root.*", "turn": 2}, cell("done(str(n))")),
    ({"turn": 0}, "noted"),
]
# More than 64 KiB and not ASCII, so that it is a blob with a wide form.
CORPUS = " ".join(f"w{i}é" for i in range(10000))
FLAGS = ["--model", "script:story.script", "--python", "python3", "-q"]


def run(program, directory, *words):
    env = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "LANG": "C.UTF-8"}
    subprocess.run([program, *words], cwd=directory, env=env, stdout=subprocess.PIPE, check=False)


def main():
    program, directory = os.path.abspath(sys.argv[1]), Path(sys.argv[2])
    directory.mkdir()
    (directory / "story.script").write_text(script_text(STORY))
    (directory / "corpus.txt").write_text(CORPUS)
    run(program, directory, "run", "count the words", "--input", "corpus=@corpus.txt", *FLAGS, "-o", "answered.rlm")
    run(program, directory, "run", "count the words", "--input", "corpus=@corpus.txt", "--max-iters", "2", *FLAGS,
        "-o", "limited.rlm")
    records = Journal(directory / "answered.rlm").records
    place = next(i for i, r in enumerate(records) if r.kind == "child" and r["name"] == "right")
    place = next(r for r in records[place:] if r.kind == "cell_started")
    cut(directory / "answered.rlm", directory / "stopped.rlm", place.end)
    answer = next(r for r in records if r.kind == "node" and r["type"] == "done_output" and r["agent"] == "root")
    expected = {"answered.rlm": {"reason": "answered", "agents": 3, "nodes": sum(r.kind == "node" for r in records)},
                "limited.rlm": {"reason": "max_iters", "agents": 3},
                "stopped.rlm": {"reason": "", "agents": 3}, "answer": answer["result"]}
    (directory / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")
    for name in ("answered.rlm", "limited.rlm", "stopped.rlm"):
        for blob in (directory / name / "blobs").iterdir():
            if len(blob.name) != 64:  # derived from others
                blob.unlink()
    shutil.rmtree(directory / "__pycache__", ignore_errors=True)


if __name__ == "__main__":
    main()
