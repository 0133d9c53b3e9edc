"""docs/inventory.md and docs/migrating.md: the tests that they name are there, and their counts are right."""
import re

import rlmflow
from conftest import ROOT
from test_flow import Replies, block

KINDS = ("test", "difference", "not applicable", "missing")


def rows():
    """(behaviour, kind, where) of each row of the inventory."""
    text = (ROOT / "docs/inventory.md").read_text()
    table = text.split("| part | behaviour | where |\n| --- | --- | --- |\n")[1]
    for line in table.splitlines():
        _, behaviour, where = line.strip("| ").split(" | ")
        kind = next((k for k in KINDS[1:] if where.startswith(k)), "test")
        yield behaviour, kind, where


def test_each_test_that_is_named_is_there():
    named = [where.strip("`") for _, kind, where in rows() if kind == "test"]
    assert len(named) > 100
    for where in named:
        file, _, name = where.partition("::")
        text = (ROOT / "tests" / file).read_text()
        assert name and re.search(rf"^def {name}\(|^TEST\({name}\)", text, re.M), where


def test_each_difference_is_a_row_and_each_exception_has_a_reason():
    differences = re.findall(r"^\| (\d+) \|", (ROOT / "docs/migrating.md").read_text(), re.M)
    assert differences == [str(i) for i in range(1, len(differences) + 1)]
    for behaviour, kind, where in rows():
        if kind == "difference":
            assert where.split()[1] in differences, behaviour
        elif kind != "test":
            assert len(where.partition(": ")[2]) > 10, behaviour


def test_the_counts_are_those_of_the_table():
    counted = [kind for _, kind, _ in rows()]
    text = (ROOT / "docs/inventory.md").read_text()
    said = re.search(r"^\| (\d+) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|$", text, re.M)
    assert [int(n) for n in said.groups()] == [len(counted), *(counted.count(kind) for kind in KINDS)]


def test_a_flow_is_a_client_of_another(runtime):
    inner = rlmflow.Flow(Replies(block("done('print(1); done(2)')")), runtime=runtime)
    outer = rlmflow.Flow(lambda messages: block(inner.run(messages[-1]["content"])), runtime=runtime)
    assert outer.run("q") == "2"
