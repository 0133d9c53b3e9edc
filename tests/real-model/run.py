#!/usr/bin/python3
"""Asks a real model the questions of questions.json and says what it solved.

    ./run.py --program ../../build/rlmflow --base-url http://127.0.0.1:8080/v1 --model NAME

The expected values are computed by a shell command over the same files, so that they hold on any
Debian machine. An answer counts when every line that the command printed stands in it as a whole
word or number (digits may be grouped by commas, a time may end in Z) and it is no longer than
--longest characters.
The runs are kept in --keep, for `rlmflow view RUN --agent root`. Not part of `make check`: a model
is needed, and its answers are not ours to promise.
"""
import argparse
import concurrent.futures
import json
import os
import re
import subprocess
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))


def expected(question):
    done = subprocess.run(["bash", "-c", question["expect"]], cwd=HERE, check=True,
                          stdout=subprocess.PIPE, universal_newlines=True)
    values = done.stdout.split("\n")[:-1]
    if not values:
        raise SystemExit("%s: the command of `expect` prints nothing here" % question["name"])
    return [value.strip() for value in values]


def fits(answer, values, longest):
    text = re.sub(r"(?<=\d),(?=\d{3}(?!\d))|(?<=:\d\d)Z", "", answer)
    return len(answer) <= longest and all(
        re.search(r"(?<![\w.-])%s(?!\w|\.\d)" % re.escape(value), text, re.I) for value in values)


def ask(question, args):
    path = os.path.join(args.keep, question["name"] + ".rlm")
    command = [args.program, "run", question["question"], "--base-url", args.base_url, "--model",
               args.model, "--temperature", "0", "--max-iters", str(args.max_iters), "--json", "-o",
               path]
    for given in question["inputs"]:
        command += ["--input", given]
    began = time.monotonic()
    done = subprocess.run(command, cwd=HERE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          stdin=subprocess.DEVNULL)
    seconds = time.monotonic() - began
    lines = done.stdout.decode("utf-8", "replace").splitlines()
    result = json.loads(lines[-1]) if lines else {}
    if result.get("type") != "result":
        result = {"reason": "exit %d" % done.returncode, "answer": done.stderr.decode()[-300:]}
    turns = sum(1 for line in lines if '"type":"llm_output"' in line.replace(" ", ""))
    usage = result.get("usage", {})
    answer = result.get("answer") or ""
    values = expected(question)
    return {"name": question["name"], "reason": result["reason"], "answer": answer,
            "expected": values, "turns": turns, "calls": usage.get("calls", 0),
            "agents": result.get("agents", 0), "seconds": seconds,
            "tokens": usage.get("input_tokens", 0) + usage.get("output_tokens", 0),
            "output_tokens": usage.get("output_tokens", 0),
            "solved": result["reason"] == "answered" and fits(answer, values, args.longest)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--program", required=True)
    parser.add_argument("--base-url", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--max-iters", type=int, default=6)
    parser.add_argument("--longest", type=int, default=300)
    parser.add_argument("--parallel", type=int, default=2)
    parser.add_argument("--keep", help="a new directory for the runs; else a temporary one")
    parser.add_argument("only", nargs="*", help="names of questions")
    args = parser.parse_args()
    args.program = os.path.abspath(args.program)
    args.keep = os.path.abspath(args.keep) if args.keep else tempfile.mkdtemp()
    os.makedirs(args.keep, exist_ok=True)
    with open(os.path.join(HERE, "questions.json")) as file:
        questions = [q for q in json.load(file) if not args.only or q["name"] in args.only]
    rows = []
    with concurrent.futures.ThreadPoolExecutor(args.parallel) as pool:
        for row in pool.map(lambda question: ask(question, args), questions):
            rows.append(row)
            print("%-18s %-6s %-9s turns %2d calls %2d agents %d tokens %6d seconds %4d  %s%s" % (
                row["name"], "ok" if row["solved"] else "WRONG", row["reason"], row["turns"],
                row["calls"], row["agents"], row["tokens"], row["seconds"],
                " ".join(row["answer"].split())[:100],
                "" if row["solved"] else "  (expected %s)" % " ".join(row["expected"])), flush=True)
    n = len(rows)
    print("solved %d of %d, turns %.1f, tokens %d (output %d), seconds %.0f per question; runs in %s" % (
        sum(row["solved"] for row in rows), n, sum(row["turns"] for row in rows) / n,
        sum(row["tokens"] for row in rows) / n, sum(row["output_tokens"] for row in rows) / n,
        sum(row["seconds"] for row in rows) / n, args.keep))
    with open(os.path.join(args.keep, "rows.json"), "w") as file:
        json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
