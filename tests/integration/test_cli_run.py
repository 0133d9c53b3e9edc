"""rlmflow run: tasks, inputs, models, limits and exit codes."""

import json
import os
import re

import pytest
from replies import FAMILY, cell, says

ECHO = says('done(INPUTS["x"] if isinstance(INPUTS["x"], str) else repr(INPUTS["x"]))')


@pytest.fixture
def run(run_rlmflow, scripted_model):
    """run(script, *flags): runs the query "go" with a scripted model."""
    def start(script, *flags, query="go", **options):
        return run_rlmflow("run", query, "--model", scripted_model(script), *flags, **options)
    return start


def test_answer_stands_alone_on_stdout(run):
    r = run(says('print("seen"); done("forty\\ntwo")'))
    assert (r.code, r.stdout) == (0, "forty\ntwo\n")
    assert "runtime subprocess" in r.stderr.splitlines()[0]
    assert "root: ended, answered: forty two" in r.stderr


def test_sub_agents_answer_their_parent(run):
    r = run(FAMILY)
    assert (r.code, r.stdout) == (0, "A+B\n")
    assert "root: waits for 2 sub-agents" in r.stderr
    assert "answered: 3 agents, 3 calls" in r.stderr


# ---- queries ----

QUERY = [({"agent": "root", "match": "^Task: what is (it|this)"}, cell('done("asked")'))]


def test_query_from_the_command_line_stdin_and_a_file(run, tmp_path):
    path = tmp_path / "task.txt"
    path.write_text("what is it")
    for query, text in (("what is it", None), ("-", "what is this"), (f"@{path}", None)):
        r = run(QUERY, query=query, input=text)
        assert (r.code, r.stdout) == (0, "asked\n"), r.stderr


def test_a_literal_at_sign_begins_a_query(run):
    r = run([({"match": "^Task: @home"}, cell('done("literal")'))], query="@@home")
    assert r.stdout == "literal\n"


# The task as a session sees it: the query of the run is in no input, so the graph says it.
def test_bytes_of_query_input_and_answer_survive(run, tmp_path, run_rlmflow):
    text = b"a\0b\r\nc\rd\xed\xb2\x80\xf0\x9f\x98\x80\n"
    path = tmp_path / "data"
    path.write_bytes(text)
    r = run(says("done(open(%r, 'rb').read().decode('utf-8', 'surrogatepass'))" % str(path)),
            "--input", "y=a\r\nb", "-o", tmp_path / "run.rlm", query="-", input=text)
    assert r.code == 0, r.stderr
    assert r.stdout_bytes == text + b"\n"
    lines = [json.loads(line) for line in
             run_rlmflow("view", tmp_path / "run.rlm", "--json").stdout.splitlines()]
    assert lines[0]["query"].encode("utf-8", "surrogatepass") == text
    assert lines[0]["inputs"] == {"y": "a\r\nb"}
    assert lines[-1]["answer"].encode("utf-8", "surrogatepass") == text


@pytest.mark.parametrize("query, input, says_why", [
    ("", None, "the query is empty"),
    ("-", "", "the query is empty"),
    ("-", b"\xff\xfe", "not UTF-8 (at byte 0)"),
    ("@/nonexistent/task", None, "No such file"),
])
def test_bad_queries_are_usage_errors(run, query, input, says_why):
    r = run(says("done(1)"), query=query, input=input)
    assert r.code == 2
    assert says_why in r.stderr and r.stdout == ""


# ---- inputs ----

def test_inputs_are_texts_files_and_literal_at_signs(run, tmp_path):
    path = tmp_path / "file.txt"
    path.write_text("from a file, ü")
    for value, expected in (("plain = text", "plain = text"), (f"@{path}", "from a file, ü"),
                            ("@@literal", "@literal"), ("", "")):
        r = run(ECHO, "--input", f"x={value}")
        assert r.stdout == expected + "\n", r.stderr


def test_a_file_that_is_not_utf8_is_bytes_unless_an_encoding_is_given(run, tmp_path):
    path = tmp_path / "latin"
    path.write_bytes(b"caf\xe9")
    r = run(ECHO, "--input", f"x=@{path}")
    assert r.stdout == "b'caf\\xe9'\n"
    assert "at byte 3" in r.stderr and "encoding=latin-1" in r.stderr
    r = run(ECHO, "--input", f"x=@{path},encoding=latin-1")
    assert r.stdout == "café\n"
    r = run(ECHO, "--input", f"x=@{path},encoding=ebcdic")
    assert r.code == 2 and "ebcdic" in r.stderr


def test_an_input_is_mapped_when_it_is_large(run, tmp_path):
    path = tmp_path / "large"
    path.write_text("0123456789" * 300_000)
    r = run(says('done(str(len(INPUTS["x"])) + INPUTS["x"][-3:])'), "--input", f"x=@{path}")
    assert r.stdout == "3000000789\n"


def test_a_directory_is_a_mapping_of_names_to_contents(run, tmp_path):
    folder = tmp_path / "folder"
    (folder / "sub").mkdir(parents=True)
    (folder / "one.txt").write_text("1")
    (folder / "sub" / "two.txt").write_text("22")
    r = run(says('d = INPUTS["x"]; done(str(sorted(d)) + d["sub/two.txt"])'),
            "--input", f"x=@{folder}")
    assert r.stdout == "['one.txt', 'sub/two.txt']22\n", r.stderr


def test_a_link_that_leaves_the_directory_is_refused_by_name(run, tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "escape").symlink_to("/etc/passwd")
    r = run(ECHO, "--input", f"x=@{folder}")
    assert r.code == 2 and "escape" in r.stderr


def test_a_pipe_is_an_input(workspace, scripted_model):
    r, w = os.pipe()
    os.write(w, b"through a pipe")
    os.close(w)
    process = workspace.start("run", "go", "--model", scripted_model(ECHO),
                              "--input", f"x=@/dev/fd/{r}", pass_fds=[r])
    os.close(r)
    out, err = process.communicate(timeout=60)
    assert out == b"through a pipe\n", err


@pytest.mark.parametrize("value, says_why", [
    ("nothing", "NAME=VALUE"), ("=x", "NAME=VALUE"), ("x=@/nonexistent", "No such file"),
])
def test_bad_inputs_are_usage_errors(run, value, says_why):
    r = run(ECHO, "--input", value)
    assert r.code == 2 and says_why in r.stderr


def test_two_inputs_of_one_name_are_a_usage_error(run):
    r = run(ECHO, "--input", "x=1", "--input", "x=2")
    assert r.code == 2 and '"x"' in r.stderr


# ---- schema ----

def test_a_schema_makes_the_answer_json(run, tmp_path):
    schema = tmp_path / "schema.json"
    schema.write_text('{"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}')
    r = run(says('done({"n": 3})'), "--schema", schema)
    assert (r.code, json.loads(r.stdout)) == (0, {"n": 3})
    r = run(says('done({"n": "x"})'), "--schema", schema, "--max-iters", "2")
    assert r.code == 1 and "max_iters" in r.stderr


@pytest.mark.parametrize("text", ["{", '{"type": 3}', None])
def test_a_bad_schema_is_a_usage_error(run, tmp_path, text):
    schema = tmp_path / "schema.json"
    if text is not None:
        schema.write_text(text)
    r = run(says("done(1)"), "--schema", schema)
    assert r.code == 2 and "schema" in r.stderr


# ---- limits ----

@pytest.mark.parametrize("flags, script, reason", [
    (["--max-iters", "2"], says("print(1)"), "max_iters"),
    (["--max-budget", "1k"], says("print(1)", input_tokens=600, output_tokens=600), "budget"),
    (["--max-time", "300ms"], says("import time; time.sleep(60)"), "time"),
])
def test_limits_end_a_run_with_their_name(run, flags, script, reason):
    r = run(script, "--json", *flags)
    assert r.code == 1
    assert json.loads(r.stdout.splitlines()[-1])["reason"] == reason
    assert re.search(rf"^rlmflow: no answer(: {reason}: | after 2 turns \({reason}\)$)", r.stderr, re.M)
    path = json.loads(r.stdout.splitlines()[-1])["run"]
    assert re.search(rf"^to go on with a higher limit: \S+ resume {re.escape(path)} {flags[0]} ", r.stderr, re.M)


def test_a_model_that_fails_is_exit_code_1(run):
    r = run([({"agent": "root", "error": 401}, "")])
    assert r.code == 1 and r.stdout == "" and "key was refused" in r.stderr


def test_depth_0_has_no_sub_agents(run):
    r = run(says('r = await launch_subagents([{"query": "x"}]); done(r[0].reason)'),
            "--max-depth", "0")
    assert r.code == 0 and r.stdout == "refused\n", r.stderr


def test_an_endless_cell_ends_at_its_timeout(run):
    script = [({"agent": "root", "turn": 1}, cell("while True: pass")),
              ({"agent": "root", "turn": 2, "match": "(?i)time"}, cell('done("told")'))]
    assert run(script, "--exec-timeout", "300ms").stdout == "told\n"
    assert run(script, "--cpu-time", "300ms").stdout == "told\n"


def test_output_is_cut_for_the_model(run):
    script = [({"agent": "root", "turn": 1}, cell('print("y" * 5000)')),
              ({"agent": "root", "turn": 2, "match": "y{500}"}, cell('done("whole")')),
              ({"agent": "root", "turn": 2, "match": "left out"}, cell('done("cut")'))]
    assert run(script, "--max-output-length", "100").stdout == "cut\n"
    assert run(script, "--max-output-length", "0").stdout == "whole\n"


def test_widths_and_the_number_of_agents_are_limits(run):
    script = [({"agent": "root", "turn": 1}, cell(
        'r = await launch_subagents([{"query": str(i)} for i in range(4)])\n'
        'done(" ".join(getattr(x, "reason", x) for x in r))')),
              ({"agent": "root.*"}, cell('done("ok")'))]
    r = run(script, "--workers", "1", "--max-live", "1", "--max-agents", "3", "--spare", "1")
    assert r.code == 0 and sorted(r.stdout.split()) == ["ok", "ok", "refused", "refused"], r.stderr


def test_a_long_query_of_a_sub_agent_is_refused(run):
    r = run(says('r = await launch_subagents([{"query": "q" * 60}]); done(r[0].reason)'),
            "--max-query-chars", "50")
    assert r.stdout == "refused\n", r.stderr


def test_children_have_their_own_number_of_replies(run):
    script = [({"agent": "root"}, cell(
        'r = await launch_subagents([{"query": "x"}]); done(r[0].reason)')),
              ({"agent": "root.*"}, cell("print(1)"))]
    r = run(script, "--child-max-iters", "1", "--max-messages", "4")
    assert r.stdout == "max_iters\n", r.stderr


# ---- sessions ----

def test_the_working_directory_and_the_interpreter_can_be_chosen(run, tmp_path):
    here = tmp_path / "here"
    here.mkdir()
    r = run(says("import os, sys; done(os.getcwd() + ' ' + sys.executable)"), "--cwd", here,
            "--python", "/usr/bin/python3")
    assert r.stdout.startswith(f"{here} /usr/bin/python3"), r.stderr


def test_an_interpreter_is_named_relative_to_where_the_user_is(run, workspace, tmp_path):
    (workspace.cwd / "python").symlink_to("/usr/bin/python3")
    r = run(says("import os; done(os.getcwd())"), "--python", "./python", "--cwd", tmp_path)
    assert r.stdout == f"{tmp_path}\n", r.stderr


def test_an_interpreter_that_is_not_there_is_said(run):
    r = run(says("done(1)"), "--python", "/nonexistent/python")
    assert r.code == 2 and "/nonexistent/python" in r.stderr


def test_the_session_sees_no_environment_of_ours(run):
    r = run(says("import os; done(' '.join(sorted(os.environ)))"), env={"SECRET": "x"})
    assert "SECRET" not in r.stdout and "PATH" in r.stdout.split()


# ---- models over HTTP ----

def test_flags_reach_the_server(run_rlmflow, server):
    server.set_rules([{"reply": cell('done("yes")')}])
    r = run_rlmflow("run", "go", "--model", "tiny", "--base-url", server.base_url,
                    "--temperature", "0.5", "--reasoning-effort", "low", "--max-output-tokens", "1k",
                    "--header", "X-Team=a=b", "--body", '{"seed": 7}', "--max-time", "1m",
                    env={"OPENAI_API_KEY": "sk-one"})
    assert (r.code, r.stdout) == (0, "yes\n"), r.stderr
    request = server.requests[0]
    assert request.body["model"] == "tiny"
    assert request.body["temperature"] == 0.5
    assert request.body["reasoning_effort"] == "low"
    assert request.body["seed"] == 7
    assert 1000 in (request.body.get("max_tokens"), request.body.get("max_completion_tokens"))
    headers = {k.lower(): v for k, v in request.headers.items()}
    assert headers["x-team"] == "a=b"
    assert headers["authorization"] == "Bearer sk-one"


@pytest.mark.parametrize("model, flags, env, api", [
    ("tiny", [], {"OPENAI_BASE_URL": "openai"}, "openai"),
    ("claude-x", [], {"ANTHROPIC_BASE_URL": "anthropic", "OPENAI_API_KEY": "k"}, "anthropic"),
    ("tiny", [], {"ANTHROPIC_BASE_URL": "anthropic", "ANTHROPIC_API_KEY": "k"}, "anthropic"),
    ("claude-x", ["--base-url", "openai"], {}, "openai"),
    ("tiny", ["--base-url", "anthropic", "--api", "anthropic"], {}, "anthropic"),
])
def test_the_api_is_chosen_by_name_address_and_variables(run_rlmflow, server, model, flags, env, api):
    server.set_rules([{"match": {"api": api}, "reply": cell('done("yes")')}])
    urls = {"openai": server.base_url, "anthropic": server.anthropic_url}
    r = run_rlmflow("run", "go", "--model", model, *[urls[f] if flags[i - 1] == "--base-url" else f
                                                    for i, f in enumerate(flags)],
                    "--max-time", "1m", env={k: urls.get(v, v) for k, v in env.items()})
    assert (r.code, r.stdout) == (0, "yes\n"), r.stderr


def test_sub_agents_can_have_a_model_of_their_own(run_rlmflow, server):
    server.set_rules([
        {"match": {"model": "^large$"}, "reply": cell(
            'r = await launch_subagents([{"query": "x"}]); done(r[0])')},
        {"match": {"model": "^small$"}, "reply": cell('done("small")')},
    ])
    r = run_rlmflow("run", "go", "--model", "large", "--child-model", "small",
                    "--base-url", server.base_url, "--max-time", "1m")
    assert (r.code, r.stdout) == (0, "small\n"), r.stderr


def test_a_price_makes_a_cost_and_a_cap_needs_one(run_rlmflow, server):
    server.set_rules([{"reply": cell('done("yes")')}])
    flags = ("run", "go", "--model", "tiny", "--base-url", server.base_url, "--max-cost", "1.00")
    r = run_rlmflow(*flags)
    assert r.code == 2 and "price" in r.stderr
    r = run_rlmflow(*flags, "--price", "2/10", "--json")
    assert r.code == 0, r.stderr
    usage = json.loads(r.stdout.splitlines()[-1])["usage"]
    assert usage["cost"] == pytest.approx(
        usage["input_tokens"] * 2e-6 + usage["output_tokens"] * 10e-6, abs=1e-8)
    r = run_rlmflow(*flags, "--price", "cheap")
    assert r.code == 2 and "IN/OUT" in r.stderr


def test_the_first_line_warns_when_nothing_caps_the_spending(run_rlmflow, server, scripted_model):
    server.set_rules([{"reply": cell('done("yes")')}])
    flags = ("run", "go", "--model", "tiny", "--base-url", server.base_url)
    warning = "nothing caps the spending"
    assert warning in run_rlmflow(*flags).stderr.splitlines()[0]
    assert warning in run_rlmflow(*flags, "--quiet").stderr.splitlines()[0]
    for cap in (["--max-budget", "1M"], ["--max-time", "1m"], ["--max-cost", "1", "--price", "1/1"]):
        assert warning not in run_rlmflow(*flags, *cap).stderr
    r = run_rlmflow("run", "go", "--model", scripted_model(says("done(1)")))
    assert warning not in r.stderr


def test_a_proxy_and_a_ca_file_are_used(run_rlmflow, tmp_path):
    r = run_rlmflow("run", "go", "--model", "tiny", "--base-url", "http://model.invalid/v1",
                    "--proxy", "http://127.0.0.1:9", "--max-time", "1s")
    assert r.code == 1 and "127.0.0.1" in r.stderr
    r = run_rlmflow("run", "go", "--model", "tiny", "--base-url", "https://127.0.0.1:9/v1",
                    "--ca-file", tmp_path / "missing.pem", "--max-time", "1s")
    assert r.code == 2 and "missing.pem" in r.stderr


def test_a_missing_script_or_model_is_a_usage_error(run_rlmflow):
    r = run_rlmflow("run", "go")
    assert r.code == 2 and "--model" in r.stderr and "rlmflow demo" in r.stderr
    r = run_rlmflow("run", "go", "--model", "script:/nonexistent")
    assert r.code == 2 and "/nonexistent" in r.stderr
