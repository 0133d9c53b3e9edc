"""rlmflow view --html: the page, in a real browser where there is one."""

import base64
import hashlib
import json
import re

import chromium
import pytest
import records
from replies import FAMILY, cell

# What a model may write, and must stay text.
EVIL = (
    "print('</script><script>window.hacked = 1</script>')\n"
    "print('<img src=x onerror=\"window.hacked = 2\"><svg onload=\"window.hacked = 3\">')\n"
    "print('<!--<script>', ']]>', '&lt;b&gt;', chr(0x2028), chr(0x2029), chr(0), chr(27) + '[31m')\n"
    "print('lone', chr(0xd800), 'turned', chr(0x202e), 'emoji', chr(0x1f600), '{{data}}')\n"
    "print('javascript:window.hacked=4', 'http://127.0.0.1:9/x.png')\n")


def write_page(run_rlmflow, run, page):
    r = run_rlmflow("view", run, "--html", page)
    assert (r.code, r.stdout) == (0, ""), r.stderr
    return page.read_text("utf-8")


@pytest.fixture
def family(run_rlmflow, scripted_model, tmp_path):
    path = tmp_path / "family.rlm"
    r = run_rlmflow("run", "Find <both> & join", "--model", scripted_model(FAMILY), "-q", "-o", path)
    assert r.code == 0, r.stderr
    return path


@pytest.fixture
def evil(run_rlmflow, scripted_model, tmp_path):
    path = tmp_path / "evil.rlm"
    script = [({"agent": "root", "turn": 1}, "</script><b>prose</b>\n" + cell(EVIL)),
              ({"agent": "root", "turn": 2}, cell("done('</textarea>' + 'x' * 10_000_000 + '<END>')"))]
    r = run_rlmflow("run", "</title><script>window.hacked = 5</script>", "--model",
                    scripted_model(script), "-q", "-o", path)
    assert r.code == 0, r.stderr
    return path


@pytest.fixture
def browser(tmp_path):
    if not chromium.find():
        pytest.skip("Chromium is not installed here")
    directory = tmp_path / "browser"
    directory.mkdir()
    made = chromium.Browser(directory)
    yield made
    made.close()


def data_of(page):
    """The run that stands in the page."""
    return json.loads(re.search(r'<script type="application/json" id="run">(.*?)</script>', page, re.S)[1])


def texts(run, agent, type):
    return [n for a in run["agents"] if a["id"] == agent for n in a["nodes"] if n["type"] == type]


# ---- the file ----

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


# ---- in the browser ----

ROWS = "[...document.querySelectorAll('#tree .row .name')].map((e) => e.textContent)"


def test_the_tree_an_agent_and_its_code(run_rlmflow, family, tmp_path, browser):
    write_page(run_rlmflow, family, tmp_path / "page.html")
    browser.open(tmp_path / "page.html")
    assert browser.run(ROWS) == ["root", "a", "b"]
    assert "3 agents" in browser.run("document.getElementById('facts').textContent")
    browser.run("document.querySelectorAll('#tree .row')[1].click()")
    assert browser.run("document.querySelector('.agent h2').textContent") == "root.a"
    assert 'done("A")' in browser.run("document.querySelector('pre.code').textContent")
    kinds = browser.run("[...document.querySelectorAll('pre.code span')].map((e) => [e.className, e.textContent])")
    assert ["d", "done"] in kinds and ["s", '"A"'] in kinds
    assert browser.problems() == []


def test_the_search_finds_and_opens(run_rlmflow, family, tmp_path, browser):
    write_page(run_rlmflow, family, tmp_path / "page.html")
    browser.open(tmp_path / "page.html")
    browser.press("/")
    assert browser.run("document.activeElement.id") == "search"
    browser.type('DONE("B')
    browser.press("Enter")
    browser.wait("document.querySelector('.found button')")
    assert browser.run("document.querySelectorAll('.found button').length") == 1
    assert browser.run("document.querySelector('.found mark').textContent") == 'done("B'
    browser.press("ArrowDown", "Enter")
    assert browser.run("document.querySelector('.agent h2').textContent") == "root.b"
    assert browser.run("document.activeElement.matches('.node.hit')")
    browser.run("document.getElementById('search').focus()")
    browser.run("document.getElementById('search').select()")
    browser.type("nowhere at all (.*")
    browser.wait("document.querySelector('.found')?.textContent.includes('Found nowhere')")
    assert browser.problems() == []


def test_the_tree_is_worked_by_keys(run_rlmflow, family, tmp_path, browser):
    write_page(run_rlmflow, family, tmp_path / "page.html")
    browser.open(tmp_path / "page.html")
    browser.run("document.querySelector('#tree .row').focus()")
    browser.press("ArrowDown", "ArrowDown", "Enter")
    assert browser.run("document.querySelector('.agent h2').textContent") == "root.b"
    browser.press("ArrowLeft", "ArrowLeft")
    assert browser.run(ROWS) == ["root"]
    browser.press("ArrowRight")
    assert browser.run(ROWS) == ["root", "a", "b"]
    browser.press("t")
    assert browser.run("document.querySelectorAll('.times .span').length") == 3
    browser.wait("[...document.querySelectorAll('.times canvas')].every((c) => c.width > 300)")
    drawn = ("(() => { const c = document.querySelector('.times canvas');"
             " return c.getContext('2d').getImageData(0, 3, c.width, 1).data.some((v) => v > 0); })()")
    assert browser.run(drawn)
    assert browser.problems() == []


def test_hostile_texts_run_no_script(run_rlmflow, evil, tmp_path, browser):
    write_page(run_rlmflow, evil, tmp_path / "page.html")
    browser.open(tmp_path / "page.html")
    shown = browser.run("document.getElementById('view').textContent")
    for text in ("</script><script>window.hacked = 1</script>", "<img src=x", "&lt;b&gt;",
                 "\u27e82028\u27e9", "\u2400", "\u241b[31m", "\u27e8202e\u27e9"):
        assert text in shown
    assert "<script>window.hacked = 5" in browser.run("document.getElementById('title').textContent")
    assert browser.run("document.querySelectorAll('img, svg, iframe, b, a').length") == 0
    # And where a text would become an element all the same, the policy holds.
    browser.run("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.hacked = 6\">')")
    browser.wait("true")
    assert browser.run("typeof window.hacked") == "undefined"


def test_colours_follow_the_reader(run_rlmflow, family, tmp_path, browser):
    write_page(run_rlmflow, family, tmp_path / "page.html")
    look = "getComputedStyle(document.body).backgroundColor"
    colors = []
    for scheme in ("light", "dark"):
        browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        browser.open(tmp_path / "page.html")
        colors.append(browser.run(look))
    assert colors[0] != colors[1]
    browser.run("document.getElementById('theme').click()")
    assert browser.run(look) == colors[0]
    assert browser.problems() == []


def test_a_phone_shows_all_without_scrolling_sideways(run_rlmflow, evil, tmp_path, browser):
    write_page(run_rlmflow, evil, tmp_path / "page.html")
    browser.call("Emulation.setDeviceMetricsOverride", width=360, height=740, deviceScaleFactor=2, mobile=True)
    browser.open(tmp_path / "page.html")
    assert browser.run("document.documentElement.scrollWidth") <= 360
    browser.run("document.getElementById('tab-time').click()")
    assert browser.run("document.documentElement.scrollWidth") <= 360


def append_nodes(run, count):
    """Puts outputs behind the first node of a run, and leaves out what followed."""
    kept = records.read(run)
    first = next(i for i, (kind, _) in enumerate(kept) if kind == "node")
    node = kept[first][1]
    records.write(run, kept[:first + 1] + [
        ("node", {**node, "id": f"n_{i:016x}", "type": "exec_output", "content": f"output number {i}",
                  "t": node["t"] + i * 1000}) for i in range(count)])


def test_ten_thousand_nodes_are_made_as_they_are_looked_at(run_rlmflow, family, tmp_path, browser):
    append_nodes(family, 10_000)
    write_page(run_rlmflow, family, tmp_path / "page.html")
    browser.open(tmp_path / "page.html")
    nodes = "document.querySelectorAll('.node').length"
    assert 20 <= browser.run(nodes) < 400
    before = browser.run(nodes)
    browser.run("document.getElementById('view').scrollTop = 1e9")
    browser.wait(f"{nodes} > {before}")
    browser.press("/")
    browser.type("output number 9876")
    browser.press("Enter")
    browser.wait("document.querySelector('.found button')")
    browser.press("ArrowDown", "Enter")
    assert browser.run("document.querySelector('.node.hit').textContent").endswith("output number 9876")
    assert browser.run(nodes) < 400
    assert browser.problems() == []
