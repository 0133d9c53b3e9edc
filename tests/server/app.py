"""Routes: the two model APIs, and the test's own /stats, /requests, /rules, /reset, /release."""

import asyncio
import json
import sys
import traceback
import urllib.parse
from dataclasses import dataclass

from . import anthropic_api, chat, failures, openai_api, rules
from .account import Account, PromptCache, Record
from .sender import Broken, Sender
from .wire import Connection

TOGETHER_LIMIT_S = 30

_JSON = {"Content-Type": "application/json"}
_MODELS_CREATED = 1735689600


@dataclass
class Options:
    """How strict a server is. `keys`: the accepted keys (None: any, or none). `models`: the known
    names (None: all). `allow_fields`: request fields accepted beyond those of the APIs (None: all,
    as many local servers do). `alternate`: the OpenAI side wants alternating roles."""

    keys: tuple | None = None
    models: tuple | None = None
    allow_fields: tuple | None = ()
    alternate: bool = False


class App:
    """State and routes; lives on one loop."""

    def __init__(self, options, account=None, cache=None):
        self.options = options
        self.account = account or Account()
        self.cache = cache or PromptCache()
        self.rules = rules.RuleSet()
        self.connections = set()
        self.faults = []
        self._next_connection = 0
        self._gates = {}
        self._waiting = []  # (how many, future)

    # For wire.Connection.

    def make_connection(self):
        """A protocol for a new socket."""
        self._next_connection += 1
        return Connection(self, self._next_connection)

    def opened(self, connection):
        """A connection began."""
        self.connections.add(connection)
        self.account.connection_opened()

    def closed(self, connection):
        """A connection ended."""
        self.connections.discard(connection)
        self.account.connection_closed()

    async def handle(self, request, response):
        """Answers one request."""
        apis = {"/v1/chat/completions": openai_api, "/v1/messages": anthropic_api}
        api = apis.get(request.path)
        try:
            if api is not None and request.method == "POST":
                await self._model(api, request, response)
            elif request.path == "/v1/models" or request.path.startswith("/v1/models/"):
                self._models(request, response)
            else:
                self._control(request, response)
        except Broken:
            pass
        except Exception:
            # A fault of this server or of a rule's callable must be loud: the client sees a broken
            # connection, the test this text and a failure at the server's end.
            self.faults.append(traceback.format_exc())
            print(self.faults[-1], file=sys.stderr)
            response.keep_alive = False

    def _json(self, response, status, body, headers=None):
        data = json.dumps(body, ensure_ascii=False).encode("utf-8", "surrogatepass")
        response.send(status, {**_JSON, **(headers or {})}, data)

    # The model APIs.

    async def _model(self, api, request, response):
        record = Record(
            api="anthropic" if api is anthropic_api else "openai", method=request.method,
            path=request.path, headers=request.headers, connection=request.connection_id,
            bytes_in=len(request.body))
        self.account.begin(record)
        self._wake_together()
        try:
            await self._chat(api, request, response, record)
        except chat.ApiError as exc:
            self._error(response, record, exc.status, exc.body)
        except asyncio.CancelledError:
            self.account.finish(record, "stalled" if record.stalled else "client_left")
            raise
        finally:
            self.account.finish(record, "failed")  # only after a fault of this server
            record.bytes_out = response.bytes_sent
            self.account.sums["bytes_out"] += record.bytes_out

    def _error(self, response, record, status, body):
        record.status = status
        record.error = body.get("error", body).get("message")
        self.account.finish(record, "error")
        self._json(response, status, body, self._id_headers(record))

    def _id_headers(self, record):
        name = "request-id" if record.api == "anthropic" else "x-request-id"
        return {name: f"req_{record.n}"}

    async def _chat(self, api, request, response, record):
        asked = None
        try:
            api.check_auth(request.headers, self.options.keys)
            asked = api.parse(request.body, request.headers, self.options)
        finally:
            self.account.keep_body(record, asked.body if asked else _loose_json(request.body))
        asked.n = record.n
        record.model, record.stream = asked.model, asked.stream
        record.max_tokens, record.max_tokens_field = asked.max_tokens, asked.max_tokens_field
        if self.options.models is not None and asked.model not in self.options.models:
            raise chat.ApiError(404, failures.plain_error(record.api, 404, asked.model))
        rule = self._choose(asked, record)
        await self._before_head(rule)
        sender = Sender(response, rule, record,
                        lambda outcome: self.account.finish(record, outcome), self.account.stall)
        await sender.fault(-1)
        if rule.close_after is True:
            response.keep_alive = False
        if rule.fails:
            self._fail(rule, asked, response, record)
        else:
            await self._reply(api, rule, asked, response, record, sender)
        if rule.close_after:
            response.keep_alive = False

    def _choose(self, asked, record):
        """The rule for a request, its reply a text."""
        index, rule, use = self.rules.choose(asked)
        if rule is None and self.rules.rules:
            raise chat.ApiError(400, failures.plain_error(
                record.api, 400, message="no rule of the test server matches this request"))
        rule = rule or rules.Rule()
        record.rule = index
        reply = rule.reply_at(use, asked)
        if isinstance(reply, dict):
            return self.rules.changed(rule, reply)
        return self.rules.changed(rule, {"reply": reply})

    async def _before_head(self, rule):
        if rule.first_byte_delay_ms:
            await asyncio.sleep(rule.first_byte_delay_ms / 1000)
        if rule.gate is not None:
            await self._gates.setdefault(rule.gate, asyncio.Event()).wait()
        if rule.together > self.account.open_requests:
            future = asyncio.get_running_loop().create_future()
            self._waiting.append((rule.together, future))
            try:
                await asyncio.wait_for(future, TOGETHER_LIMIT_S)
            except asyncio.TimeoutError:
                raise chat.ApiError(500, failures.plain_error(
                    "openai", 500, message=f"{rule.together} requests were never open at once")
                ) from None

    def _wake_together(self):
        still = []
        for wanted, future in self._waiting:
            if self.account.open_requests < wanted:
                still.append((wanted, future))
            elif not future.done():
                future.set_result(None)
        self._waiting = still

    def _fail(self, rule, asked, response, record):
        status, headers, body = failures.error_answer(rule, asked)
        record.status = status
        record.error = rule.error or rule.message
        self.account.finish(record, "error")
        response.send(status, {**self._id_headers(record), **headers, **rule.headers}, body)

    async def _reply(self, api, rule, asked, response, record, sender):
        record.status = 200
        record.input_tokens = asked.input_tokens
        record.cached_tokens, record.cache_write_tokens = self.cache.look_up(asked)
        reply = chat.make_reply(rule, rule.reply, asked)
        record.reasoning_tokens = reply.reasoning_tokens
        sse = chat.Sse(rule)
        headers = {**self._id_headers(record), **rule.headers}
        if asked.stream and not rule.ignore_stream:
            response.start(200, {"Content-Type": "text/event-stream; charset=utf-8",
                                 "Cache-Control": "no-cache", **headers}, rule.framing)
            await sender.stream(api.events(asked, record, reply, rule, sse), record.api, sse)
            return
        if rule.error_after is not None:
            body = failures.in_band(record.api, rule.error_form, rule.message)[1]
        else:
            body = api.whole(asked, record, reply, rule)
        await sender.whole(sse.json(body).encode("utf-8", "surrogatepass"), {**_JSON, **headers},
                           reply.output_tokens)

    def _models(self, request, response):
        anthropic = "anthropic-version" in request.headers
        api = anthropic_api if anthropic else openai_api
        name = "anthropic" if anthropic else "openai"
        known = self.options.models or ("test-model",)
        wanted = urllib.parse.unquote(request.path[len("/v1/models/"):])
        try:
            api.check_auth(request.headers, self.options.keys)
            if request.method != "GET":
                raise chat.ApiError(405, failures.plain_error(name, 405))
            if wanted and self.options.models is not None and wanted not in known:
                raise chat.ApiError(404, failures.plain_error(name, 404, wanted))
        except chat.ApiError as exc:
            self._json(response, exc.status, exc.body)
            return
        listed = [_model_info(model, anthropic) for model in ([wanted] if wanted else known)]
        if wanted:
            self._json(response, 200, listed[0])
        elif anthropic:
            self._json(response, 200, {"data": listed, "has_more": False,
                                       "first_id": known[0], "last_id": known[-1]})
        else:
            self._json(response, 200, {"object": "list", "data": listed})

    # The test's side.

    def _control(self, request, response):
        try:
            self._control_route(request, response)
        except (ValueError, KeyError, TypeError) as exc:
            self._json(response, 400, {"error": f"{type(exc).__name__}: {exc}"})

    def _control_route(self, request, response):
        route = (request.method, request.path)
        if route == ("GET", "/stats"):
            self._json(response, 200, self.account.stats())
        elif route == ("GET", "/requests"):
            self._json(response, 200, [record.to_json() for record in self.account.records])
        elif route == ("POST", "/reset"):
            self.reset()
            self._json(response, 200, {})
        elif route == ("POST", "/rules"):
            body = chat.load_json(request.body)
            self.set_rules(body["rules"] if isinstance(body, dict) else body)
            self._json(response, 200, {"rules": len(self.rules.rules)})
        elif route == ("POST", "/release"):
            self.release(chat.load_json(request.body)["gate"])
            self._json(response, 200, {})
        elif request.headers.get("anthropic-version"):
            self._json(response, 404, failures.anthropic_error("Not found", "not_found_error"))
        else:
            self._json(response, 404, failures.openai_error(
                f"Invalid URL ({request.method} {request.path})"))

    def set_rules(self, given):
        """Replaces the rules."""
        if not isinstance(given, (list, tuple)):
            raise ValueError("rules are a list")
        self.rules = rules.RuleSet(given)

    def reset(self):
        """Forgets records, totals, uses of rules, gates and the prompt cache; the rules stay."""
        self.account.clear()
        self.cache.clear()
        self.rules.restart()
        for gate in self._gates.values():
            gate.set()
        self._gates = {}

    def release(self, gate):
        """Lets through whoever waits at a gate, and who will."""
        self._gates.setdefault(gate, asyncio.Event()).set()


def _model_info(model, anthropic):
    if anthropic:
        return {"type": "model", "id": model, "display_name": model,
                "created_at": "2025-01-01T00:00:00Z", "lifecycle": "active"}
    return {"id": model, "object": "model", "created": _MODELS_CREATED, "owned_by": "test"}


def _loose_json(data):
    """A refused body, for the record: as JSON if it is any, else as text."""
    try:
        return json.loads(data)
    except ValueError:
        return data.decode("utf-8", "replace")
