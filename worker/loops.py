"""Event loops: they make host calls when they have nothing else to do, and asyncio.run nests."""
import _thread
import select

from .agent_code import calls_agent
from .reports import show_loop_error


def changes_of_asyncio(find_session, asyncio):
    """(make, undo): what has loops of sessions make host calls when they have nothing else to do,
    and `run` nest. `find_session()` is the session that the calling thread belongs to, or None."""
    import contextvars
    import functools
    import selectors
    import threading

    class HostSelector(selectors.PollSelector):
        """Waits for the host's stream too, if it is the main thread's."""

        def __init__(self, session):
            super().__init__()
            self.session = session

        @calls_agent
        def select(self, timeout=None):
            session = self.session
            if timeout is not None and timeout <= 0 or session.forked:
                return super().select(timeout)
            if session.has_news():
                events = super().select(0)
                if events:
                    return events
            if session.in_cell and _thread.get_ident() == session.main_thread:
                return self.select_with_host(timeout)
            session.offer()
            return self.select_plainly(timeout)

        @calls_agent
        def select_plainly(self, timeout):
            return super().select(timeout)

        def select_with_host(self, timeout):
            session = self.session
            session.start_reading()
            self._selector.register(session.channel.rfd, select.POLLIN)
            try:
                session.check_interrupt()
                session.offer()
                events = self.select_plainly(timeout)
                if not events:
                    session.pump(False)
                    session.check_interrupt()
                return events
            finally:
                self._selector.unregister(session.channel.rfd)
                session.stop_reading()

    loop_class = asyncio.selector_events.BaseSelectorEventLoop
    original_init = original_run = None

    def init(self, selector=None):
        session = find_session()
        if session is None:
            return original_init(self, selector)
        original_init(self, HostSelector(session) if selector is None else selector)
        self.set_exception_handler(show_loop_error)

    @functools.wraps(asyncio.run)
    @calls_agent
    def run(main, **options):
        session = find_session()
        if session is None:
            return original_run(main, **options)
        if asyncio._get_running_loop() is None:
            try:
                return original_run(main, **options)
            finally:
                # asyncio.run leaves the thread without a loop, which get_event_loop() then misses.
                if _thread.get_ident() == session.main_thread and session.in_cell:
                    session.get_loop()
        outcome = []
        context = contextvars.copy_context()

        @calls_agent
        def target():
            try:
                outcome.append((context.run(original_run, main, **options), None))
            except BaseException as e:
                outcome.append((None, e))

        thread = threading.Thread(target=target, name="asyncio.run", daemon=True)
        thread.start()
        thread.join()
        value, error = outcome[0]
        if error is not None:
            raise error
        return value

    def make():
        nonlocal original_init, original_run
        original_init, original_run = loop_class.__init__, asyncio.run
        loop_class.__init__ = init
        asyncio.run = asyncio.runners.run = run

    def undo():
        loop_class.__init__ = original_init
        if asyncio.run is run:
            asyncio.run = asyncio.runners.run = original_run

    return make, undo
