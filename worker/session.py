"""What the threads share: who has the word, the calls and their results, the interrupt."""
import _thread
import time
from _collections import deque
from _json import encode_basestring_ascii as quote

from .json_text import Json, quote_all, quote_members, read_json
from .errors import CellEnded, CellInterrupted, HostCallError
from .output import Output
from .reports import describe_failure
from .frames import (
    CLOSE, Channel, FINISHED, INTERRUPT, OPEN, RESUME, START, SUSPENDED, WAKE, YIELD)
from .values import Values
from .calls import Call
from .display import Display


class Session:
    """State that the threads share. `lock` guards the word and the calls.

    The worker has the word from a `start` or `resume` until its `suspended` or `finished`. A large
    `suspended` waits for credit, which another thread reads: so the word is given up under `lock`, but
    sent without it.

    `place` is where the session runs, and does what differs there: see Process. Others may offer
    the same.
    """

    def __init__(self, rfd, wfd, place):
        self.main_thread = _thread.get_ident()
        self.place = place
        self.channel = Channel(rfd, wfd, place.leave)
        self.channel.wait_for_credit = self.wait_for_credit
        self.imports = place.imports
        self.output = Output()
        self.values = Values(self)
        self.read_values = Json(self.values.decode_object).read
        self.lock = _thread.RLock()
        self.reading = _thread.allocate_lock()
        self.reader = None
        self.monitor = place.monitor
        self.display = Display(self)
        self.cell = 0
        self.in_cell = False
        self.agent_runs = False
        self.turn = self.seen_turn = 0
        self.heard = self.over = False
        self.has_word = False
        self.suspending = None
        self.woken = False
        self.ended = False
        self.forked = False
        self.interrupt = None
        self.new_calls = []
        self.pending = {}
        self.unanswered = set()
        self.last_id = 0
        self.starts = deque()
        self.opened = None

    # Frames that come.

    def open(self):
        """Takes the stream, and what comes until the host has opened the session."""
        self.reading.acquire()
        self.reader = self.main_thread
        while self.opened is None:
            self.pump(True)

    def pump(self, block):
        """Reads and handles what has come; the caller holds `reading`."""
        try:
            for kind, payload in self.channel.receive(block):
                self.handle(kind, payload)
        except (OSError, MemoryError) as e:
            self.channel.fatal(describe_failure(e))  # what came is lost in part

    def handle(self, kind, payload):
        if kind == RESUME:
            self.resumed(self.read_values(payload))
        elif kind == START:
            read = self.read_values if b'"recovered":' in payload else read_json
            self.starts.append(read(payload))
        elif kind == YIELD:
            with self.lock:
                suspended = self.suspend() if self.has_word else None
            self.send_suspended(suspended)
        elif kind == INTERRUPT:
            if self.in_cell or self.starts:
                self.interrupt = read_json(payload)
        elif kind == CLOSE:
            self.place.close()
        elif kind == OPEN:
            self.opened = message = read_json(payload)
            message["inputs"] = {
                name: self.values.decode(value) for name, value in (message.get("inputs") or {}).items()}

    def resumed(self, message):
        with self.lock:
            self.has_word = True
            self.suspending = suspended = None
            was_woken, self.woken = self.woken, False
            for result in message["results"]:
                self.unanswered.discard(result["id"])
                call = self.pending.pop(result["id"], None)
                if call is not None:
                    call.answer(result.get("value"), result.get("error"))
            if was_woken and self.has_news():
                suspended = self.suspend()
        self.send_suspended(suspended)

    def start_reading(self):
        """The main thread takes the stream; returns when no other reads it."""
        self.agent_runs = False
        self.reading.acquire()
        self.reader = self.main_thread

    def stop_reading(self):
        self.reader = None
        self.reading.release()
        self.turn += 1
        self.agent_runs = True
        if self.monitor.sleeping and not self.heard:
            self.monitor.wake()

    def wait_for_credit(self):
        if self.reader == _thread.get_ident():
            self.pump(True)
        else:
            time.sleep(0.0005)

    def check_interrupt(self):
        if self.interrupt is not None and _thread.get_ident() == self.main_thread and self.in_cell:
            self.raise_interrupt()

    def raise_interrupt(self):
        message, self.interrupt = self.interrupt.get("message", ""), None
        raise CellInterrupted(message)

    # The word.

    def suspend(self):
        """Gives the word up, with the calls that are new or given up; `lock` is held. Returns what is to be
        sent then."""
        self.has_word = False
        calls, self.new_calls = self.new_calls, []
        cancelled = self.take_cancelled()
        texts = []
        for call in calls:
            self.last_id += 1
            call.id = self.last_id
            self.pending[call.id] = call
            self.unanswered.add(call.id)
            texts.append('{"id":%d,%s' % (call.id, call.body))
        self.suspending = '{"calls":[%s],"pending":[%s]%s}' % (
            ",".join(texts), ",".join(map(str, self.pending)), cancelled)
        return self.suspending

    def send_suspended(self, suspended):
        if suspended is None:
            return
        self.channel.send(SUSPENDED, suspended.encode())
        with self.lock:
            if self.suspending is suspended:  # else the host has answered already
                self.suspending = None
                if self.woken:
                    self.channel.send_frame(WAKE, b"{}")

    def has_news(self):
        """There are calls that the host has not been told of, or that nobody waits for any more."""
        return self.new_calls or len(self.unanswered) > len(self.pending)

    def take_cancelled(self):
        """The member that names the calls which nobody waits for any more; `lock` is held."""
        cancelled = sorted(self.unanswered.difference(self.pending))
        self.unanswered.difference_update(cancelled)
        return ',"cancelled":%s' % cancelled if cancelled else ""

    def offer(self):
        """There is nothing to do but to wait: tells the host what is new."""
        suspended = None
        with self.lock:
            if self.has_news():
                if self.has_word:
                    suspended = self.suspend()
                else:
                    self.wake()
        self.send_suspended(suspended)

    def wake(self):
        """`lock` is held. Before the host has heard that it has the word, there is nothing to wake."""
        if not self.woken:
            self.woken = True
            if self.suspending is None:
                self.channel.send_frame(WAKE, b"{}")

    # Calls.

    def new_call(self, name, args, kwargs):
        if self.forked:
            raise RuntimeError("%s() works in the session's own process only, not in one that it "
                               "forked" % name)
        if self.ended:
            raise CellEnded("the answer was accepted")
        self.check_interrupt()
        encode = self.values.encode
        return Call('"name":%s,"args":[%s],"kwargs":{%s}}' % (
            quote(name), ",".join([encode(value, path) for path, value in args]),
            ",".join(["%s:%s" % (quote(k), encode(v, k)) for k, v in kwargs.items()])))

    def register(self, call):
        with self.lock:
            if not self.in_cell:
                raise HostCallError("no cell is running; host calls are possible while one runs",
                                    "no_cell", "")
            self.new_calls.append(call)

    def forget(self, call):
        """Nobody waits for this answer any more."""
        with self.lock:
            if call.id:
                self.pending.pop(call.id, None)
            elif call in self.new_calls:
                self.new_calls.remove(call)

    def call(self, name, args=(), kwargs={}):
        """A host call that blocks its thread; args are (path, value) pairs."""
        return self.perform(self.new_call(name, args, kwargs))

    def perform(self, call):
        is_main = _thread.get_ident() == self.main_thread
        if not is_main:
            call.event = _thread.allocate_lock()
            call.event.acquire()
        self.register(call)
        try:
            if is_main:
                self.wait_in_main(call)
            else:
                self.offer()
                call.event.acquire()
        finally:
            if not call.done:
                self.forget(call)
        return self.finish_call(call)

    def wait_in_main(self, call):
        self.start_reading()
        try:
            self.offer()
            while not call.done:
                self.check_interrupt()
                self.pump(True)
        finally:
            self.stop_reading()

    def finish_call(self, call):
        try:
            return call.result()
        except CellEnded:
            self.ended = True
            raise

    async def call_async(self, name, args=(), kwargs={}):
        import asyncio

        call = self.new_call(name, args, kwargs)
        call.loop = asyncio.get_running_loop()
        call.future = call.loop.create_future()
        self.register(call)
        try:
            await call.future
        finally:
            if not call.done:
                self.forget(call)
        return self.finish_call(call)

    # The life of a cell, as far as the word goes.

    def begin_cell(self, number):
        self.cell = number
        self.in_cell = True
        self.has_word = True
        self.ended = False
        self.stop_reading()

    def end_cell(self, error, notes, names):
        """Sends `finished`. Afterwards the main thread holds the stream."""
        self.output.drain()
        text, omitted = self.output.take()
        with self.lock:
            self.in_cell = False
            cancelled = self.abandon_calls() if self.unanswered or self.new_calls else ""
        payload = ('{"cell":%d,"output":%s,"omitted":%d,"error":%s,"notes":%s%s%s}' % (
            self.cell, quote(text), omitted, quote_members(error) if error else "null",
            quote_all(notes), names, cancelled)).encode()
        frame = self.channel.send_ahead(payload)
        self.start_reading()
        if not self.has_word:
            with self.lock:
                self.wake()
            while not self.has_word:
                self.pump(True)
        self.has_word = False
        self.interrupt = None
        self.channel.send_frame(FINISHED, *frame)

    def abandon_calls(self):
        """Ends the waits for calls that the cell leaves unanswered; `lock` is held."""
        abandoned = list(self.pending.values()) + self.new_calls
        self.pending, self.new_calls = {}, []
        error = {"type": "ToolInterrupted", "message": "the cell ended", "reason": "cell_ended"}
        for call in abandoned:
            call.answer(None, error)
        return self.take_cancelled()
