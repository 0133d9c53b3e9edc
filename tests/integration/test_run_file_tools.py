"""FILE_TOOLS in real runs: they are there in every session, and work on the session's own directory."""

import re

from runs import command, go, look, mind  # noqa: F401

WRITES = r"""
print(write_file("sub/dir/a.txt", "one\ntwo\nthree\n"))
print(append_file("sub/dir/a.txt", "four"))
print(write_file("b.bin", "\udcff\r\n\0é"))
print(edit_file("sub/dir/a.txt", ("two", "TWO"), ("four", "five\r\n")))
for edit in (("nowhere", "x"), ("e", "x")):
    try:
        edit_file("sub/dir/a.txt", ("one", "lost"), edit)
    except ValueError as e:
        print("refused:", e)
print(edit_file("sub/dir/a.txt", ("e\n", "E\n"), replace_all=True))
"""
READS = r"""
print(repr(read_file("b.bin")), ascii(read_file("sub/dir/a.txt")))
print(ls(), ls("sub"), ls("b.bin"))
print(line_count("sub/dir/a.txt"), repr(read_lines("sub/dir/a.txt", 1, 3)))
print(grep("T[WH]"), "|", grep("E", "sub", max_results=1), "|", grep("no such"))
for missing in (read_file, ls, line_count, grep_missing := lambda p: grep("x", p)):
    try:
        missing("missing")
    except FileNotFoundError as e:
        print("missing:", e.filename)
r, = await launch_subagents([{"query": "look"}])
done(r)
"""
CHILD = 'write_file("child.txt", read_lines("sub/dir/a.txt", 0, 1))\ndone("|".join(ls()))'


def test_they_read_and_write_files_of_the_working_directory(go, tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    run = go(mind({"go": [WRITES, READS], "look": CHILD}), "--cwd", folder)
    assert (run.code, run.answer) == (0, "b.bin|child.txt|sub"), run.stderr
    assert run.errors() == [], run.seen()
    assert (folder / "sub" / "dir" / "a.txt").read_bytes() == b"onE\nTWO\nthreE\nfive\r\n"
    assert (folder / "b.bin").read_bytes() == b"\xff\r\n\0\xc3\xa9"
    assert (folder / "child.txt").read_bytes() == b"onE"
    assert run.seen()[0].splitlines() == [
        "Wrote 14 bytes to sub/dir/a.txt", "Appended 4 bytes to sub/dir/a.txt", "Wrote 6 bytes to b.bin",
        "Applied 2 edits to sub/dir/a.txt",
        "refused: edit_file: anchor not found in sub/dir/a.txt: 'nowhere'",
        "refused: edit_file: anchor appears 3x in sub/dir/a.txt: 'e'; make it longer or pass replace_all=True",
        "Applied 1 edits to sub/dir/a.txt"]
    assert run.nodes()[-1]["output"].splitlines() == [
        r"'\udcff\r\n\x00é' 'onE\nTWO\nthreE\nfive\r\n'",
        "['b.bin', 'sub'] ['sub/dir'] ['b.bin']",
        r"4 'TWO\nthreE'",
        "sub/dir/a.txt:2: TWO | sub/dir/a.txt:1: onE | ",
        *["missing: missing"] * 4]


def test_the_prompt_names_those_that_a_model_would_miss(go, server):
    go(mind({"go": "done(1)"}))
    prompt = server.requests[0].body["messages"][0]["content"]
    for name in ("read_file", "read_lines", "line_count", "write_file", "append_file", "edit_file", "ls", "grep"):
        assert re.search(rf"\b{name}\b", prompt), name
