"""A model server for tests and benchmarks, standard library only.

It speaks the OpenAI chat completions API and the Anthropic messages API, refuses what they refuse,
answers by rules, fails on purpose, and counts for itself. rules.py says what a rule can do,
account.py what is counted, tokens.py what a token is, model_server.py how to run it in a test:

    with ModelServer(rules=[{"match": {"user": "^hi"}, "reply": "hello"}]) as server: ...

As a program: `python3 -m server --port 8080 --rules FILE` (in the folder that holds `server`).
Besides the APIs it has GET /stats, GET /requests, POST /rules, POST /reset, POST /release.
"""

from .chat import ChatRequest
from .model_server import ModelServer
from .rules import Rule

__all__ = ["ChatRequest", "ModelServer", "Rule"]
