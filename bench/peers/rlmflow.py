"""rlmflow 0.3.2: LocalRuntime, the run in memory. A further run of an engine goes on with the agent and the
messages of the one before, so each run makes an engine."""
from rlmflow import LLMClient, RLMConfig, RLMFlow
from rlmflow.runtime.local import LocalRuntime

LAST = "done('x')"
LENGTH = "done(str(len(CONTEXT.read())))"
HOW = "64 at once"


def root(children):
    return (f"h = [rlm_delegate(name=f'c{{i}}', query=f'child-{{i}}', context='')\n"
            f"     for i in range({children})]\n"
            "r = await rlm_wait(*h)\n"
            "done(str(sum(f'<{i}>' in a for i, a in enumerate(r))))")


class Client(LLMClient):
    def __init__(self, reply):
        self.reply = reply

    def chat(self, messages, *args, **kwargs):
        return f"```repl\n{self.reply(messages[1]['content'])}\n```"


def run(client, pool, **kwargs):
    engine = RLMFlow(client, runtime=LocalRuntime(), config=RLMConfig(max_concurrency=pool))
    return engine.run("q", **kwargs)


def one(variant, reply):
    return lambda: run(Client(reply), 1)


def wide(variant, children, reply):
    return lambda: run(Client(reply), 64)


def big(variant, text, reply):
    return lambda: run(Client(reply), 1, context=text)
