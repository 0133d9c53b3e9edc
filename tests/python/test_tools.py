"""Tools of the host: what they are given, what becomes of what they return, and their limits."""
from textwrap import dedent

import pytest
import rlmflow
from test_flow import Replies, block


@pytest.fixture(params=["subprocess", "local"])
def anywhere(request, runtime):
    """Each runtime."""
    return runtime if request.param == "subprocess" else rlmflow.LocalRuntime()


def answer(code, *tools, runtime):
    """What the code of one cell gives to done()."""
    return rlmflow.Flow(Replies(block(dedent(code))), runtime=runtime, tools=list(tools)).run("q")


# ---- values


def test_large_values_cross_both_ways_however_deep_they_stand(anywhere):
    seen = []

    @rlmflow.tool("echoes", proxy=True)
    def echo(value):
        seen.append(value)
        return {"back": [value]}

    code = """
    text, data = "\\xe9" * 70_000, b"\\0\\xff" * 40_000
    values = [text, [text, {"k": (text, "small")}], data, {"d": [data]}, {1: text, "s": {data}}]
    done(str([echo(v) == {"back": [v]} for v in values]))
    """
    assert answer(code, echo, runtime=anywhere) == str([True] * 5)
    text, data = "\xe9" * 70_000, b"\0\xff" * 40_000
    assert seen == [text, [text, {"k": (text, "small")}], data, {"d": [data]}, {1: text, "s": {data}}]
