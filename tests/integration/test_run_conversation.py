"""What the model is sent: roles, limits of the conversation, contexts that are too short."""

from runs import Text, command, go, look, mind  # noqa: F401


def text_of(message):
    content = message["content"]
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def test_roles_alternate_and_no_message_is_empty(make_server, run_rlmflow, command):
    """The server refuses two messages of one role in a row, and empty ones."""
    replies = [Text(""), Text("prose"), "pass", "1 / 0", "print('\\n\\n')", Text("<think>no</think>"),
               "done('end')"]
    for api in ("openai", "anthropic"):
        server = make_server(mind({"go": replies}), alternate=True)
        args, _ = command(server, "--max-iters", len(replies), api=api)
        r = run_rlmflow(*args)
        assert (r.code, r.stdout) == (0, "end\n"), r.stderr
        assert "last turn" in text_of(server.requests[-1].body["messages"][-1])
        assert server.stats()["statuses"] == {"200": 7}
        for record in server.requests:
            assert all(text_of(m).strip() for m in record.body["messages"])


def test_what_was_sent_stays_as_it_was(go, server):
    """Each turn only adds to the conversation, so that a provider's cache can hit."""
    run = go(mind({"go": [f"print('{i}' * 3000)" for i in range(4)] + ["done(1)"]}), "--max-budget", "1M")
    assert run.code == 0
    before = []
    for record in server.requests:
        texts = [text_of(m) for m in record.body["messages"]]
        assert texts[:len(before)] == before
        before = texts
    assert server.stats()["cached_tokens"] > 0


def test_max_messages_keeps_the_task_and_the_newest(go, server):
    def reply(request):
        return "done('end')" if "print 9" in request.user else f"print('print {request.n}')"

    run = go(mind({"go the way": reply}), "--max-messages", "6", query="go the way")
    assert run.answer == "end" and len(server.requests) == 10
    for record in server.requests:
        messages = record.body["messages"]
        assert len(messages) <= 6
        assert text_of(messages[1]).startswith("Task: go the way")
        assert ("left out" in text_of(messages[1])) == (record.n > 3)
    last = server.requests[-1].body["messages"]
    assert "print 9" in text_of(last[-1]) and "print 8" in text_of(last[-3])


def test_a_context_that_is_too_short_drops_the_oldest_turns(go, server):
    def reply(request):
        known = [n for n in range(1, 99) if f"number {n}." in str(request.messages)]
        if request.input_tokens > 3000:
            return {"error": "context_anthropic"}
        if "number 9." in request.user:
            return f"done({known!r})"
        return "n = globals().get('n', 0) + 1\nprint(f'number {n}.' + 'x' * 2000)"

    run = go(mind({"go": reply}), api="anthropic")
    assert run.code == 0, run.stderr
    assert run.answer.endswith("9]") and not run.answer.startswith("[1,"), run.answer
    assert "oldest turns are left out" in run.stderr
    assert server.stats()["statuses"]["400"] >= 1
    sent = [text_of(m) for m in server.requests[-1].body["messages"]]
    assert sent[0].startswith("Task: go") and "left out" in "".join(sent[:2])


def test_a_context_that_the_limit_of_output_does_not_fit_is_no_reason_to_drop(go, server):
    """The prompt and the most that is asked for are more than the context: less is asked for."""
    limit = [{"error": "context_openai_sum", "match": {"input_tokens_over": 5000}}]
    run = go(limit + mind({"go": ["print(1)", "done('end')"]}))
    assert (run.code, run.answer) == (0, "end"), run.stderr
    assert "left out" not in run.stderr and server.stats()["statuses"] == {"400": 1, "200": 2}


def test_a_context_that_nothing_fits_ends_the_run_and_says_so(go, server):
    run = go([{"error": "context_openai"}])
    assert run.code == 1 and server.stats()["requests"] == 1
    assert "context" in run.stderr.splitlines()[-1]


def test_a_query_that_is_too_long_is_a_value(go):
    code = ('try: await llm_query("x" * 10)\n'
            'except HostCallError as e: done(e.reason + ": " + e.message)')
    run = go(mind({"go": code}, query={"error": "context_openai"}))
    assert run.answer.startswith("failed: ") and "context" in run.answer


def test_output_for_the_model_is_bounded_and_kept_in_the_run(go, server):
    run = go(mind({"go": ["print('a' * 50_000 + 'z' * 50_000)", "done(1)"]}), "--max-output-length", "1000")
    shown, = run.seen()
    assert len(shown) < 1200 and shown.startswith("a" * 500) and "z" * 490 in shown and "left out" in shown
    kept = run.nodes(type="exec_output")[0]["output"]
    assert kept == "a" * 50_000 + "z" * 50_000 + "\n", len(kept)


def test_surrogates_and_nul_stop_at_the_border(go, server):
    """The model gets what JSON can carry, the session has what was there."""
    run = go(mind({"go": ["print('a\\0b\\ud800c\\r\\nd')", "done('\\ud83d' + chr(0))"]}))
    assert run.code == 0, run.stderr
    assert run.seen()[0].startswith("a\0b\ud800c\r\nd")
    assert "a\0b\ufffdc\r\nd" in text_of(server.requests[1].body["messages"][-1])
    assert run.nodes()[-1]["result"] == "\ud83d\0"
