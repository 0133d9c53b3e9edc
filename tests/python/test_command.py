"""Sessions behind commands."""
import pytest
import rlmflow
from conftest import PYTHON
from test_flow import Replies, block

LINE = ["sh", "-c", "{worker}"]


def run(argv, *replies, **options):
    client = Replies(*replies)
    runtime = rlmflow.CommandRuntime(argv, python=PYTHON, **options)
    return rlmflow.Flow(client, runtime=runtime).run("q", inputs={"text": "ä" * 100_000}), client


@pytest.mark.parametrize("argv", [LINE, ["nice", "-n", "0"], ["sh", "-c", "cat | {worker} | cat"]])
def test_agents_run_behind_any_command(argv):
    class Family:
        def chat(self, messages):
            if "child task" in messages[1]["content"]:
                return block("done(INPUTS['piece'][-1] + str(len(INPUTS['piece'])))")
            return block("r = await launch_subagents([{'query': 'child task', 'inputs': {'piece': piece}}"
                         " for piece in (text, text[:70_000], 'z')])\ndone('-'.join(r))")

    flow = rlmflow.Flow(Family(), runtime=rlmflow.CommandRuntime(argv, python=PYTHON))
    assert flow.run("q", inputs={"text": "ä" * 100_000}) == "ä100000-ä70000-z1"


def test_namespaces_and_roots_are_commands_like_others(tmp_path):
    code = block("import os, socket\ndone(f'{os.getcwd()} {[n for _, n in socket.if_nameindex()]}')")
    answer, _ = run(["unshare", "-r", "-n", "chroot", "/"], code, workdir=str(tmp_path))
    assert answer == f"{tmp_path} ['lo']"


def test_nothing_of_the_hosts_environment_is_there_but_what_is_given(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    code = block("import os\ndone(f'{os.environ.get(\"OPENAI_API_KEY\")} {os.environ[\"GIVEN\"]}')")
    assert run(LINE, code, env={"GIVEN": "it's"})[0] == "None it's"


@pytest.mark.parametrize("argv, told", [
    (["sh", "-c", "echo Last login: Monday; {worker}"], 'no worker that speaks first: "Last login: Monday.'),
    (["sh", "-c", "echo Permission denied >&2; exit 255"], "exit status 255 before it was ready: Permission denied"),
    (["no-such-command"], 'no command "no-such-command" in PATH'),
])
def test_a_line_that_leads_nowhere_is_named(argv, told):
    with pytest.raises(rlmflow.RunEnded) as e:
        run(argv, block("done(1)"), block("done(2)"))
    assert e.value.reason == "failed" and told in e.value.message


def test_a_line_that_drops_is_named_and_the_run_goes_on():
    answer, client = run(LINE, block("x = 1"), block("import os\nos._exit(9)"), block("done(str('x' in globals()))"))
    assert answer == "False"
    assert "ended with exit status 9" in client.asked[2][-1]["content"]


@pytest.mark.parametrize("argv, error, told", [
    ("ssh host", TypeError, r"argv='ssh host': a command is a list of its words, as \['ssh', 'host'\]"),
    ([], ValueError, "there is no command"), ([""], ValueError, "there is no command"),
    (["ssh", 22], TypeError, r"argv\[1\]=22: it must be a str"),
])
def test_what_is_no_command_is_refused_when_it_is_made(argv, error, told):
    with pytest.raises(error, match=told):
        rlmflow.CommandRuntime(argv)
