"""docs/inventory.md and docs/migrating.md: the tests that they name are there, their counts are right, and the names that
are known from elsewhere are here or stand there."""
import inspect
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


EXPORTS = """ActionNode AddChild AppendNode ConsumerGroup DEFAULT_BUILDER DoneOutput DoneSignal DockerRuntime ErrorOutput Event
ExecAction ExecOutput FILE_TOOLS find_code_blocks Flow FlowLLM Graph GraphAction GraphCheckpoint GraphCheckpointer
GraphCreated InsertNode LLMOutput LLMUsage LiveTreeRenderer LocalRuntime MissingReplError ModalRuntime DSPyFlow Node
ObservationNode open_viewer Pool PromptBuilder replay save_image save_steps Repl ReplLike RemoveChild RemoveNode ReplaceNode
ResumeAction Runtime SYSTEM_PROMPT Schema SequentialPool StructuredOutputError StructuredOutputParser SubprocessRuntime
SupervisingOutput StreamConsumer ThreadPool ToolMetadata UserQuery WorkspaceSync apply_graph_action code_block
format_tool_line get_tool_metadata json_schema_for load_run messages_to_query node_from_dict render_tree tool tui"""
OF_FLOW = """run arun run_streaming parallel_stream parallel_run run_for resolve_run finish_run schedule_agent should_continue
run_agent_task run_agent terminate exec_turn repl_for close_repl close_repls rebuild_repl fork discard launch_subagents
append_node apply_action messages build_system_prompt llm_client llm_query_batched add_tool remove_tool
tool_namespace_for_prompt build_tools"""
OF_GRAPH = """current result finished tokens total_tokens usage commit agent_for walk agents set_graph_id save load to_dict
from_dict inject append prepend replace remove_node remove_child rewind checkpoint revert merge fork"""
OPTIONS = """max_depth max_iters child_max_iters max_messages max_output_length max_query_chars max_budget
llm_request_timeout system_prompt prompt_builder tools runtime llm_clients workers pool use_llm_query
enable_structured_output"""


def test_each_name_that_is_known_is_here_or_stands_in_the_table():
    table = (ROOT / "docs/migrating.md").read_text().split("| name | now |\n")[1].split("\n\n")[0]
    gone = {name for row in table.splitlines() for name in re.findall(r"`([^`]+)`", row.split(" | ")[0])}
    flow, streaming = (inspect.signature(f).parameters for f in (rlmflow.Flow, rlmflow.Flow.run_streaming))
    here = {*(n for n in EXPORTS.split() if hasattr(rlmflow, n)),
            *(f"Flow.{n}" for n in OF_FLOW.split() if hasattr(rlmflow.Flow, n)),
            *(f"Graph.{n}" for n in OF_GRAPH.split() if hasattr(rlmflow.Graph, n)),
            *(f"Flow({n}=)" for n in OPTIONS.split() if n in flow),
            *(f"run_streaming({n}=)" for n in ("close_repls", "until", "n") if n in streaming)}
    known = {*EXPORTS.split(), *(f"Flow.{n}" for n in OF_FLOW.split()), *(f"Graph.{n}" for n in OF_GRAPH.split()),
             *(f"Flow({n}=)" for n in OPTIONS.split()), *(f"run_streaming({n}=)" for n in ("close_repls", "until", "n"))}
    assert known - here == gone


def test_a_flow_is_a_client_of_another(runtime):
    inner = rlmflow.Flow(Replies(block("done('print(1); done(2)')")), runtime=runtime)
    outer = rlmflow.Flow(lambda messages: block(inner.run(messages[-1]["content"])), runtime=runtime)
    assert outer.run("q") == "2"
