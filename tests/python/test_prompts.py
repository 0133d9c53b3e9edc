"""PromptBuilder, and what of it reaches a model."""
import pytest
import rlmflow
from rlmflow import DEFAULT_BUILDER, SYSTEM_PROMPT, PromptBuilder
from test_flow import Replies, block


def asked(runtime, *, text="q", **options):
    """The system prompt of a run."""
    client = Replies(block("done('x')"))
    rlmflow.Flow(client, runtime=runtime, **options).run(text)
    assert client.asked[0][0]["role"] == "system"
    return client.asked[0][0]["content"]


def test_a_builder_renders_its_sections_in_order():
    builder = (PromptBuilder()
               .section("a", "\n  one\n    two\n", title="First")
               .section("none", "", title="Nothing")
               .section("c", lambda flow, graph: f"{flow} and {graph}", title="Third", level=3)
               .section("b", "plain", before="c"))
    assert builder.names == ["a", "none", "b", "c"]
    assert builder.build("F", "G") == "## First\n\none\n  two\n\nplain\n\n### Third\n\nF and G\n"
    assert builder.build("F", "G", b="other") == "## First\n\none\n  two\n\nother\n\n### Third\n\nF and G\n"


def test_each_method_leaves_its_builder_as_it_was():
    first = PromptBuilder().section("a", "1").section("b", "2")
    assert first.section("a", "3", title="T").build() == "## T\n\n3\n\n2\n"
    assert first.section("b", "3", before="a").names == first.section("a", "1", after="b").names == ["b", "a"]
    assert first.update("a", "3").build() == "3\n\n2\n" and first.remove("a").build() == "2\n"
    assert first.build() == "1\n\n2\n"


@pytest.mark.parametrize("use, error", [
    (lambda b: b.update("x", ""), KeyError), (lambda b: b.remove("x"), KeyError), (lambda b: b.build(x=""), KeyError),
    (lambda b: b.section("n", "", before="x"), KeyError), (lambda b: b.section("n", "", after="n"), KeyError),
    (lambda b: b.section("n", "", before="a", after="a"), ValueError),
    (lambda b: b.section("n", "", level=7), ValueError),
    (lambda b: b.update("a", lambda flow, graph: None).build(), TypeError)])
def test_wrong_uses_of_a_builder_are_refused(use, error):
    with pytest.raises(error):
        use(PromptBuilder().section("a", "1"))


@pytest.mark.parametrize("depth", [0, 2])
def test_the_default_builder_is_the_engines_own_prompt(depth, runtime):
    @rlmflow.tool("adds two numbers", proxy=True)
    def add(a: int, b: int) -> int:
        return a + b

    options = {"max_depth": depth, "tools": [add], "llm_clients": {"small": Replies()}}
    own = asked(runtime, **options)
    assert own == asked(runtime, prompt_builder=DEFAULT_BUILDER, **options)
    assert "`add(a: int, b: int) -> int`: adds two numbers" in own and "default, small" in own
    assert ("launch_subagents" in own) == (depth > 0)
    assert asked(runtime) == SYSTEM_PROMPT == DEFAULT_BUILDER.build()
    assert DEFAULT_BUILDER.names == ["role", "format", "session", "examples", "tools", "models"]


def test_a_flow_sends_what_its_builder_makes_to_each_agent(runtime):
    seen = {}

    class Tree:
        def chat(self, messages):
            child = "child task" in messages[1]["content"]
            seen["child" if child else "root"] = messages[0]["content"]
            return block("done('c')" if child else "done(str(await launch_subagents([{'query': 'child task'}])))")

    builder = (DEFAULT_BUILDER.remove("examples").update("role", "You count.")
               .section("who", lambda flow, graph: f"{graph.agent_id} of {flow.max_depth}", title="Who", after="role"))
    rlmflow.Flow(Tree(), runtime=runtime, max_depth=1, prompt_builder=builder).run("q")
    assert seen["root"].startswith("You count.\n\n## Who\n\nroot of 1\n\n")
    assert seen["child"].startswith("You count.\n\n## Who\n\nroot.child0 of 1\n\n")
    assert "Example" not in seen["root"]
    assert "launch_subagents" in seen["root"] and "launch_subagents" not in seen["child"]


def test_a_system_prompt_goes_before_a_builder_and_a_subclass_before_both(runtime):
    class Longer(rlmflow.Flow):
        def build_system_prompt(self, graph):
            return super().build_system_prompt(graph) + "And be brief."

    builder = PromptBuilder().section("a", "of the builder")
    assert asked(runtime, system_prompt="mine", prompt_builder=builder) == "mine"
    for options, begins in (({}, SYSTEM_PROMPT), ({"prompt_builder": builder}, "of the builder\n"),
                            ({"system_prompt": "mine"}, "mine")):
        client = Replies(block("done('x')"))
        Longer(client, runtime=runtime, **options).run("q")
        assert client.asked[0][0]["content"] == begins + "And be brief."


def test_a_builder_that_fails_fails_its_agent(runtime):
    builder = DEFAULT_BUILDER.section("bad", lambda flow, graph: 1 / 0)
    with pytest.raises(rlmflow.RunEnded, match="ZeroDivisionError"):
        asked(runtime, prompt_builder=builder)
