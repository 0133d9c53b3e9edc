"""This package, a synchronous client."""
import sys

import rlmflow

LAST = "done('x')"
LENGTH = "done(str(len(text)))"
HOW = "64 at once"


def root(children):
    return (f"r = await launch_subagents([{{'query': f'child-{{i}}'}} for i in range({children})])\n"
            "done(str(sum(f'<{i}>' in a for i, a in enumerate(r))))")


class Client:
    def __init__(self, reply):
        self.reply = reply

    def chat(self, messages):
        return f"```repl\n{self.reply(messages[1]['content'])}\n```"


def flow(variant, reply, **limits):
    runtimes = {"LocalRuntime": rlmflow.LocalRuntime,
                "SubprocessRuntime": lambda: rlmflow.SubprocessRuntime(python=sys.executable, spare=4)}
    return rlmflow.Flow(Client(reply), runtime=runtimes[variant](), **limits)


def one(variant, reply):
    made = flow(variant, reply)
    return lambda: made.run("q")


def wide(variant, children, reply):
    made = flow(variant, reply, max_agents=children + 1, max_live=64, workers=64)
    return lambda: made.run("q")


def big(variant, text, reply):
    made = flow(variant, reply)
    return lambda: made.run("q", inputs={"text": text})
