"""rlmflow demo: a genuine run, whose counts are those of grep and sort."""

import os
import re
import subprocess

import pytest


def counted(folder):
    """{licence: lines} as grep, sort and uniq count them."""
    command = (f"cat {folder}/*/copyright 2>/dev/null | grep -a '^License:' |"
               " sed 's/^License:[[:space:]]*//; s/[[:space:]]*$//' | sort | uniq -c")
    out = subprocess.run(["/bin/sh", "-c", command], env={"LC_ALL": "C", "PATH": "/usr/bin:/bin"},
                         capture_output=True, check=True).stdout.decode("utf-8", "replace")
    return {line[8:]: int(line[:8]) for line in out.splitlines()}


def answer(text):
    """(total, files, names, {licence: lines}) of an answer."""
    first, *rest = text.splitlines()
    total, files, names = map(int, re.match(
        r"(\d+) License: lines in (\d+) files name (\d+) licences:", first).groups())
    return total, files, names, {line[8:]: int(line[:8]) for line in rest}


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "doc"
    for i in range(9):
        (path / f"package{i}").mkdir(parents=True)
        text = "License: GPL-2+\n" * i + "License: MIT\r\nno License: here\nLicense:  Expat  \n"
        (path / f"package{i}" / "copyright").write_bytes(text.encode() + b"caf\xe9\nLicense: Zl\xefb\n")
    (path / "package9").mkdir()
    (path / "package9" / "copyright").symlink_to("/nonexistent")
    return path


def test_the_answer_is_what_grep_and_sort_say(run_rlmflow, folder):
    r = run_rlmflow("demo", folder)
    assert r.code == 0, r.stderr
    expected = counted(folder)
    total, files, names, rows = answer(r.stdout)
    assert (total, files, names) == (sum(expected.values()), 9, len(expected))
    assert rows == expected
    assert expected["GPL-2+"] == 36 and expected["Expat"] == 9
    assert "rlmflow view" in r.stderr and "OPENAI_API_KEY" in r.stderr


def test_the_files_of_this_machine_are_counted(run_rlmflow):
    r = run_rlmflow("demo", "--quiet", timeout=300)
    expected = counted("/usr/share/doc")
    if not expected:
        assert r.code == 2 and "nothing to count" in r.stderr
        return
    assert r.code == 0, r.stderr
    total, files, names, rows = answer(r.stdout)
    assert (total, names) == (sum(expected.values()), len(expected))
    others = [name for name in rows if re.fullmatch(r"\d+ others", name)]
    left = sum(rows.pop(name) for name in others)
    assert rows.items() <= expected.items()
    assert left + sum(rows.values()) == total


def test_the_run_is_genuine(run_rlmflow, folder, tmp_path):
    path = tmp_path / "demo.rlm"
    r = run_rlmflow("demo", folder, "-o", path, "--json")
    assert r.code == 0, r.stderr
    r = run_rlmflow("view", path)
    assert len(re.findall(r"share\d  answered  2 turns", r.stdout)) == 4
    r = run_rlmflow("view", path, "--agent", "root.share2")
    assert "files, " in r.stdout and "#3 exec_output" in r.stdout


def test_progress_in_a_pipe_is_readable(run_rlmflow, folder):
    lines = [line for line in run_rlmflow("demo", folder).stderr.splitlines() if line.startswith("root")]
    assert len(lines) > 10 and max(map(len, lines)) == 120
    assert "`" * 3 not in "".join(lines)
    assert any(line.endswith("I hand the counts up as JSON. done(json.dumps(counts))") for line in lines)


def test_nothing_to_count_is_a_usage_error_before_anything_runs(run_rlmflow, workspace, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "bare" / "p").mkdir(parents=True)
    (tmp_path / "bare" / "p" / "copyright").write_text("free\nno License: here")
    for name, why in (("empty", "can be read"), ("bare", "begins with License:")):
        r = run_rlmflow("demo", tmp_path / name)
        assert (r.code, r.stdout) == (2, "")
        assert "nothing to count" in r.stderr and why in r.stderr
        assert len(r.stderr.splitlines()) == 1
    assert not any(workspace.state.iterdir())


def test_the_hints_can_be_pasted(workspace, folder, tmp_path):
    """Whether the program is found in PATH or not, and with blanks in the paths."""
    places = [(workspace.program, {}), (os.path.relpath(workspace.program, workspace.cwd), {}),
              ("rlmflow", {"PATH": f"{workspace.program.parent}:/usr/bin:/bin"})]
    for i, (word, env) in enumerate(places):
        env = workspace.environment(env)
        kept = tmp_path / f"a run {i}"
        r = subprocess.run(["/bin/sh", "-c", '"$0" demo "$1" -o "$2"', word, folder, kept], env=env,
                           cwd=workspace.cwd, capture_output=True, text=True)
        assert r.returncode == 0, r.stderr
        look, one = (line.split("  ")[-1].strip() for line in r.stderr.splitlines()
                     if line.startswith(("  look at it", "  one agent")))
        assert look.startswith(f"{word} view ")
        for command, expected in ((look, "share1"), (one, "user_query")):
            r = subprocess.run(["/bin/sh", "-c", command], env=env, cwd=workspace.cwd, capture_output=True,
                               text=True)
            assert r.returncode == 0 and expected in r.stdout, command + r.stderr


def test_what_is_no_directory_is_a_usage_error(run_rlmflow):
    r = run_rlmflow("demo", "/nonexistent")
    assert r.code == 2 and "/nonexistent" in r.stderr
