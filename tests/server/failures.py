"""Error answers as the services and common servers word them.

`error_answer` gives (status, headers, body) for a rule that fails. ERRORS names those beyond the
plain statuses; each is (status, function of the request giving the JSON body).
"""

import json

# Plain statuses: (type, code, message) of OpenAI; (type, message) of Anthropic.
_OPENAI = {
    400: ("invalid_request_error", None, "The request is invalid."),
    401: ("invalid_request_error", "invalid_api_key", "Incorrect API key provided."),
    403: ("permission_error", "permission_denied", "Your key may not use this model."),
    404: ("invalid_request_error", "model_not_found",
          "The model `{model}` does not exist or you do not have access to it."),
    408: ("timeout", None, "The request timed out."),
    413: ("invalid_request_error", None, "The request is too large."),
    429: ("requests", "rate_limit_exceeded",
          "Rate limit reached for {model} on requests per min. Please try again later."),
    500: ("server_error", None, "The server had an error while processing your request."),
    502: ("server_error", None, "Bad gateway."),
    503: ("service_unavailable", None, "The engine is currently overloaded."),
    504: ("server_error", None, "Gateway timeout."),
    529: ("server_error", "overloaded", "Overloaded."),
}

_ANTHROPIC = {
    400: ("invalid_request_error", "The request is invalid."),
    401: ("authentication_error", "invalid x-api-key"),
    403: ("permission_error", "Your API key does not have permission to use this model."),
    404: ("not_found_error", "model: {model}"),
    408: ("timeout_error", "Request timed out."),
    413: ("request_too_large", "Request exceeds the maximum size"),
    429: ("rate_limit_error", "This request would exceed your organization's rate limit."),
    500: ("api_error", "Internal server error"),
    502: ("api_error", "Bad gateway"),
    503: ("api_error", "Service unavailable"),
    504: ("timeout_error", "Gateway timeout"),
    529: ("overloaded_error", "Overloaded"),
}


def openai_error(message, type_="invalid_request_error", param=None, code=None):
    """The body of an OpenAI error."""
    return {"error": {"message": message, "type": type_, "param": param, "code": code}}


def anthropic_error(message, type_="invalid_request_error", request_id="req_test"):
    """The body of an Anthropic error."""
    return {"type": "error", "error": {"type": type_, "message": message},
            "request_id": request_id}


def _size(request):
    """(prompt, output, context) tokens to put into a message: always prompt + output > context."""
    asked = request.max_tokens or 0
    return request.input_tokens, asked, max(1, request.input_tokens + asked - 1)


def _context_openai(request):
    prompt, asked, context = _size(request)
    context = min(context, max(1, prompt - 1))
    return openai_error(
        f"This model's maximum context length is {context} tokens. However, your messages resulted "
        f"in {prompt} tokens. Please reduce the length of the messages.",
        param="messages", code="context_length_exceeded")


def _context_openai_sum(request):
    prompt, asked, context = _size(request)
    return openai_error(
        f"This model's maximum context length is {context} tokens. However, you requested "
        f"{prompt + asked} tokens ({prompt} in the messages, {asked} in the completion). Please "
        "reduce the length of the messages or completion.",
        param="messages", code="context_length_exceeded")


def _context_llamacpp(request):
    prompt = request.input_tokens
    context = max(1, prompt - 1)
    return {"error": {
        "code": 400,
        "message": f"request ({prompt} tokens) exceeds the available context size ({context} "
                   "tokens), try increasing it",
        "type": "exceed_context_size_error", "n_prompt_tokens": prompt, "n_ctx": context}}


def _context_vllm(request):
    prompt, asked, context = _size(request)
    return {"object": "error", "type": "BadRequestError", "param": None, "code": 400,
            "message": f"This model's maximum context length is {context} tokens. However, you "
                       f"requested {prompt + asked} tokens ({prompt} in the messages, {asked} in "
                       "the completion). Please reduce the length of the messages or completion."}


def _context_anthropic(request):
    prompt = request.input_tokens
    return anthropic_error(f"prompt is too long: {prompt} tokens > {max(1, prompt - 1)} maximum")


def _context_anthropic_sum(request):
    prompt, asked, context = _size(request)
    return anthropic_error(
        f"input length and `max_tokens` exceed context limit: {prompt} + {asked} > {context}, "
        "decrease input length or `max_tokens` and try again")


def _max_tokens_unsupported(request):
    return openai_error(
        "Unsupported parameter: 'max_tokens' is not supported with this model. Use "
        "'max_completion_tokens' instead.", param="max_tokens", code="unsupported_parameter")


def _max_completion_tokens_unknown(request):
    return openai_error("Unrecognized request argument supplied: max_completion_tokens")


def _temperature_unsupported(request):
    return openai_error(
        "Unsupported value: 'temperature' does not support this value with this model. Only the "
        "default (1) value is supported.", param="temperature", code="unsupported_value")


def _quota(request):
    return openai_error("You exceeded your current quota, please check your plan and billing "
                        "details.", "insufficient_quota", code="insufficient_quota")


def _credit(request):
    return anthropic_error("Your credit balance is too low to access the Anthropic API.")


def _loading(request):
    return {"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}}


ERRORS = {
    "context_openai": (400, _context_openai),
    "context_openai_sum": (400, _context_openai_sum),
    "context_llamacpp": (400, _context_llamacpp),
    "context_vllm": (400, _context_vllm),
    "context_anthropic": (400, _context_anthropic),
    "context_anthropic_sum": (400, _context_anthropic_sum),
    "max_tokens_unsupported": (400, _max_tokens_unsupported),
    "max_completion_tokens_unknown": (400, _max_completion_tokens_unknown),
    "temperature_unsupported": (400, _temperature_unsupported),
    "quota": (429, _quota),
    "credit": (400, _credit),
    "loading": (503, _loading),
}


def plain_error(api, status, model="", message=None):
    """The body of a plain status in the form of an API."""
    if api == "anthropic":
        type_, text = _ANTHROPIC.get(status, ("api_error", "Error"))
        return anthropic_error(message or text.format(model=model), type_)
    type_, code, text = _OPENAI.get(status, ("server_error", None, "Error"))
    param = "model" if status == 404 else None
    return openai_error(message or text.format(model=model), type_, param, code)


def _html(status):
    title = {502: "502 Bad Gateway", 503: "503 Service Temporarily Unavailable",
             504: "504 Gateway Time-out"}.get(status, f"{status} Error")
    return (f"<html>\r\n<head><title>{title}</title></head>\r\n<body>\r\n<center><h1>{title}</h1>"
            "</center>\r\n<hr><center>proxy</center>\r\n</body>\r\n</html>\r\n")


def error_answer(rule, request):
    """(status, headers, body bytes) of a rule whose `fails` is true."""
    headers = {}
    if rule.retry_after is not None:
        headers["Retry-After"] = str(rule.retry_after)
    if rule.retry_after_ms is not None:
        headers["Retry-After-Ms"] = str(rule.retry_after_ms)
    if rule.body is not None:
        headers["Content-Type"] = rule.content_type
        return rule.status or 200, headers, rule.body.encode("utf-8", "surrogateescape")
    if rule.html:
        headers["Content-Type"] = "text/html"
        return rule.status or 502, headers, _html(rule.status or 502).encode()
    if rule.error is not None:
        status, body = ERRORS[rule.error]
        status, body = rule.status or status, body(request)
        if rule.message is not None:
            body.get("error", body)["message"] = rule.message
    else:
        status = rule.status
        body = plain_error(request.api, status, request.model, rule.message)
    headers["Content-Type"] = "application/json"
    return status, headers, json.dumps(body).encode()


def in_band(api, form, message=None):
    """The error that comes inside a stream: (event name or None, JSON body, SSE field)."""
    if api == "anthropic":
        body = anthropic_error(message or "Overloaded", "overloaded_error")
        return "error", body, "data"
    text = message or "The server had an error while processing your request."
    if form == "openrouter":
        return None, {
            "id": "gen-test", "object": "chat.completion.chunk", "created": 0, "model": "test",
            "error": {"code": 502, "message": text},
            "choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "error"}]}, "data"
    if form == "llamacpp":
        return None, {"error": {"code": 500, "message": text, "type": "server_error"}}, "error"
    return None, openai_error(text, "server_error"), "data"
