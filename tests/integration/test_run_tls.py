"""Runs over HTTPS: trust in certificates, and the way through a proxy."""

import socket

import pytest
from relays import Authority, ConnectProxy, TlsFront
from runs import command, go, look, mind  # noqa: F401

NAME = "model.test"  # no server of names knows it: only a proxy leads there
KEY = "sk-of-this-test"
FAMILY = {"go": "r, = await launch_subagents([{'query': 'work'}])\ndone(r + await llm_query('q'))",
          "work": "done('child and ')"}


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authorities") / "right")


@pytest.fixture(scope="module")
def stranger(tmp_path_factory):
    """An authority that has signed nothing, of the same name."""
    return Authority(tmp_path_factory.mktemp("authorities") / "wrong")


@pytest.fixture
def front(server, authority):
    with TlsFront(server.port, *authority.issue("IP:127.0.0.1", f"DNS:{NAME}")) as front:
        yield front


@pytest.fixture
def go_tls(run_rlmflow, server, front, tmp_path):
    """go_tls(*flags, host="127.0.0.1", env=None): a run of FAMILY over HTTPS; the Result."""
    def start(*flags, host="127.0.0.1", env=None):
        server.set_rules(mind(FAMILY, query="query"))
        return run_rlmflow("run", "go", "--model", "m", "--base-url", f"https://{host}:{front.port}/v1",
                           "--connect-timeout", "20s", "-o", tmp_path / "run.rlm", *flags,
                           env={"OPENAI_API_KEY": KEY, **(env or {})})

    return start


def answered(result, server):
    assert (result.code, result.stdout) == (0, "child and query\n"), result.stderr
    assert server.stats()["statuses"] == {"200": 3}
    assert f"Bearer {KEY}" in str(server.requests[0].headers)


def refused(result, server, *words):
    """Nothing was sent, and the last line says why."""
    assert (result.code, result.stdout) == (1, ""), result.stderr
    assert server.stats()["requests"] == 0
    last = result.stderr.splitlines()[-1]
    assert all(word in last for word in words), last


def test_the_authority_of_a_flag_is_trusted(go_tls, server, front, authority):
    answered(go_tls("--ca-file", authority.ca), server)
    assert front.handshakes >= 1


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "CURL_CA_BUNDLE"])
def test_the_authority_of_the_environment_is_trusted(go_tls, server, authority, variable):
    answered(go_tls(env={variable: authority.ca}), server)


def test_the_flag_wins_over_the_environment(go_tls, server, authority, stranger):
    answered(go_tls("--ca-file", authority.ca, env={"SSL_CERT_FILE": stranger.ca}), server)


def test_an_unknown_authority_is_refused(go_tls, server):
    refused(go_tls(), server, "certificate", "SSL_CERT_FILE")


def test_a_wrong_authority_is_refused(go_tls, server, stranger):
    refused(go_tls("--ca-file", stranger.ca), server, "certificate", str(stranger.ca))


def test_a_file_without_certificates_is_named(go_tls, server, authority, tmp_path):
    (tmp_path / "none.pem").write_text("no certificate")
    refused(go_tls("--ca-file", tmp_path / "none.pem"), server, f"could not be read from {tmp_path}/none.pem")
    refused(go_tls("-o", tmp_path / "two.rlm", env={"CURL_CA_BUNDLE": tmp_path / "none.pem",
                                                    "SSL_CERT_FILE": authority.ca}),
            server, f"{tmp_path}/none.pem (CURL_CA_BUNDLE)")


def test_plain_http_behind_https_is_said(run_rlmflow, server):
    """Its server waits for the end of a line that never comes."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        result = run_rlmflow("run", "go", "--model", "m", "--connect-timeout", "200ms", "--base-url",
                             f"https://127.0.0.1:{silent.getsockname()[1]}/v1")
    refused(result, server, "connected, but no TLS session", "0.2 s", "plain HTTP")


def test_a_certificate_of_another_name_is_refused(go_tls, server, authority):
    refused(go_tls("--ca-file", authority.ca, host="localhost"), server, "certificate")


@pytest.mark.parametrize("how", ["HTTPS_PROXY", "https_proxy", "--proxy"])
def test_a_proxy_is_used(go_tls, server, authority, how):
    """It is asked for the server's name, and hears nothing else."""
    with ConnectProxy() as proxy:
        address = f"http://127.0.0.1:{proxy.port}"
        flags = ["--proxy", address] if how == "--proxy" else []
        env = {} if flags else {how: address}
        answered(go_tls("--ca-file", authority.ca, *flags, host=NAME, env=env), server)
    assert proxy.heads and all(h.startswith(f"CONNECT {NAME}:") for h in proxy.heads)
    assert not any(KEY in head for head in proxy.heads)


def test_no_proxy_leads_past_it(go_tls, server, authority):
    with ConnectProxy() as proxy:
        answered(go_tls("--ca-file", authority.ca, env={
            "HTTPS_PROXY": f"http://127.0.0.1:{proxy.port}", "NO_PROXY": "127.0.0.1"}), server)
    assert not proxy.heads


def test_the_proxy_of_the_flag_is_used_for_all(go_tls, server, authority):
    """Also for what NO_PROXY names, as it does here."""
    with ConnectProxy() as proxy:
        answered(go_tls("--ca-file", authority.ca, "--proxy", f"http://127.0.0.1:{proxy.port}",
                        env={"NO_PROXY": "*"}), server)
    assert proxy.heads


def test_a_proxy_that_refuses_is_named(go_tls, server, authority):
    with ConnectProxy(refuse="403 Forbidden") as proxy:
        result = go_tls("--ca-file", authority.ca, host=NAME,
                        env={"HTTPS_PROXY": f"http://somebody:secret@127.0.0.1:{proxy.port}/"})
    refused(result, server, "CONNECT", "403", NAME, f"the proxy http://127.0.0.1:{proxy.port}:")
    assert "secret" not in result.stderr
