"""Runs whose pages are tested (rlmflow view --html), and their pages."""

import pytest
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
