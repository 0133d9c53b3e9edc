"""Without a key and without a server of one's own nothing is sent."""

import pytest
from replies import says
from runs import mind


@pytest.mark.parametrize("model, host, key", [
    ("gpt-5-mini", "api.openai.com", "OPENAI_API_KEY"),
    ("claude-sonnet-4-5", "api.anthropic.com", "ANTHROPIC_API_KEY"),
])
def test_a_missing_key_is_a_usage_error_before_anything_is_sent(run_rlmflow, server, workspace, model, host, key):
    r = run_rlmflow("run", "go", "--model", model, env={"HTTPS_PROXY": server.base_url})
    assert (r.code, r.stdout) == (2, "")
    assert r.stderr == (f"rlmflow: no key for {host}: set {key}, or give --base-url URL of a local server\n")
    assert server.requests == [] and not any(workspace.state.rglob("journal"))


def test_sub_agents_need_a_key_too(run_rlmflow, scripted_model):
    r = run_rlmflow("run", "go", "--model", scripted_model(says("done(1)")), "--child-model", "gpt-5-mini")
    assert r.code == 2 and "set OPENAI_API_KEY" in r.stderr


@pytest.mark.parametrize("more", [
    {"OPENAI_BASE_URL": "URL"}, {"RLMFLOW_BASE_URL": "URL"},
])
def test_a_server_of_ones_own_needs_no_key(run_rlmflow, server, more):
    server.set_rules(mind({"go": "done('ok')"}))
    r = run_rlmflow("run", "go", "--model", "local",
                    env={name: server.base_url for name in more})
    assert (r.code, r.stdout) == (0, "ok\n"), r.stderr


def test_a_header_may_be_the_key(run_rlmflow):
    """It is asked then, over a proxy that is not there."""
    for header, code in (("Authorization=Bearer x", 1), ("X-Title=x", 2)):
        r = run_rlmflow("run", "go", "--model", "gpt-5-mini", "--header", header, "--max-time", "2s",
                        "--proxy", "http://127.0.0.1:9")
        assert r.code == code, r.stderr
