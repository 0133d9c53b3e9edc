"""Sends an answer as a rule wants it: in pieces, slowly, cut, stalled, spoiled."""

import asyncio

from . import failures

BATCH_BYTES = 16 << 10


class Broken(Exception):
    """The answer ended as the rule wanted it to; the text is the record's outcome."""


def split(data, how):
    """The bytes in pieces: of `how` bytes, or cut inside each multi-byte character."""
    if how == "characters":
        cuts = [i for i, byte in enumerate(data) if byte & 0xC0 == 0x80] + [len(data)]
        return [data[a:b] for a, b in zip([0] + cuts[:-1], cuts)]
    return [data[i : i + how] for i in range(0, len(data), how)]


class Sender:
    """Sends one answer. `finish(outcome)` is called before the last bytes go out, `stalled()` when
    nothing more will come."""

    def __init__(self, response, rule, record, finish, stalled):
        self.response = response
        self.rule = rule
        self.record = record
        self.finish = finish
        self.stalled = stalled

    async def fault(self, at):
        """Does what the rule wants before event `at` (-1: before the status line)."""
        rule = self.rule
        if rule.cut_after == at:
            self.finish("cut")
            if rule.cut == "end" and self.response.framing == "chunked" and at >= 0:
                self.response.end()
            else:
                await self.response.cut(reset=rule.cut == "reset")
            raise Broken
        if rule.stall_after == at:
            self.record.stalled = True
            self.stalled()
            await asyncio.Event().wait()

    async def _put(self, data):
        rule = self.rule
        if rule.split is None:
            await self.response.write(data)
            await asyncio.sleep(0)
            return
        for piece in split(data, rule.split):
            await self.response.write(piece)
            await asyncio.sleep(rule.split_pause_ms / 1000)

    async def _spoil(self, at, api, sse):
        """Sends what the rule puts before event `at` into the stream; true when it ends there."""
        rule = self.rule
        if rule.invalid_json_after == at:
            await self._put(sse.event('{"choices":[{"delta":{"content":', "content_block_delta"
                                      if api == "anthropic" else None))
        if rule.error_after == at:
            name, body, field_name = failures.in_band(api, rule.error_form, rule.message)
            data = sse.event(sse.json(body), name, field_name)
            self.finish("error_in_stream")
            await self._put(data)
            self.response.end()
            return True
        return False

    async def stream(self, events, api, sse):
        """Sends the events of a stream; the head has been sent."""
        rule, record, response = self.rule, self.record, self.response
        direct = not (rule.delay_ms or rule.split or rule.each_write)
        special = {rule.cut_after, rule.stall_after, rule.error_after, rule.invalid_json_after}
        batch = bytearray()
        events = iter(events)
        data, carried = next(events, (None, 0))
        while data is not None:
            following, carried_by_following = next(events, (None, 0))
            if record.events in special:
                await response.write(bytes(batch), framed=True)
                batch.clear()
                await self.fault(record.events)
                if await self._spoil(record.events, api, sse):
                    return
            if rule.delay_ms:
                await asyncio.sleep(rule.delay_ms / 1000)
            record.events += 1
            record.output_tokens += carried
            if following is None:
                self.finish("answered")
            if not direct:
                await self._put(data)
            else:
                batch += response.frame(data)
                if len(batch) >= BATCH_BYTES:
                    await response.write(bytes(batch), framed=True)
                    batch.clear()
                    await asyncio.sleep(0)
            data, carried = following, carried_by_following
        await response.write(bytes(batch), framed=True)
        response.end()

    async def whole(self, body, headers, output_tokens):
        """Sends a body in one piece, or broken in its middle."""
        rule, response = self.rule, self.response
        if rule.delay_ms:
            await asyncio.sleep(rule.delay_ms / 1000)
        if rule.invalid_json_after is not None:
            body = body[: len(body) // 2]
        broken = [n for n in (rule.cut_after, rule.stall_after) if n is not None]
        self.record.output_tokens = output_tokens
        if broken:
            response.start(200, headers, len(body))
            await response.write(body[: len(body) // 2] if broken[0] else b"")
            await self.fault(broken[0])
        self.finish("answered")
        if rule.split is None and rule.framing == "chunked":
            response.send(200, headers, body)
            return
        response.start(200, headers, rule.framing)
        await self._put(body)
        response.end()
