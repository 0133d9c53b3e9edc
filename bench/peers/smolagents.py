"""smolagents: CodeAgent with the local executor. A child is a managed agent, which keeps its memory in
itself, so the children run one by one. The limit of 30 s for a cell is lifted."""
from smolagents import CodeAgent, LogLevel
from smolagents.models import ChatMessage, MessageRole, Model
from smolagents.monitoring import TokenUsage

LAST = "final_answer('x')"
LENGTH = "final_answer(str(len(text)))"
HOW = "one by one"


def root(children):
    return (f"r = [child(f'child-{{i}}') for i in range({children})]\n"
            "final_answer(str(sum([f'<{i}>' in a for i, a in enumerate(r)])))")


class Client(Model):
    def __init__(self, reply):
        super().__init__(model_id="scripted")
        self.reply = reply

    def generate(self, messages, **kwargs):
        text = str(messages[1].content)
        return ChatMessage(MessageRole.ASSISTANT, f"<code>\n{self.reply(text)}\n</code>",
                           token_usage=TokenUsage(100, 10))


def agent(reply, **kwargs):
    return CodeAgent([], Client(reply), executor_kwargs={"timeout_seconds": None},
                     verbosity_level=LogLevel.OFF, **kwargs)


def one(variant, reply):
    made = agent(reply)
    return lambda: made.run("q")


def wide(variant, children, reply):
    child = agent(reply, name="child", description="answers")
    made = agent(reply, managed_agents=[child])
    return lambda: made.run("q")


def big(variant, text, reply):
    made = agent(reply)
    return lambda: made.run("q", additional_args={"text": text})
