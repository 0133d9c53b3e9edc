"""rlmflow view --html: what the file holds."""

import base64
import hashlib
import json
import re

from pages import evil, family, write_page  # noqa: F401


def data_of(page):
    """The run that stands in the page."""
    return json.loads(re.search(r'<script type="application/json" id="run">(.*?)</script>', page, re.S)[1])


def texts(run, agent, type):
    return [n for a in run["agents"] if a["id"] == agent for n in a["nodes"] if n["type"] == type]


def test_the_page_has_the_run_and_names_its_scripts(run_rlmflow, family, tmp_path):
    page = write_page(run_rlmflow, family, tmp_path / "page.html")
    run = data_of(page)
    assert [a["id"] for a in run["agents"]] == ["root", "root.a", "root.b"]
    assert [a["parent"] for a in run["agents"]] == [-1, 0, 0]
    assert texts(run, "root", "done_output")[0]["result"] == "A+B"
    assert all(0 <= s[1] <= s[2] <= run["total_ms"] for a in run["agents"] for s in a["spans"])
    assert "<title>rlmflow: Find &lt;both&gt; &amp; join</title>" in page
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1]
    assert policy.startswith("default-src 'none';") and "unsafe" not in policy
    for tag, kind in (("script", "script-src"), ("style", "style-src")):
        body = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.S)
        assert len(body) == 1
        digest = base64.b64encode(hashlib.sha256(body[0].encode()).digest()).decode()
        assert f"{kind} 'sha256-{digest}'" in policy
    assert not re.search(r"(?:src|href)=", page) and "http" not in page.replace("http-equiv", "")


def test_hostile_texts_end_nothing(run_rlmflow, evil, tmp_path):
    page = write_page(run_rlmflow, evil, tmp_path / "page.html")
    assert page.count("</script>") == 2 and page.count("<script") == 2 and "\0" not in page
    assert "\u2028" not in page and "\u2029" not in page
    run = data_of(page)
    printed = texts(run, "root", "exec_output")[0]["content"]
    for text in ("</script><script>", "\u2028 \u2029 \0", "lone \ud800", "{{data}}"):
        assert text in printed
    answer = texts(run, "root", "done_output")[0]["result"]
    assert answer.startswith("</textarea>xxx") and answer.endswith("xxx<END>")
    assert "bytes are left out here" in answer and len(answer) < 300_000 and run["cut"] == 1


def test_a_page_is_replaced_whole_or_not_at_all(run_rlmflow, family, tmp_path):
    page = tmp_path / "page.html"
    page.write_text("old")
    write_page(run_rlmflow, family, page)
    assert page.read_text().startswith("<!doctype html>")
    assert [p.name for p in tmp_path.iterdir() if "page" in p.name] == ["page.html"]
    r = run_rlmflow("view", family, "--html", tmp_path / "none" / "page.html")
    assert r.code == 2 and "No such file" in r.stderr
    r = run_rlmflow("view", family, "--html", tmp_path)
    assert r.code != 0 and page.read_text().startswith("<!doctype html>")
    r = run_rlmflow("view", family, "--html", "-")
    assert r.stdout.startswith("<!doctype html>") and r.stdout.endswith("</html>\n")


def test_a_damaged_run_says_so_in_the_page(run_rlmflow, family, tmp_path):
    journal = family / "journal"
    journal.write_bytes(journal.read_bytes()[:-30])
    assert "torn" in data_of(write_page(run_rlmflow, family, tmp_path / "page.html"))["note"]
