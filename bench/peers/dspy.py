"""dspy.RLM with its plain worker process. A child is a dspy.RLM made in the cell."""
import warnings
from types import SimpleNamespace

import dspy
from dspy.primitives import LocalInterpreter

LAST = "SUBMIT('x')"
LENGTH = "SUBMIT(str(len(text)))"
HOW = "64 threads"


def root(children):
    return ("import dspy\nfrom concurrent.futures import ThreadPoolExecutor\n"
            "def ask(i):\n    return dspy.RLM('query -> answer')(query=f'child-{i}').answer\n"
            f"with ThreadPoolExecutor(64) as pool:\n    r = list(pool.map(ask, range({children})))\n"
            "SUBMIT(str(sum(f'<{i}>' in a for i, a in enumerate(r))))")


class Client(dspy.BaseLM):
    def __init__(self, reply):
        super().__init__("scripted", cache=False)
        self.reply = reply

    def forward(self, prompt=None, messages=None, **kwargs):
        code = self.reply(messages[-1]["content"])
        text = f"[[ ## reasoning ## ]]\nr\n[[ ## code ## ]]\n```python\n{code}\n```\n[[ ## completed ## ]]"
        message = SimpleNamespace(content=text, tool_calls=None)
        return SimpleNamespace(choices=[SimpleNamespace(message=message, finish_reason="stop")],
                               usage={"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110},
                               model="scripted")


def module(signature, reply, calls=50):
    warnings.simplefilter("ignore")
    dspy.configure(lm=Client(reply))
    return dspy.RLM(signature, interpreter_factory=LocalInterpreter, max_llm_calls=calls)


def one(variant, reply):
    made = module("query -> answer", reply)
    return lambda: made(query="q").answer


def wide(variant, children, reply):
    made = module("query -> answer", reply, 2 * children)
    return lambda: made(query="q").answer


def big(variant, text, reply):
    made = module("text, query -> answer", reply)
    return lambda: made(text=text, query="q").answer
