"""The functions that the agent's code asks the host with."""
import _thread

from .agent_code import visible
from .errors import CellEnded, StopLoop
from .values import describe_kind
from .calls import asyncio_running_loop


class Api:
    """The functions that ask the host, and the coroutines of theirs that nobody has awaited yet."""

    def __init__(self, session):
        self.session = session
        self.unstarted = {}
        self.last_token = 0
        self.stop = None
        self.functions = (self.done, self.launch_subagents, self.llm_query, self.llm_query_batched,
                          self.budget)
        for function in self.functions[1:4]:
            self.mark_awaitable(function)

    @visible
    def done(self, answer):
        """Gives the answer of this agent and ends the cell. A schema that the answer fails is an
        exception here."""
        session = self.session
        text = str(answer)
        try:
            call = session.new_call("done", (("answer", answer),), {"text": text})
        except (TypeError, ValueError):
            call = session.new_call("done", (), {"text": text})
        session.perform(call)
        session.ended = True
        self.stop_the_rest()
        raise CellEnded("the answer was accepted")

    @visible
    def launch_subagents(self, specs):
        """Starts sub-agents, one for each spec (a dict with "query", ...), and returns their
        answers in that order; a failed one is a Failure in its place. To be awaited."""
        specs = as_list(specs, "launch_subagents(specs) takes a list of specs, not %s; write "
                        "launch_subagents([...])")
        specs = [dict(spec, output_schema=schema_text(spec["output_schema"]))
                 if isinstance(spec, dict) and "output_schema" in spec else spec for spec in specs]
        return self.coroutine("launch_subagents", (("specs", specs),), {})

    @visible
    def llm_query(self, prompt, model=None, output_schema=None):
        """Asks a model, without an agent; returns its reply. To be awaited."""
        return self.coroutine("llm_query", (("prompt", prompt),),
                              query_options(model, output_schema))

    @visible
    def llm_query_batched(self, prompts, model=None, output_schema=None):
        """Asks a model each of the prompts at once; returns the replies in that order; a failed one
        is a Failure in its place. To be awaited."""
        prompts = as_list(prompts, "llm_query_batched(prompts) takes a list of prompts, not %s")
        return self.coroutine("llm_query_batched", (("prompts", prompts),),
                              query_options(model, output_schema))

    @visible
    def budget(self):
        """What is left of the run's limits, as a dict."""
        return self.session.call("budget")

    def tool(self, spec):
        """A proxied tool, with the signature that its schema describes."""
        name = spec["name"]
        make = self.coroutine if spec.get("async") else self.session.call

        def call(*args, **kwargs):
            import inspect

            signature = call.__signature__
            more = signature.parameters.get("more")
            try:
                values = signature.bind(*args, **kwargs).arguments
            except TypeError as e:
                raise TypeError("%s() %s" % (name, e)) from None
            if more is not None and more.kind == inspect.Parameter.VAR_KEYWORD and "more" in values:
                values.update(values.pop("more"))
            return make(name, (), values)

        def sign(inspect):
            call.__signature__ = signature_of(spec.get("parameters") or {})

        call.__name__ = name
        call.__doc__ = describe_tool(spec)
        self.session.imports.when("inspect", sign)
        if spec.get("async"):
            self.mark_awaitable(call)
        return visible(call)

    # Coroutines.

    def coroutine(self, name, args, kwargs):
        """A coroutine of a host call, remembered until it starts."""
        self.last_token += 1
        coroutine = self.run(self.last_token, name, args, kwargs)
        coroutine.__name__ = coroutine.__qualname__ = name
        self.unstarted[self.last_token] = coroutine
        return coroutine

    async def run(self, token, name, args, kwargs):
        self.unstarted.pop(token, None)
        return await self.session.call_async(name, args, kwargs)

    def take_unstarted(self):
        """Those that were never awaited; closed ones are none."""
        waiting, self.unstarted = list(self.unstarted.values()), {}
        return [c for c in waiting if c.cr_frame is not None and not c.cr_running]

    def mark_awaitable(self, function):
        """For `asyncio.iscoroutinefunction`; it is none, but returns coroutines."""
        def mark(asyncio):
            import inspect

            if hasattr(inspect, "markcoroutinefunction"):
                inspect.markcoroutinefunction(function)
            else:
                plain = getattr(function, "__func__", function)
                plain._is_coroutine = asyncio.coroutines._is_coroutine

        self.session.imports.when("asyncio", mark)

    def stop_the_rest(self):
        """The cell may wait for something else than the task or thread that called done()."""
        if _thread.get_ident() != self.session.main_thread:
            self.session.interrupt = {"message": "the answer was accepted"}
            self.session.monitor.wake()
            return
        loop = asyncio_running_loop()
        if loop is not None:
            self.stop = loop.call_later(0.05, stop_loop)


def stop_loop():
    raise StopLoop


def as_list(items, refusal):
    if not isinstance(items, (dict, str, bytes)):
        try:
            return list(items)
        except TypeError:
            pass
    raise TypeError(refusal % describe_kind(items))


def query_options(model, output_schema):
    options = {}
    if model is not None:
        options["model"] = model
    if output_schema is not None:
        options["output_schema"] = schema_text(output_schema)
    return options


def schema_text(schema):
    """A JSON schema as text, for its "$ref" means nothing to the encoding of values; also that of a pydantic
    model or TypeAdapter."""
    for name in ("model_json_schema", "json_schema"):
        make = getattr(schema, name, None)
        if callable(make):
            schema = make()
            break
    if not isinstance(schema, dict):
        return schema
    from json import dumps

    return dumps(schema)


def signature_of(schema):
    """Required parameters come by position until an optional one came, then by keyword only."""
    from inspect import Parameter, Signature

    properties = schema.get("properties") or {}
    required = schema.get("required") or ()
    kind = Parameter.POSITIONAL_OR_KEYWORD
    optional_seen = False
    parameters = []
    for name, about in properties.items():
        if not is_name(name):
            continue
        default = Parameter.empty
        if name not in required:
            optional_seen = True
            default = about.get("default") if isinstance(about, dict) else None
        elif optional_seen:
            kind = Parameter.KEYWORD_ONLY
        parameters.append(Parameter(name, kind, default=default))
    if len(parameters) < max(len(properties), 1) or schema.get("additionalProperties"):
        parameters.append(Parameter("more", Parameter.VAR_KEYWORD))
    return Signature(parameters)


def is_name(text):
    from keyword import iskeyword

    return text.isidentifier() and not iskeyword(text)


def describe_tool(spec):
    text = spec.get("description") or ""
    properties = (spec.get("parameters") or {}).get("properties") or {}
    if properties:
        text += "\n"
    for name, about in properties.items():
        about = about if isinstance(about, dict) else {}
        text += "\n    %s: %s" % (name, about.get("description") or about.get("type") or "")
    return text
