"""An answer that a program can use: it fits a JSON Schema, or the agent is told why not and tries again.

Prints:

    told: ValueError: done() did not accept the answer: at /age: expected an integer, found "thirty"
    {'name': 'Ishmael', 'age': 30}
"""
import json

import rlmflow
from offline import Offline

runtime = rlmflow.SubprocessRuntime()  # code in plain child processes: it can do what you can do
# A model class of pydantic would do as well.
PERSON = {"type": "object", "required": ["name", "age"],
          "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}}

model = Offline('done({"name": "Ishmael", "age": "thirty"})', 'done({"name": "Ishmael", "age": 30})')

graph = rlmflow.Graph(query="Who tells the story?")
answer = rlmflow.Flow(model, runtime=runtime).run(graph=graph, output_schema=PERSON)
for node in graph.nodes:
    if node.type == "error_output":
        print("told:", node.content.splitlines()[-1])
print(json.loads(answer))
