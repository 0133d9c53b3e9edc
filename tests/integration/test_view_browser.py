"""The page of rlmflow view --html in a real browser. Where there is none, all of these fail and say so."""

import chromium
import pytest
import records
from pages import evil, family, write_page  # noqa: F401


@pytest.fixture
def browser(tmp_path):
    directory = tmp_path / "browser"
    directory.mkdir()
    made = chromium.Browser(directory)
    yield made
    made.close()


ROWS = "[...document.querySelectorAll('#tree .row .name')].map((e) => e.textContent)"


def test_the_tree_an_agent_and_its_code(run_rlmflow, family, tmp_path, browser):
    write_page(run_rlmflow, family, tmp_path / "page.html")
    browser.open(tmp_path / "page.html")
    assert browser.run(ROWS) == ["root", "a", "b"]
    assert "3 agents" in browser.run("document.getElementById('facts').textContent")
    label = "getComputedStyle(document.querySelector('details.part:not([open]) > summary'))"
    assert browser.run(f"{label}.paddingTop") == browser.run(f"{label}.paddingBottom") != "0px"
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


@pytest.mark.replayed("never", "its records are made up")
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
