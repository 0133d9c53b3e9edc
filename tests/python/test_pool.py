"""The threads in which sync clients and tools are called."""
import queue
import threading
import warnings
import weakref

import rlmflow
from leaks import assert_comes_back_to, wait_until, when_at_rest
from rlmflow._pool import Pool, _threads
from test_flow import block

SECONDS = 60


def test_no_more_than_its_size_run_at_once_and_all_are_run():
    pool, lock, done = Pool(3), threading.Lock(), queue.Queue()
    at_once, most, gate = 0, 0, threading.Semaphore(0)

    def work(number):
        nonlocal at_once, most
        with lock:
            at_once += 1
            most = max(most, at_once)
        gate.acquire()
        with lock:
            at_once -= 1
        done.put(number)

    for number in range(50):
        pool.submit(None, work, number)
    for _ in range(50):
        gate.release()
    assert sorted(done.get(timeout=SECONDS) for _ in range(50)) == list(range(50)) and most <= 3


def test_a_call_that_raises_takes_no_place_from_others_and_holds_nothing():
    class Key:
        """What waits for the answer."""

    def fails():
        raise SystemExit("left")

    pool, done, key = Pool(1), queue.Queue(), Key()
    gone = weakref.ref(key)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        pool.submit(key, fails)
        del key
        pool.submit(None, done.put, "after")
        assert done.get(timeout=SECONDS) == "after"
    assert [str(w.message) for w in caught] == ["a call in a thread was not answered: SystemExit: left"]
    assert gone() is None


def test_a_thread_serves_one_run_after_the_other_and_ends_when_there_are_none(monkeypatch):
    threads = set()

    def chat(messages):
        threads.add(threading.current_thread())
        return block("done('a')")

    flow = rlmflow.Flow(chat, runtime=rlmflow.LocalRuntime())
    assert flow.run("q") == "a"  # what is made once
    wait_until(lambda: _threads.idle)
    before = when_at_rest()
    threads.clear()
    monkeypatch.setattr("rlmflow._pool.IDLE_S", 3)  # it is there for the next run also when that is late
    for _ in range(5):
        assert flow.run("q") == "a"
        wait_until(lambda: _threads.idle)
    assert len(threads) == 1 and next(iter(threads)).daemon
    assert_comes_back_to(before)
    assert not next(iter(threads)).is_alive()


def test_one_that_never_returns_holds_its_own_pool_alone():
    stuck, release, done = threading.Event(), threading.Event(), queue.Queue()
    full, other = Pool(1), Pool(1)
    full.submit(None, lambda: stuck.set() or release.wait())
    assert stuck.wait(SECONDS)
    full.submit(None, done.put, "after")
    other.submit(None, done.put, "beside")
    assert done.get(timeout=SECONDS) == "beside"
    release.set()
    assert done.get(timeout=SECONDS) == "after"


def test_what_has_not_begun_when_a_pool_is_closed_is_not_begun():
    stuck, release, done = threading.Event(), threading.Event(), queue.Queue()
    pool = Pool(1)
    pool.submit(None, lambda: stuck.set() or release.wait())
    assert stuck.wait(SECONDS)
    pool.submit(None, done.put, "never")
    pool.close()
    pool.submit(None, done.put, "later")
    release.set()
    assert done.get(timeout=SECONDS) == "later" and done.empty()


def test_work_that_comes_as_a_thread_gives_up_waiting_is_done(monkeypatch):
    monkeypatch.setattr("rlmflow._pool.IDLE_S", 0.0005)
    pool, done = Pool(4), queue.Queue()
    for number in range(2000):
        pool.submit(None, done.put, number)
        assert done.get(timeout=SECONDS) == number


def test_a_call_that_is_given_up_before_it_has_a_thread_does_not_begin():
    pool, begun, release = Pool(1), [], threading.Event()
    pool.submit("first", release.wait, SECONDS)
    pool.submit("second", begun.append, "second")
    pool.submit("third", begun.append, "third")
    done = threading.Event()
    pool.submit("last", done.set)
    pool.give_up("second")
    pool.give_up("first")
    assert done.wait(SECONDS) and begun == ["third"]
    release.set()
