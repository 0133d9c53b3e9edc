"""The Anthropic messages API: what it refuses, and how it words its answers."""

import json

from . import chat, failures, tokens
from .chat import ApiError, is_int, is_number

FIELDS = {
    "model", "messages", "max_tokens", "system", "metadata", "stop_sequences", "stream",
    "temperature", "top_p", "top_k", "tools", "tool_choice", "thinking", "service_tier",
    "container", "cache_control", "output_config", "inference_geo", "speed",
}

VERSIONS = ("2023-01-01", "2023-06-01", "2026-10-21")

# What the newest version has removed; older ones take it.
_REMOVED = {"2026-10-21": ("temperature", "top_p", "top_k")}
MAX_CACHE_MARKS = 4

_TYPES = {
    "max_tokens": (lambda v: is_int(v) and v >= 1, "Input should be greater than or equal to 1"),
    "stream": (lambda v: isinstance(v, bool), "Input should be a valid boolean"),
    "temperature": (lambda v: is_number(v) and 0 <= v <= 1, "range: 0..1"),
    "top_p": (lambda v: is_number(v) and 0 <= v <= 1, "range: 0..1"),
    "top_k": (lambda v: is_int(v) and v >= 0, "Input should be greater than or equal to 0"),
    "metadata": (lambda v: isinstance(v, dict), "Input should be a valid dictionary"),
    "stop_sequences": (lambda v: isinstance(v, list)
                       and all(isinstance(s, str) and s.strip() for s in v),
                       "each stop sequence must contain non-whitespace"),
    "tools": (lambda v: isinstance(v, list), "Input should be a valid list"),
}

# Fields of the content blocks that may stand in a message, beyond type and cache_control.
_BLOCKS = {
    "text": {"text", "citations"},
    "image": {"source"},
    "document": {"source", "title", "context", "citations"},
    "thinking": {"thinking", "signature"},
    "redacted_thinking": {"data"},
    "tool_use": {"id", "name", "input", "caller"},
    "tool_result": {"tool_use_id", "content", "is_error"},
}


def _refuse(message, type_="invalid_request_error", status=400):
    raise ApiError(status, failures.anthropic_error(message, type_))


def check_auth(headers, keys):
    """Refuses a request without the version header or without one of `keys` (None: anything)."""
    key = headers.get("x-api-key")
    if key is None:
        key = headers.get("authorization", "").removeprefix("Bearer ")
    if keys is not None and key not in keys:
        _refuse("invalid x-api-key" if key else "x-api-key header is required",
                "authentication_error", 401)
    version = headers.get("anthropic-version")
    if version is None:
        _refuse("anthropic-version: header is required")
    if version not in VERSIONS:
        _refuse(f'anthropic-version: "{version}" is not a valid version')


def parse(data, headers, options):
    """The ChatRequest of a body; ApiError for what the API refuses. `options` as in openai_api."""
    if headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        _refuse("content-type: must be application/json")
    try:
        body = chat.load_json(data)
    except (ValueError, RecursionError):
        _refuse("The request body is not valid JSON")
    if not isinstance(body, dict):
        _refuse("Input should be a valid dictionary")
    _check_fields(body, options.allow_fields)
    for name in _REMOVED.get(headers["anthropic-version"], ()):
        if name in body:
            _refuse(f"{name}: Extra inputs are not permitted")
    request = chat.ChatRequest("anthropic", body["model"], body, headers)
    request.stream = body.get("stream") or False
    request.include_usage = True
    request.max_tokens, request.max_tokens_field = body["max_tokens"], "max_tokens"
    request.stop = body.get("stop_sequences") or []
    marks = _check_tools(body, request)
    if body.get("system") is not None:
        blocks = _blocks(body["system"], "system", ("text",))
        marks += sum(mark for _, mark in blocks)
        request.add_message("system", blocks)
    marks += _check_messages(body["messages"], request)
    if body.get("cache_control") is not None:
        # The same as a mark on the last block.
        size, text, _ = request.segments[-1]
        request.segments[-1] = (size, text, True)
        marks += 1
    if marks > MAX_CACHE_MARKS:
        _refuse(f"A maximum of {MAX_CACHE_MARKS} blocks with cache_control may be provided. "
                f"Found {marks}.")
    return request


def _check_fields(body, allow_fields):
    for name in ("model", "messages", "max_tokens"):
        if name not in body:
            _refuse(f"{name}: Field required")
    if not isinstance(body["model"], str) or not body["model"]:
        _refuse("model: Input should be a valid string")
    if allow_fields is not None:
        for name in body:
            if name not in FIELDS and name not in allow_fields:
                near = chat.nearest(name, FIELDS)
                hint = f" (did you mean {near}?)" if near else ""
                _refuse(f"{name}: Extra inputs are not permitted{hint}")
    for name, (holds, message) in _TYPES.items():
        if (name in body and body[name] is not None or name == "max_tokens") and not holds(
                body[name]):
            _refuse(f"{name}: {message}")
    if body.get("cache_control") is not None:
        _cache_mark(body, "request")
    thinking = body.get("thinking")
    if thinking is None:
        return
    if not isinstance(thinking, dict) or thinking.get("type") not in (
            "enabled", "disabled", "adaptive", "between_tools"):
        _refuse("thinking: Input tag should be one of enabled, disabled, adaptive, between_tools")
    if thinking["type"] == "enabled":
        budget = thinking.get("budget_tokens")
        if not is_int(budget) or budget < 1024:
            _refuse("thinking.enabled.budget_tokens: Input should be greater than or equal to 1024")
        if budget >= body["max_tokens"]:
            _refuse("`max_tokens` must be greater than `thinking.budget_tokens`.")
        if body.get("temperature", 1) != 1:
            _refuse("`temperature` may only be set to 1 when thinking is enabled.")


def _cache_mark(block, where):
    """True when a prompt cache ends at the block."""
    mark = block.get("cache_control")
    if mark is None:
        return False
    if not isinstance(mark, dict) or mark.get("type") != "ephemeral" or set(mark) - {"type", "ttl"}:
        _refuse(f"{where}.cache_control: Input tag should be 'ephemeral'")
    if mark.get("ttl", "5m") not in ("5m", "1h"):
        _refuse(f"{where}.cache_control.ttl: Input should be '5m' or '1h'")
    return True


def _check_tools(body, request):
    """Adds the tools to the prompt, which they begin; the number of cache marks."""
    marks = 0
    for i, tool in enumerate(body.get("tools") or []):
        if not isinstance(tool, dict) or not isinstance(tool.get("name"), str):
            _refuse(f"tools.{i}.custom.name: Field required")
        if tool.get("type", "custom") == "custom":
            schema = tool.get("input_schema")
            if not isinstance(schema, dict) or schema.get("type") != "object":
                _refuse(f"tools.{i}.custom.input_schema: Field required")
        mark = _cache_mark(tool, f"tools.{i}")
        marks += mark
        text = json.dumps(tool, ensure_ascii=False)
        request.segments.append((tokens.count(text), text.encode("utf-8"), mark))
    choice = body.get("tool_choice")
    if choice is not None:
        if not isinstance(choice, dict) or choice.get("type") not in (
                "auto", "any", "tool", "none"):
            _refuse("tool_choice: Input tag should be one of auto, any, tool, none")
        if not body.get("tools"):
            _refuse("tool_choice may only be specified while providing tools.")
    return marks


def _block_text(block, where):
    kind = block["type"]
    if kind == "text":
        text = block.get("text")
        if not isinstance(text, str):
            _refuse(f"{where}.text.text: Field required")
        if not text:
            if block.get("cache_control") is not None:
                _refuse(f"{where}: cache_control cannot be set for empty text blocks")
            _refuse(f"{where.partition('.')[0]}: text content blocks must be non-empty")
        if not text.strip():
            _refuse(f"{where.partition('.')[0]}: text content blocks must contain non-whitespace "
                    "text")
        return text
    return json.dumps({k: v for k, v in block.items() if k != "cache_control"}, ensure_ascii=False)


def _blocks(content, where, allowed=None):
    """A content as (text, cache mark) blocks."""
    if isinstance(content, str):
        content = [{"type": "text", "text": content}] if content else []
    if not isinstance(content, list):
        _refuse(f"{where}: Input should be a valid list")
    result = []
    for i, block in enumerate(content):
        kind = block.get("type") if isinstance(block, dict) else None
        if kind not in (allowed or _BLOCKS):
            _refuse(f"{where}.{i}.type: Input tag '{kind}' found does not match any of the "
                    f"expected tags: {', '.join(allowed or _BLOCKS)}")
        unknown = set(block) - _BLOCKS[kind] - {"type", "cache_control"}
        if unknown:
            _refuse(f"{where}.{i}.{kind}.{min(unknown)}: Extra inputs are not permitted")
        text = _block_text(block, f"{where}.{i}")
        result.append((text, _cache_mark(block, f"{where}.{i}.{kind}")))
    return result


def _tool_ids(content, kind, name):
    if not isinstance(content, list):
        return set()
    return {block.get(name) for block in content
            if isinstance(block, dict) and block.get("type") == kind}


def _check_messages(messages, request):
    """Adds the messages; the number of cache marks."""
    if not isinstance(messages, list):
        _refuse("messages: Input should be a valid list")
    if not messages:
        _refuse("messages: at least one message is required")
    marks, before, waiting = 0, None, set()
    for i, message in enumerate(messages):
        if not isinstance(message, dict) or "content" not in message:
            _refuse(f"messages.{i}.content: Field required")
        role = message.get("role")
        if role == "system":
            _refuse('messages: Unexpected role "system". The Messages API accepts a top-level '
                    '`system` parameter, not "system" as an input message role.')
        if role not in ("user", "assistant"):
            _refuse(f'messages: Unexpected role "{role}". Allowed roles are "user" or "assistant"')
        if set(message) - {"role", "content"}:
            _refuse(f"messages.{i}.{min(set(message) - {'role', 'content'})}: Extra inputs are not "
                    "permitted")
        if before is None and role != "user":
            _refuse('messages: first message must use the "user" role')
        if role == before:
            _refuse('messages: roles must alternate between "user" and "assistant", but found '
                    f'multiple "{role}" roles in a row')
        before = role
        answered = _tool_ids(message["content"], "tool_result", "tool_use_id")
        if answered - waiting:
            _refuse(f"messages.{i}.content.0: unexpected `tool_use_id` found in `tool_result` "
                    "blocks. Each `tool_result` block must have a corresponding `tool_use` block "
                    "in the previous message.")
        if waiting - answered:
            _refuse(f"messages.{i}: `tool_use` ids were found without `tool_result` blocks "
                    "immediately after.")
        waiting = _tool_ids(message["content"], "tool_use", "id")
        blocks = _blocks(message["content"], f"messages.{i}.content")
        last = i == len(messages) - 1
        if not blocks and not (last and role == "assistant"):
            _refuse(f"messages.{i}: all messages must have non-empty content except for the "
                    "optional final assistant message")
        if last and role == "assistant" and blocks and blocks[-1][0] != blocks[-1][0].rstrip():
            _refuse("messages: final assistant content cannot end with trailing whitespace")
        marks += sum(mark for _, mark in blocks)
        request.add_message(role, blocks)
    return marks


def usage(record, reply, rule, sent=None):
    """The usage a rule makes the server report; None: missing. `sent`: output tokens so far."""
    if rule.usage == "missing":
        return None
    if rule.usage == "negative":
        return {"input_tokens": -7, "cache_creation_input_tokens": 0,
                "cache_read_input_tokens": 0, "output_tokens": -3}
    if rule.usage == "absurd":
        return {"input_tokens": 10**12, "cache_creation_input_tokens": 0,
                "cache_read_input_tokens": 0, "output_tokens": 10**15}
    output = reply.output_tokens if sent is None else sent
    result = {
        "input_tokens": record.input_tokens - record.cached_tokens - record.cache_write_tokens,
        "cache_creation_input_tokens": record.cache_write_tokens,
        "cache_read_input_tokens": record.cached_tokens,
        "output_tokens": output,
        "output_tokens_details": {"thinking_tokens": min(output, reply.reasoning_tokens)},
    }
    return {**result, **(rule.usage or {})}


_FINISH = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}


def _finish(reply):
    return _FINISH.get(reply.finish, reply.finish)


def _load_arguments(text):
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def whole(request, record, reply, rule):
    """The answer in one piece."""
    content = []
    if reply.reasoning:
        content.append({"type": "thinking", "thinking": reply.reasoning, "signature": "c2lnbmVk"})
    if reply.text:
        content.append({"type": "text", "text": reply.text})
    for call in reply.calls:
        content.append({"type": "tool_use", "id": call["id"], "name": call["name"],
                        "input": _load_arguments(call["arguments"])})
    body = {"id": f"msg_{record.n}", "type": "message", "role": "assistant",
            "model": request.model, "content": content, "stop_reason": _finish(reply),
            "stop_sequence": reply.stop_sequence}
    counted = usage(record, reply, rule)
    if counted is not None:
        body["usage"] = counted
    return body


def events(request, record, reply, rule, sse):
    """The stream: (bytes of an event, output tokens it carries)."""
    def event(body, added=0):
        return sse.event(sse.json(body), body["type"]), added

    start = {"id": f"msg_{record.n}", "type": "message", "role": "assistant",
             "model": request.model, "content": [], "stop_reason": None, "stop_sequence": None}
    if rule.usage != "missing":
        start["usage"] = usage(record, reply, rule, min(1, reply.output_tokens))
    yield event({"type": "message_start", "message": start})
    index = 0

    def block(first, kind, name, text):
        nonlocal index
        yield event({"type": "content_block_start", "index": index, "content_block": first})
        if index == 0:
            yield event({"type": "ping"})
        head = f'{{"type":"content_block_delta","index":{index},"delta":{{"type":"{kind}","{name}":'
        meter = chat.TokenMeter()
        for piece in chat.text_pieces(rule, text):
            yield (sse.event(f"{head}{sse.json(piece)}}}}}", "content_block_delta"),
                   meter.add(piece))
        if kind == "thinking_delta":
            yield event({"type": "content_block_delta", "index": index,
                         "delta": {"type": "signature_delta", "signature": "c2lnbmVk"}})
        yield event({"type": "content_block_stop", "index": index})
        index += 1

    if reply.reasoning:
        yield from block({"type": "thinking", "thinking": "", "signature": ""},
                         "thinking_delta", "thinking", reply.reasoning)
    if reply.text:
        yield from block({"type": "text", "text": ""}, "text_delta", "text", reply.text)
    for call in reply.calls:
        first = {"type": "tool_use", "id": call["id"], "name": call["name"], "input": {}}
        yield from block(first, "input_json_delta", "partial_json", call["arguments"])
    last = {"type": "message_delta", "delta": {
        "stop_reason": _finish(reply), "stop_sequence": reply.stop_sequence}}
    if rule.usage != "missing":
        last["usage"] = usage(record, reply, rule)
    yield event(last)
    yield event({"type": "message_stop"})
