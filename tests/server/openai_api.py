"""The OpenAI chat completions API: what it refuses, and how it words its answers."""

import json
import time

from . import chat, failures, tokens
from .chat import ApiError, is_int, is_number

FIELDS = {
    "messages", "model", "audio", "frequency_penalty", "function_call", "functions", "logit_bias",
    "logprobs", "max_completion_tokens", "max_tokens", "metadata", "modalities", "n",
    "parallel_tool_calls", "prediction", "presence_penalty", "prompt_cache_key",
    "prompt_cache_retention", "reasoning_effort", "response_format", "safety_identifier", "seed",
    "service_tier", "stop", "store", "stream", "stream_options", "temperature", "tool_choice",
    "tools", "top_logprobs", "top_p", "user", "verbosity", "web_search_options",
}

ROLES = ("system", "developer", "user", "assistant", "tool", "function")
_MESSAGE_FIELDS = {
    "role", "content", "name", "tool_calls", "tool_call_id", "function_call", "refusal", "audio",
    "annotations", "reasoning_content",
}

# name: (check, what is expected)
_TYPES = {
    "temperature": (lambda v: is_number(v) and 0 <= v <= 2, "a number from 0 to 2"),
    "top_p": (lambda v: is_number(v) and 0 <= v <= 1, "a number from 0 to 1"),
    "frequency_penalty": (lambda v: is_number(v) and -2 <= v <= 2, "a number from -2 to 2"),
    "presence_penalty": (lambda v: is_number(v) and -2 <= v <= 2, "a number from -2 to 2"),
    "n": (lambda v: v == 1 and is_int(v), "1 (this server gives one choice)"),
    "seed": (is_int, "an integer"),
    "max_tokens": (lambda v: is_int(v) and v >= 1, "an integer above 0"),
    "max_completion_tokens": (lambda v: is_int(v) and v >= 1, "an integer above 0"),
    "stream": (lambda v: isinstance(v, bool), "a boolean"),
    "logprobs": (lambda v: isinstance(v, bool), "a boolean"),
    "store": (lambda v: isinstance(v, bool), "a boolean"),
    "parallel_tool_calls": (lambda v: isinstance(v, bool), "a boolean"),
    "user": (lambda v: isinstance(v, str), "a string"),
    "reasoning_effort": (lambda v: v in ("none", "minimal", "low", "medium", "high", "xhigh"),
                         "one of none, minimal, low, medium, high, xhigh"),
    "verbosity": (lambda v: v in ("low", "medium", "high"), "one of low, medium, high"),
    "metadata": (lambda v: isinstance(v, dict), "an object"),
    "logit_bias": (lambda v: isinstance(v, dict), "an object"),
    "response_format": (lambda v: isinstance(v, dict)
                        and v.get("type") in ("text", "json_object", "json_schema"),
                        "an object with a type of text, json_object or json_schema"),
}


def _refuse(message, param=None, code="invalid_value", status=400):
    raise ApiError(status, failures.openai_error(message, param=param, code=code))


def check_auth(headers, keys):
    """Refuses a request without one of `keys` (None: anything goes)."""
    scheme, _, key = headers.get("authorization", "").partition(" ")
    if headers.get("authorization") is not None and (scheme != "Bearer" or not key.strip()):
        _refuse("The Authorization header must be 'Bearer KEY'.", code="invalid_api_key",
                status=401)
    if keys is None or key in keys:
        return
    if not key:
        _refuse("You didn't provide an API key. You need to provide your API key in an "
                "Authorization header using Bearer auth.", code=None, status=401)
    _refuse("Incorrect API key provided.", code="invalid_api_key", status=401)


def parse(data, headers, options):
    """The ChatRequest of a body; ApiError for what the API refuses. `options` has `allow_fields`
    (None: all) and `alternate` (roles must alternate, as some chat templates want)."""
    if headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        _refuse("The Content-Type header must be application/json.", code=None)
    try:
        body = chat.load_json(data)
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        _refuse("We could not parse the JSON body of your request.", code=None)
    _check_fields(body, options.allow_fields)
    request = chat.ChatRequest("openai", body["model"], body, headers)
    request.stream = body.get("stream") or False
    request.include_usage = bool((body.get("stream_options") or {}).get("include_usage"))
    for name in ("max_tokens", "max_completion_tokens"):
        if body.get(name) is not None:
            request.max_tokens, request.max_tokens_field = body[name], name
    stop = body.get("stop") or []
    request.stop = [stop] if isinstance(stop, str) else stop
    if body.get("tools"):
        text = json.dumps(body["tools"], ensure_ascii=False)
        request.segments.append((tokens.count(text), text.encode("utf-8"), False))
    _check_messages(body["messages"], request, options.alternate)
    return request


def _check_fields(body, allow_fields):
    if allow_fields is not None:
        for name in body:
            if name not in FIELDS and name not in allow_fields:
                near = chat.nearest(name, FIELDS)
                hint = f" Did you mean '{near}'?" if near else ""
                _refuse(f"Unknown parameter: '{name}'.{hint}", name, "unknown_parameter")
    if not isinstance(body.get("model"), str) or not body["model"]:
        _refuse("you must provide a model parameter", code=None)
    if "messages" not in body:
        _refuse("Missing required parameter: 'messages'.", "messages", "missing_required_parameter")
    for name, (holds, expected) in _TYPES.items():
        if body.get(name) is not None and not holds(body[name]):
            _refuse(f"Invalid value for '{name}': expected {expected}.", name)
    if body.get("max_tokens") is not None and body.get("max_completion_tokens") is not None:
        _refuse("Setting 'max_tokens' and 'max_completion_tokens' at the same time is not "
                "supported.", "max_tokens", "invalid_parameter_combination")
    options = body.get("stream_options")
    if options is not None:
        if not body.get("stream"):
            _refuse("The 'stream_options' parameter is only allowed when 'stream' is enabled.",
                    "stream_options")
        if not isinstance(options, dict) or set(options) - {"include_usage", "include_obfuscation"}:
            _refuse("Unknown parameter in 'stream_options'.", "stream_options", "unknown_parameter")
    stop = body.get("stop")
    if stop is not None and not isinstance(stop, str) and not (
            isinstance(stop, list) and 1 <= len(stop) <= 4
            and all(isinstance(s, str) and s for s in stop)):
        _refuse("Invalid 'stop': expected a string or 1 to 4 strings.", "stop")
    _check_tools(body)


def _check_tools(body):
    tools = body.get("tools")
    if tools is not None:
        if not isinstance(tools, list) or not tools:
            _refuse("Invalid 'tools': expected an array with minimum length 1.", "tools",
                    "empty_array")
        for i, tool in enumerate(tools):
            function = tool.get("function") if isinstance(tool, dict) else None
            if not isinstance(function, dict) or tool.get("type") != "function" or not isinstance(
                    function.get("name"), str) or not function["name"]:
                _refuse(f"Missing required parameter: 'tools[{i}].function'.",
                        f"tools[{i}].function", "missing_required_parameter")
    elif body.get("tool_choice") is not None:
        _refuse("'tool_choice' is only allowed when 'tools' are specified.", "tool_choice", None)


def _content(value, where, may_be_missing):
    """The text of a content. Empty content is refused."""
    if value is None and may_be_missing:
        return ""
    if isinstance(value, str):
        text = value
    elif isinstance(value, list) and value:
        text = ""
        for i, part in enumerate(value):
            if not isinstance(part, dict) or not isinstance(part.get("type"), str):
                _refuse(f"Missing required parameter: '{where}[{i}].type'.", f"{where}[{i}].type")
            if part["type"] in ("text", "refusal"):
                if not isinstance(part.get(part["type"]), str):
                    _refuse(f"Invalid type for '{where}[{i}].text': expected a string.",
                            f"{where}[{i}].text", "invalid_type")
                text += part[part["type"]]
            elif part["type"] in ("image_url", "input_audio", "file"):
                text += f"[{part['type']}]"
            else:
                _refuse(f"Invalid value: '{part['type']}'.", f"{where}[{i}].type")
    else:
        kind = "null" if value is None else type(value).__name__
        _refuse(f"Invalid value for 'content': expected a string, got {kind}.", where, None)
    if not text and not may_be_missing:
        _refuse(f"Invalid '{where}': the content of a message must not be empty.", where)
    return text


def _check_messages(messages, request, alternate):
    if not isinstance(messages, list):
        _refuse("Invalid type for 'messages': expected an array.", "messages", "invalid_type")
    if not messages:
        _refuse("Invalid 'messages': empty array. Expected an array with minimum length 1, but got "
                "an empty array instead.", "messages", "empty_array")
    waiting = set()
    before = None
    for i, message in enumerate(messages):
        where = f"messages[{i}]"
        if not isinstance(message, dict):
            _refuse(f"Invalid type for '{where}': expected an object.", where, "invalid_type")
        role = message.get("role")
        if role not in ROLES:
            _refuse(f"Invalid value: '{role}'. Supported values are: "
                    + ", ".join(f"'{name}'" for name in ROLES) + ".", f"{where}.role")
        unknown = set(message) - _MESSAGE_FIELDS
        if unknown:
            name = min(unknown)
            _refuse(f"Unknown parameter: '{where}.{name}'.", f"{where}.{name}", "unknown_parameter")
        if waiting and role != "tool":
            _refuse("An assistant message with 'tool_calls' must be followed by tool messages "
                    "responding to each 'tool_call_id'.", where, None)
        if alternate and (role == before or (before in (None, "system") and role == "assistant")):
            _refuse("Conversation roles must alternate user/assistant/user/assistant/...", where)
        before = role
        calls = _check_calls(message, where, role, waiting)
        text = _content(message.get("content"), f"{where}.content", bool(calls))
        if calls:
            text += json.dumps(message["tool_calls"], ensure_ascii=False)
            waiting.update(calls)
        request.add_message(role, [(text, False)])
    if waiting:
        _refuse("An assistant message with 'tool_calls' must be followed by tool messages "
                "responding to each 'tool_call_id'.", "messages", None)


def _check_calls(message, where, role, waiting):
    """The ids of the tool calls of a message; a tool message answers one of `waiting`."""
    if role == "tool":
        if message.get("tool_call_id") not in waiting:
            _refuse("Invalid parameter: messages with role 'tool' must be a response to a "
                    "preceding message with 'tool_calls'.", f"{where}.role", None)
        waiting.discard(message["tool_call_id"])
    calls = message.get("tool_calls")
    if calls is None:
        return []
    if role != "assistant" or not isinstance(calls, list) or not calls:
        _refuse(f"Invalid '{where}.tool_calls'.", f"{where}.tool_calls")
    for call in calls:
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or not isinstance(call.get("id"), str) or not isinstance(
                function.get("arguments"), str):
            _refuse(f"Invalid '{where}.tool_calls'.", f"{where}.tool_calls")
    return [call["id"] for call in calls]


def usage(record, reply, rule, sent=None):
    """The usage a rule makes the server report; None: missing. `sent`: output tokens so far."""
    if rule.usage == "missing":
        return None
    if rule.usage == "negative":
        return {"prompt_tokens": -7, "completion_tokens": -3, "total_tokens": -10}
    if rule.usage == "absurd":
        return {"prompt_tokens": 10**12, "completion_tokens": 10**15, "total_tokens": 10**15}
    output = reply.output_tokens if sent is None else sent
    result = {
        "prompt_tokens": record.input_tokens, "completion_tokens": output,
        "total_tokens": record.input_tokens + output,
        "prompt_tokens_details": {"cached_tokens": record.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": min(output, reply.reasoning_tokens)},
    }
    return {**result, **(rule.usage or {})}


def _finish(reply):
    return "stop" if reply.finish == "stop_sequence" else reply.finish


def _calls(reply):
    return [{"id": call["id"], "type": "function",
             "function": {"name": call["name"], "arguments": call["arguments"]}}
            for call in reply.calls]


def whole(request, record, reply, rule):
    """The answer in one piece."""
    message = {"role": "assistant", "content": reply.text, "refusal": None}
    if reply.calls:
        message["content"] = reply.text or None
        message["tool_calls"] = _calls(reply)
    if reply.reasoning:
        message[rule.reasoning_field] = reply.reasoning
    body = {
        "id": f"chatcmpl-{record.n}", "object": "chat.completion", "created": int(time.time()),
        "model": request.model, "system_fingerprint": "fp_test",
        "choices": [{"index": 0, "message": message, "logprobs": None,
                     "finish_reason": _finish(reply)}]}
    counted = usage(record, reply, rule)
    if counted is not None:
        body["usage"] = counted
    return body


def events(request, record, reply, rule, sse):
    """The stream: (bytes of an event, output tokens it carries)."""
    base = {"id": f"chatcmpl-{record.n}", "object": "chat.completion.chunk",
            "created": int(time.time()), "model": request.model, "system_fingerprint": "fp_test"}
    head = sse.json(base)[:-1]
    own = request.include_usage and rule.usage_place == "own" and rule.usage != "missing"
    sent = 0

    def chunk(delta, added=0, finish=None):
        nonlocal sent
        sent += added
        place = rule.usage_place
        tail = ',"usage":null' if own else ""
        if (place == "every" or (place == "last" and finish)) and rule.usage != "missing":
            tail = ',"usage":' + sse.json(usage(record, reply, rule, sent))
        end = sse.json(finish)
        return sse.event(f'{head},"choices":[{{"index":0,"delta":{delta},"logprobs":null,'
                         f'"finish_reason":{end}}}]{tail}}}'), added

    first = None if rule.null_first or reply.calls and not reply.text else ""
    yield chunk(sse.json({"role": "assistant", "content": first}))
    for name, text in ((rule.reasoning_field, reply.reasoning), ("content", reply.text)):
        meter = chat.TokenMeter()
        for piece in chat.text_pieces(rule, text):
            yield chunk(f'{{"{name}":{sse.json(piece)}}}', meter.add(piece))
    for index, call in enumerate(_calls(reply)):
        arguments = call["function"]["arguments"]
        meter = chat.TokenMeter()
        call = {"index": index, **call}
        if rule.tool_calls_whole:
            yield chunk(sse.json({"tool_calls": [call]}), meter.add(arguments))
            continue
        call["function"] = {**call["function"], "arguments": ""}
        yield chunk(sse.json({"tool_calls": [call]}))
        for piece in chat.text_pieces(rule, arguments):
            delta = {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}
            yield chunk(sse.json(delta), meter.add(piece))
    yield chunk("{}", 0, _finish(reply))
    if own:
        yield sse.event(f'{head},"choices":[],"usage":{sse.json(usage(record, reply, rule))}}}'), 0
    yield sse.event("[DONE]"), 0
