"""Recursion over a corpus: the root never reads the text, it cuts it up and has sub-agents read the pieces.

Prints:

    3 chapters, 12 whales
    root: answered, 2 turns
    root.one: answered, 1 turn
    root.two: answered, 1 turn
    root.three: answered, 1 turn
"""
import rlmflow
from offline import Offline

CORPUS = "\n\n".join(f"CHAPTER {name}\n" + "A whale, and the sea. " * n
                     for name, n in (("one", 3), ("two", 4), ("three", 5)))

# What a model would write. Inputs are variables; a piece that is handed on is text, not a prompt.
model = Offline(
    """
chapters = corpus.split("\\n\\n")
print(len(chapters), "chapters of", [len(c) for c in chapters], "characters")
""",
    """
counts = await launch_subagents([
    {"query": "You are a sub-agent. How many whales are in the chapter?", "name": c.split()[1], "inputs": {"chapter": c}}
    for c in chapters
])
done(f"{len(chapters)} chapters, {sum(map(int, counts))} whales")
""",
    children=['done(chapter.count("whale"))'],
)

graph = rlmflow.Graph(query="How many whales are in the book?", inputs={"corpus": CORPUS})
print(rlmflow.Flow(model, runtime=rlmflow.SubprocessRuntime(), max_depth=1, workers=3).run(graph=graph))

for agent in graph.walk():
    turns = sum(node.type == "llm_output" for node in agent.nodes)
    print(f"{agent.agent_id}: {agent.reason}, {turns} turn{'s' * (turns > 1)}")
