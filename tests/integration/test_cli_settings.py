"""Flags, environment, rlmflow.toml, help, and what `config` and `doctor` say."""

import fcntl
import os
import re
import shutil
import struct
import subprocess
import tempfile
import termios

import pytest
from program import script_text
from replies import says

COMMANDS = ("run", "resume", "replay", "rewind", "view", "runs", "export", "pack", "unpack", "demo", "doctor",
            "config", "version")


def settings(text):
    """What `config` printed, as {name: (value, source)}."""
    rows = {}
    for line in text.splitlines():
        name, _, rest = line.partition(" ")
        value, _, source = rest.strip().rpartition("  ")
        rows[name] = (value.strip() or rest.strip(), source.strip() if value else "")
    return rows


@pytest.fixture
def config(run_rlmflow):
    def run(*flags, **options):
        r = run_rlmflow("config", *flags, **options)
        assert r.code == 0, r.stderr
        return settings(r.stdout)
    return run


# ---- help ----

@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example(run_rlmflow, command):
    r = run_rlmflow(command, "--help")
    assert r.code == 0 and r.stderr == ""
    assert f"Example:\n  " in r.stdout and f"rlmflow {command}" in r.stdout
    assert max(map(len, r.stdout.splitlines())) <= 80
    assert run_rlmflow("help", command).stdout == r.stdout
    headings = re.findall(r"^[A-Z][a-z]+:$", r.stdout, re.M)
    assert len(headings) == len(set(headings))


def test_help_lists_the_commands_and_no_command_is_a_usage_error(run_rlmflow):
    r = run_rlmflow("--help")
    assert r.code == 0 and re.findall(r"^  (\w+) +[A-Z]", r.stdout, re.M) == list(COMMANDS)
    assert max(map(len, r.stdout.splitlines())) <= 80
    r = run_rlmflow()
    assert (r.code, r.stdout) == (2, "") and "rlmflow demo" in r.stderr


@pytest.mark.parametrize("columns, widest", [(70, 70), (100, 100), (300, 120), (20, 60)])
def test_help_is_as_wide_as_the_terminal(workspace, columns, widest):
    leader, follower = os.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    process = subprocess.Popen([workspace.program, "doctor", "--help"], stdin=subprocess.DEVNULL,
                               stdout=follower, env=workspace.environment())
    os.close(follower)
    text = b""
    try:
        while more := os.read(leader, 4096):
            text += more
    except OSError:  # nobody writes any more
        pass
    os.close(leader)
    assert process.wait() == 0
    lines = text.decode().split("\r\n")
    assert widest - 15 <= max(map(len, lines)) <= widest


def test_version(run_rlmflow):
    r = run_rlmflow("version")
    assert r.code == 0 and r.stdout.startswith("rlmflow 0.")
    assert run_rlmflow("--version").stdout == r.stdout


@pytest.mark.parametrize("args, suggestion", [
    (["rum"], '"run"'), (["run", "x", "--modle", "y"], "--model"), (["run", "x", "--max_iters=3"], "--max-iters"),
    (["view", "x", "--usge"], "--usage"), (["run", "x", "--max-deep", "1"], "--max-depth"),
])
def test_what_is_unknown_gets_the_nearest_name(run_rlmflow, args, suggestion):
    r = run_rlmflow(*args)
    assert r.code == 2 and f"did you mean {suggestion}?" in r.stderr and r.stdout == ""


def test_what_is_far_from_everything_gets_a_pointer_to_help(run_rlmflow):
    r = run_rlmflow("run", "x", "--qqqqqqqqqq")
    assert r.code == 2 and "--help" in r.stderr
    assert run_rlmflow("run", "x", "-z").code == 2


@pytest.mark.parametrize("args", [
    ["run"], ["run", "a", "b"], ["view"], ["version", "x"], ["run", "x", "--model"],
])
def test_missing_and_surplus_arguments_are_usage_errors(run_rlmflow, args):
    r = run_rlmflow(*args)
    assert r.code == 2 and "rlmflow: " in r.stderr


# ---- values ----

@pytest.mark.parametrize("flag, bad", [
    ("--max-depth", "two"), ("--max-depth", "-1"), ("--max-depth", "65"), ("--max-iters", "0"),
    ("--max-iters", "1.5"), ("--max-iters", "3G"), ("--max-iters", "99999999999999999999"),
    ("--max-budget", "1kk"), ("--max-cost", "1,5"), ("--max-cost", "free"), ("--max-time", "1d"),
    ("--max-time", "."), ("--exec-timeout", "0.1ms"), ("--temperature", "hot"),
    ("--temperature", "1.2.3"), ("--api", "gemini"), ("--runtime", "sandboxed"), ("--sync=maybe", None),
    ("--workers", "0"), ("--max-messages", "2"), ("--header", "nothing"), ("--body", "[]"),
    ("--log-file", "/nonexistent/log"), ("-o", "/nonexistent/run"), ("--cwd", "/nonexistent"),
    ("--max-output-tokens", ""), ("--spare", "1001"), ("--connect-timeout", "soon"),
    ("--first-byte-timeout", "9999h"), ("--idle-timeout", "-1s"), ("--max-input-size", "1x"),
    ("--max-input-size", "0"), ("--max-input-size", "2.5.1g"),
])
def test_bad_values_are_named_and_nothing_runs(run_rlmflow, flag, bad):
    r = run_rlmflow("run", "go", "--model", "tiny", "--base-url", "http://127.0.0.1:9/v1", "--max-time",
                    "1s", flag, *([bad] if bad is not None else []))
    assert (r.code, r.stdout) == (2, ""), r.stderr
    name = flag.split("=")[0].lstrip("-")
    assert name in r.stderr or name.replace("-", "_") in r.stderr or bad in r.stderr, r.stderr


@pytest.mark.parametrize("flag, good, shown", [
    ("max-budget", "200k", "200k"), ("max-time", "1.5h", "1.5h"), ("max-cost", "$1.50", "$1.50"),
    ("workers", "16", "16"), ("connect-timeout", "500ms", "500ms"), ("first-byte-timeout", "0", "0"),
    ("idle-timeout", "2m", "2m"), ("max-input-size", "1.5G", "1.5G"), ("max-input-size", "10mb", "10mb"),
    ("temperature", "0.7", "0.7"), ("sync", "true", "true"),
])
def test_values_are_taken_as_people_write_them(config, flag, good, shown):
    assert config(f"--{flag}={good}")[flag] == (shown, f"--{flag}")


# ---- order ----

def test_flags_come_before_environment_before_file_before_defaults(config, workspace):
    (workspace.cwd / "rlmflow.toml").write_text("max_depth = 5\nmax_iters = 7\n[limits]\nworkers = 3\n")
    rows = config("--max-depth", "3",
                  env={"RLMFLOW_MAX_DEPTH": "4", "RLMFLOW_MAX_ITERS": "6"})
    assert rows["max-depth"] == ("3", "--max-depth")
    assert rows["max-iters"] == ("6", "RLMFLOW_MAX_ITERS")
    assert rows["workers"] == ("3", "./rlmflow.toml:4")
    assert rows["max-agents"] == ("1000", "default")


@pytest.mark.parametrize("wrong, meant", [
    ("RLMFLOW_MAXDEPTH", "RLMFLOW_MAX_DEPTH"), ("RLMFLOW_MODLE", "RLMFLOW_MODEL"),
    ("RLMFLOW_MAX_BUGDET", "RLMFLOW_MAX_BUDGET"), ("RLMFLOW_DEPTH", "RLMFLOW_MAX_DEPTH"),
])
def test_a_misspelt_variable_gets_a_warning_with_the_nearest_name(run_rlmflow, wrong, meant):
    r = run_rlmflow("config", env={wrong: "3"})
    assert r.code == 0
    assert r.stderr == f"rlmflow: warning: there is no setting {wrong}; did you mean {meant}?\n"


def test_variables_that_are_no_settings_get_no_warning(run_rlmflow):
    """Those of a session are seen by a program that agent code starts."""
    r = run_rlmflow("config", env={
        "RLMFLOW_AGENT_ID": "root.a", "RLMFLOW_AGENT_DEPTH": "1", "RLMFLOW_PARENT_AGENT_ID": "root",
        "RLMFLOW_IS_ROOT": "0", "RLMFLOW_MAX_DEPTH": "2", "RLMFLOW_SOMETHING_ELSE": "x"})
    assert (r.code, r.stderr) == (0, "")


def test_config_has_no_blanks_at_the_end_of_its_lines(run_rlmflow):
    lines = run_rlmflow("config").stdout.splitlines()
    assert len(lines) > 30 and not [line for line in lines if line != line.rstrip()]


def test_the_file_of_the_configuration_directory_is_read_when_there_is_none_here(config, workspace):
    folder = workspace.config / "rlmflow"
    folder.mkdir()
    (folder / "rlmflow.toml").write_text("max_depth = 5\n")
    assert config()["max-depth"] == ("5", f"{folder}/rlmflow.toml:1")
    (workspace.cwd / "rlmflow.toml").write_text("max_depth = 6\n")
    assert config()["max-depth"][0] == "6"


def test_settings_of_the_file_hold_for_a_run(run_rlmflow, workspace, scripted_model):
    model = scripted_model(says("done(str(budget()))"))
    (workspace.cwd / "rlmflow.toml").write_text(
        f'[model]\nmodel = "{model}"\n[limits]\nmax_budget = 77_000\n[result]\nquiet = true\n')
    r = run_rlmflow("run", "go")
    assert r.code == 0 and "77000" in r.stdout or "76" in r.stdout, r.stderr
    assert r.stderr == ""


def test_a_file_that_others_can_write_is_not_read(run_rlmflow, workspace):
    path = workspace.cwd / "rlmflow.toml"
    path.write_text("max_depth = 5\n")
    path.chmod(0o666)
    r = run_rlmflow("config")
    assert settings(r.stdout)["max-depth"] == ("2", "default") and "is not read" in r.stderr


# ---- the file's syntax ----

def test_what_the_file_may_hold(config, workspace):
    (workspace.cwd / "rlmflow.toml").write_text(
        "\ufeff# a comment\r\n"
        'model = "a \\"b\\" \\u00e9" # behind a value\r\n'
        "reasoning-effort = 'lite\\ral'\n"
        "[ model ]\n"
        "temperature = 0.25\n"
        '"max_output_tokens" = 1_024\n'
        "header = [\n  'X-A=1', # one\n  'X-B=2',\n]\n"
        "[result]\nsync = true")
    rows = config()
    assert rows["model"][0] == 'a "b" é'
    assert rows["reasoning-effort"][0] == "lite\\ral"
    assert rows["temperature"] == ("0.25", "./rlmflow.toml:5")
    assert rows["max-output-tokens"][0] == "1024"
    assert rows["header"] == ("X-A=****, X-B=****", "./rlmflow.toml:9")
    assert rows["sync"][0] == "true"


@pytest.mark.parametrize("text, line, says_why", [
    ("max_depth 3", 1, "="), ("max_depth = x", 1, "x"), ("\n\nmodel = \"a", 3, "quote"),
    ("max_dept = 3", 1, 'did you mean "max-depth"?'), ("[limits]\nmodel = \"a\"", 2, "[model]"),
    ("max_depth = 3 4", 1, "behind"), ("max_iters = 1\nmax_depth = \"deep\"", 2, "deep"),
    ("header = [1]", 1, "strings"), ("header = ['a=b' 'c=d']", 1, "comma"), ("[limits", 1, "]"),
    ("model = \"\"\"x\"\"\"", 1, "many lines"), ("model = {}", 1, "inline"), ("a\0b", 1, "UTF-8"),
    ("model = \"\\q\"", 1, "escape"), ("model = \"\\ud800\"", 1, "ud800"), ("= 3", 1, "key"),
    ("input = 'x=1'", 1, "input"), ("workers = 1\nworkers = 2", 2, "more than one"),
    ("model = \"\\", 1, "escape"), ("model = ['a', 'b']", 1, "more than one"), ("header = ['a=b'", 1, "array"),
])
def test_faults_of_the_file_are_named_with_its_line(run_rlmflow, workspace, text, line, says_why):
    (workspace.cwd / "rlmflow.toml").write_text(text)
    r = run_rlmflow("config")
    assert r.code == 2 and f"./rlmflow.toml:{line}: " in r.stderr and says_why in r.stderr


# ---- secrets ----

SECRETS = {"OPENAI_API_KEY": "sk-hush-1", "ANTHROPIC_API_KEY": "sk-hush-2",
           "RLMFLOW_HEADER": "X-Key=hush-3\nX-Other=hush-4",
           "OPENAI_BASE_URL": "http://user:hush-5@host/v1"}


def test_config_and_doctor_mask_what_is_secret(run_rlmflow):
    for command in ("config", "doctor"):
        r = run_rlmflow(command, "--header", "X-Flag=hush-6", "--proxy", "http://u:hush-7@p", env=SECRETS)
        assert "hush" not in r.stdout + r.stderr
    r = run_rlmflow("config", env=SECRETS)
    assert "X-Key=****, X-Other=****" in r.stdout and "hush" not in r.stdout
    assert settings(r.stdout)["OPENAI_API_KEY"] == ("****", "environment")


@pytest.mark.replayed("recorded", "the code answers with what the program was called with")
def test_a_session_finds_no_secret_in_the_program_around_it(run_rlmflow, scripted_model, workspace):
    code = ("import os\n"
            "out = b''\n"
            "for name in ('environ', 'cmdline'):\n"
            "    try: out += open(f'/proc/{os.getppid()}/{name}', 'rb').read()\n"
            "    except OSError as e: out += str(e).encode()\n"
            "try: open(f'/proc/{os.getppid()}/status').read()\n"
            "except OSError: pass\n"
            "done(out.decode('utf-8', 'replace'))")
    r = run_rlmflow("run", "go", "--model", scripted_model(says(code)), "--header", "X-Flag=hush-6",
                    "--header=X-Second=hush-8", "--proxy", "http://u:hush-7@p", env=SECRETS)
    assert r.code == 0 and "run\0go" in r.stdout, r.stderr
    assert "hush" not in r.stdout
    for path in workspace.state.rglob("*"):
        assert path.is_dir() or b"hush" not in path.read_bytes()


def test_the_program_cannot_be_read_by_its_user(workspace, build_dir):
    """Root may read every process, so the program runs as somebody else, from a place open to all."""
    code = ("import os\ntry: open(f'/proc/{os.getppid()}/environ', 'rb').close(); done('readable')\n"
            "except PermissionError: done('refused')")
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        os.chmod(folder, 0o755)
        for name in ("rlmflow", "src/librlmflow.so.0"):
            shutil.copy(build_dir / name, folder)
        script = os.path.join(folder, "model.script")
        with open(script, "w", encoding="utf-8") as f:
            f.write(script_text(says(code)))
        os.mkdir(f"{folder}/open")
        os.chmod(f"{folder}/open", 0o777)
        other = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
        done = subprocess.run(
            [f"{folder}/rlmflow", "run", "go", "--model", f"script:{script}", "-o", f"{folder}/open/run.rlm"],
            capture_output=True, timeout=60, cwd=folder, **other,
            env={**workspace.environment(), "LD_LIBRARY_PATH": folder, "XDG_CONFIG_HOME": folder})
    assert done.stdout == b"refused\n", done.stderr


# ---- doctor ----

def test_doctor_passes_when_a_run_would_work(run_rlmflow, scripted_model, server):
    for model in (["--model", scripted_model(says("done(1)"))],
                  ["--model", "test-model", "--base-url", server.base_url]):
        r = run_rlmflow("doctor", *model, env={"OPENAI_API_KEY": "k"})
        assert r.code == 0, r.stdout
        assert "OPENAI_API_KEY yes, ANTHROPIC_API_KEY no" in r.stdout
        assert "/usr/bin/python3" in r.stdout and "libcurl" in r.stdout and "writable" in r.stdout
        assert "PROBLEM" not in r.stdout


def test_doctor_names_what_is_missing(run_rlmflow, workspace, make_server):
    r = run_rlmflow("doctor")
    assert r.code == 0 and "PROBLEM" not in r.stdout
    assert "hint     model" in r.stdout and "--model NAME" in r.stdout and "hint     keys" in r.stdout
    for model, key in (("gpt-5-mini", "OPENAI_API_KEY"), ("claude-sonnet-4-5", "ANTHROPIC_API_KEY")):
        r = run_rlmflow("doctor", "--model", model)
        assert r.code == 1 and f"PROBLEM  keys           none for {model}: set {key}" in r.stdout
    r = run_rlmflow("doctor", "--model", "tiny", "--base-url", "http://127.0.0.1:9/v1")
    assert r.code == 1 and "127.0.0.1:9" in r.stdout
    strict = make_server(keys=["right"])
    r = run_rlmflow("doctor", "--model", "tiny", "--base-url", strict.base_url,
                    env={"OPENAI_API_KEY": "wrong"})
    assert r.code == 1 and "PROBLEM  model" in r.stdout
    old = workspace.tmp.parent / "old-python"
    old.write_text("#!/bin/sh\necho 3.7.1\n")
    old.chmod(0o755)
    r = run_rlmflow("doctor", "--python", old)
    assert "PROBLEM  python" in r.stdout and "3.8" in r.stdout
    r = run_rlmflow("doctor", "--python", "/nonexistent/python")
    assert "PROBLEM  python" in r.stdout
    r = run_rlmflow("doctor", "--model", "script:/nonexistent")
    assert r.code == 1 and "cannot be used" in r.stdout


def test_doctor_says_what_kept_runs_take(run_rlmflow, workspace):
    folder = workspace.state / "rlmflow" / "runs" / "old.rlm"
    folder.mkdir(parents=True)
    with open(folder / "journal", "wb") as f:
        f.truncate(3 << 20)
    assert "1, 3.0 MiB" in run_rlmflow("doctor").stdout
