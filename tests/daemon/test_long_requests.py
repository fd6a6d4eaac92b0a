"""Very many short requests: afterwards every process is as it was after the first tenth, and an
idle daemon takes next to no processor. By hand: COLIZIG_REQUESTS says how many (100000),
COLIZIG_SEED repeats a run's choices."""
import itertools
import os
import random
import threading
import time
import traceback

import pytest

import server as daemon
from census import Census, rss
from load import words

REQUESTS = int(os.environ.get("COLIZIG_REQUESTS", 100000))
# So many at least that every ring has been once around: the engine's words to its door are 4096.
WARM_UP = max(REQUESTS // 10, 5000)
pytestmark = [pytest.mark.long, pytest.mark.timeout(300 + REQUESTS // 25)]

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
THREADS = 8
# A worker's heap is as large as the most that it ever had to do at once took. Chance may bring it
# all clients at once, and only late: so the warm-up has twice as many.
WARM_THREADS = 2 * THREADS
# A page of the program touched for the first time brings its 15 neighbours along: that much may a
# path cost which by chance ran only after the warm-up. The smallest block that malloc knows, lost
# with every request, is 1.4 MiB a worker in a full run; a run of a tenth would not show it, as the
# heap has holes for it.
SLACK = 64 << 10
IDLE_SECONDS = 20
IDLE_SHARE = 0.001


def whole(connection, chance):
    connection.send("POST", CHAT, daemon.chat_body(words(chance, 6), max_tokens=2))
    answer = connection.answer("POST")
    assert (answer.status, answer.finish()) == (200, "length"), answer.body


def completion(connection, chance):
    connection.send("POST", TEXT, {"prompt": words(chance, 4), "max_tokens": 2})
    answer = connection.answer("POST")
    assert (answer.status, answer.finish()) == (200, "length"), answer.body


def streamed(connection, chance):
    connection.send("POST", CHAT, {**daemon.chat_body(words(chance, 6), max_tokens=3),
                                   "stream": True})
    stream = daemon.Stream(connection).rest()
    assert stream.done and stream.finish() == "length", stream.events


def refused(connection, chance):
    connection.send("POST", CHAT, {**daemon.chat_body(words(chance, 2)), "max_tokens": "two"})
    answer = connection.answer("POST")
    assert answer.status == 400 and answer.error()["param"], answer.body


def looks(connection, chance):
    connection.send("GET", chance.choice(["/v1/models", "/readyz", "/metrics"]))
    answer = connection.answer()
    assert answer.status == 200 and answer.body


def left(connection, chance):
    """A stream that nobody waits for: its request is cancelled."""
    connection.send("POST", CHAT, {**daemon.chat_body(words(chance, 6), max_tokens=500),
                                   "stream": True})
    assert daemon.Stream(connection).next()
    connection.close()


KINDS = {whole: 60, completion: 15, streamed: 15, refused: 4, looks: 5, left: 1}


def clients(server, n, n_threads, seed):
    """n requests from several threads, most of them on a connection of their own, the others up to
    twenty one after the other; every answer is judged."""
    numbers, faults, connections = itertools.count(), [], itertools.count()

    def work(chance):
        number = next(numbers)
        while number < n and not faults:
            next(connections)
            with server.connect(60) as connection:
                for _ in range(chance.choice([1, 1, chance.randrange(2, 21)])):
                    kind, = chance.choices(list(KINDS), KINDS.values())
                    kind(connection, chance)
                    number = next(numbers)
                    if kind is left or number >= n:
                        break

    def guarded(name):
        try:
            work(random.Random(name))
        except Exception:
            faults.append(traceback.format_exc())

    threads = [threading.Thread(target=guarded, args=(f"{seed}-{i}",), daemon=True)
               for i in range(n_threads)]
    begin = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.monotonic() - begin
    assert not faults, "\n".join(faults[:3])
    print(f"{n} requests on {next(connections)} connections in {took:.0f} s")


def test_very_many_requests_leave_every_process_as_it_was_and_then_idle(start_fake):
    seed = os.environ.get("COLIZIG_SEED", str(time.time_ns()))
    print(f"\nseed {seed}")
    server = start_fake({"token_ms": 0.02, "prefill_ms": 0, "context": 2048})
    clients(server, WARM_UP, WARM_THREADS, f"{seed}-warm")
    census = Census(server, rss)
    clients(server, REQUESTS - REQUESTS // 10, THREADS, seed)
    census.check(SLACK, share=0.01)

    before, begin = census.cpu_seconds(), time.monotonic()
    time.sleep(IDLE_SECONDS)
    share = (census.cpu_seconds() - before) / (time.monotonic() - begin)
    print(f"idle: {share:.4%} of a processor")
    if not daemon.SANITIZER:
        assert share < IDLE_SHARE
    assert server.stop() == 0
