"""Queue, connections, bodies, buffers and time: each limit has an answer."""
import concurrent.futures
import contextlib
import json
import os
import signal
import socket
import threading
import time

import pytest

import server as daemon
from admin import until
from census import sleeps, worker_seconds

CHAT = "/v1/chat/completions"


# ---- queue ----

def test_a_full_queue_refuses_at_once_and_serves_the_others_in_turn(start_fake):
    server = start_fake({"token_ms": 5, "sequences": 2, "queue": 3})
    streams = [server.stream(f"client {i}", max_tokens=60, timeout=20) for i in range(5)]
    assert all(s.answer.status == 200 for s in streams)
    start = time.monotonic()
    for fields in ({}, {"stream": True}):
        refused = server.chat("one too many", **fields)
        assert refused.status == 503 and refused.error()["code"] == "server_overloaded"
        assert int(refused.headers["retry-after"]) > 0
        assert "x-should-retry" not in refused.headers
    assert time.monotonic() - start < 0.3
    for stream in streams:
        assert stream.rest().done and stream.finish() == "length"


def test_fifty_clients_get_their_own_answers_or_a_clean_refusal(start_fake):
    server = start_fake({"token_ms": 1, "sequences": 4, "queue": 16})

    def ask(index):
        return server.chat(f"client {index}", max_tokens=3 + index % 5)

    with concurrent.futures.ThreadPoolExecutor(50) as crew:
        answers = list(crew.map(ask, range(50)))
    served = [(i, a) for i, a in enumerate(answers) if a.status == 200]
    assert len(served) >= 20
    for index, answer in served:
        assert answer.usage()["completion_tokens"] == 3 + index % 5
    assert len({a.json()["id"] for _, a in served}) == len(served)
    for answer in answers:
        assert answer.status == 200 or (answer.status == 503 and answer.headers["retry-after"])


def test_one_address_with_many_requests_does_not_starve_another(start_fake):
    """Thirty of 127.0.0.1 wait when 127.0.0.2 comes: it is the next but one, not the thirty-first."""
    server = start_fake({"token_ms": 2, "sequences": 1, "queue": 64})
    order = []

    def ask(address, name):
        with server.connect(60, address) as connection:
            connection.send("POST", CHAT, daemon.chat_body(name, max_tokens=20))
            assert connection.answer().status == 200
            order.append(name)

    plug = server.stream("first", max_tokens=4000).read(2)
    with concurrent.futures.ThreadPoolExecutor(40) as crew:
        many = [crew.submit(ask, "127.0.0.1", f"one {i}") for i in range(30)]
        server.await_requests(31)
        other = crew.submit(ask, "127.0.0.2", "other")
        server.await_requests(32)
        plug.close()
        for one in [other, *many]:
            one.result()
    assert order.index("other") <= 3, order


# ---- connections ----

def test_idle_connections_give_way_to_new_ones(start_fake):
    server = start_fake({"token_ms": 1}, http__workers="1", http__per_address="8",
                        http__connections="32")
    idle = [server.connect() for _ in range(20)]
    start = time.monotonic()
    assert server.chat("hi", max_tokens=1).status == 200
    assert time.monotonic() - start < 1
    for connection in idle:
        connection.close()


def ports_of(server):
    """Every port it listens on."""
    inodes = daemon.socket_inodes(server.pid)
    lines = [line.split() for line in open("/proc/net/tcp").read().splitlines()[1:]]
    return sorted(int(field[1].split(":")[1], 16) for field in lines
                  if field[3] == "0A" and field[9] in inodes)


@pytest.fixture(scope="module")
def two_listeners(start_fake):
    """Eight connections in all, on two addresses."""
    server = start_fake({"token_ms": 5, "sequences": 16, "context": 4096}, http__workers="1",
                        http__connections="8", http__per_address="64",
                        arguments=("--listen", "127.0.0.1:0"))
    assert len(ports_of(server)) == 2
    return server


def test_connections_count_for_all_listeners_together(two_listeners):
    ports = ports_of(two_listeners)
    body = daemon.chat_body("hello", max_tokens=3000, stream=True)
    busy = []
    for i in range(8):
        connection = daemon.Connection(ports[i % 2])
        connection.send("POST", CHAT, body)
        busy.append(daemon.Stream(connection).read(2))
    waiting = daemon.Connection(ports[0])
    waiting.send("GET", "/health")
    waiting.socket.settimeout(0.5)
    with pytest.raises(TimeoutError):
        waiting.answer()  # in the backlog: all eight are at work
    busy.pop().close()
    waiting.socket.settimeout(5)
    assert waiting.answer().status == 200
    waiting.close()
    for stream in busy:
        stream.close()


def test_the_idlest_connection_makes_room_when_all_are_taken(two_listeners):
    ports = ports_of(two_listeners)
    idle = []
    for i in range(8):
        connection = daemon.Connection(ports[i % 2])
        connection.send("GET", "/version")
        assert connection.answer().status == 200
        idle.append(connection)
        time.sleep(0.03)
    start = time.monotonic()
    with daemon.Connection(ports[1]) as late:
        late.send("GET", "/version")
        assert late.answer().status == 200
    assert time.monotonic() - start < 1
    assert idle[0].at_end()
    for connection in idle[1:]:  # the others are still kept
        connection.send("GET", "/version")
        assert connection.answer().status == 200
        connection.close()


def test_a_burst_beyond_the_limit_is_served_in_turn(start_fake):
    server = start_fake({"token_ms": 1, "sequences": 8, "queue": 200}, http__workers="1",
                        http__connections="4", http__per_address="64")
    with concurrent.futures.ThreadPoolExecutor(24) as crew:
        answers = list(crew.map(lambda i: server.chat("hi", max_tokens=2), range(72)))
    assert [answer.status for answer in answers] == [200] * 72


def test_addresses_have_their_places_apart(start_fake):
    """Four of one address at work: the fifth is refused, another address is served."""
    server = start_fake({"token_ms": 5, "sequences": 16}, http__workers="1", http__per_address="4",
                        http__connections="32")
    streams = [server.stream("hello", max_tokens=800).read(2) for _ in range(4)]
    assert server.chat("hi", max_tokens=1).status == 503
    for address in ("127.0.0.2", "127.0.1.1"):
        with server.connect(10, address) as connection:
            connection.send("POST", CHAT, daemon.chat_body("hi", max_tokens=1))
            assert connection.answer().status == 200
    for stream in streams:
        stream.close()


def test_silent_connections_of_an_address_give_way_to_its_next(start_fake):
    """Also those that sent a part of a header and nothing more."""
    server = start_fake({"token_ms": 1}, http__workers="1", http__per_address="8",
                        http__connections="64", http__header_timeout="60s")
    held = []
    for i in range(40):
        held.append(server.connect())
        if i % 2:
            held[-1].send_raw(b"GET /health HTTP/1.1\r\nHost: loc")
    start = time.monotonic()
    assert server.chat("hi", max_tokens=1).status == 200
    assert time.monotonic() - start < 2
    for connection in held:
        connection.close()


def test_an_address_with_all_its_connections_at_work_is_told_so(start_fake):
    server = start_fake({"token_ms": 5, "sequences": 8}, http__workers="1", http__per_address="4",
                        http__connections="32")
    streams = [server.stream("hello", max_tokens=400).read(2) for _ in range(4)]
    answer = server.chat("hi", max_tokens=1)
    assert answer.status == 503 and answer.error()["code"] == "server_overloaded"
    assert answer.closed and answer.headers["retry-after"]
    assert server.get("/health").status == 200  # a look at the state is always possible
    for stream in streams:
        stream.close()
    server.await_log("client=gone")
    time.sleep(0.1)
    assert server.chat("hi", max_tokens=1).status == 200


# ---- bodies ----

@pytest.fixture(scope="module")
def small(start_fake):
    return start_fake({"token_ms": 1, "context": 4096}, http__workers="1", http__body="64KiB",
                      http__buffer="1MiB", http__header_timeout="1s", http__body_timeout="1s",
                      http__idle_timeout="1s")


@pytest.mark.parametrize("size", [64 * 1024 + 1, 100 * 1024, 10 * 1024 * 1024])
def test_a_body_over_the_limit_is_413_and_the_end(small, size):
    with small.connect() as connection:
        try:
            connection.send("POST", CHAT, b"{" + b" " * (size - 1))
        except ConnectionError:
            pass  # far over the limit it is not read to its end
        answer = connection.answer()
        assert answer.status == 413 and answer.closed
        assert answer.error()["code"] == "request_too_large"
        assert connection.at_end()
    assert small.chat("hi", max_tokens=1).status == 200


def test_a_chunked_body_over_the_limit_is_413_too(small):
    with small.connect() as connection:
        connection.send("POST", CHAT, headers={"Transfer-Encoding": "chunked"})
        try:
            for _ in range(40):
                connection.send_raw(b"2000\r\n" + b" " * 0x2000 + b"\r\n")
            connection.send_raw(b"0\r\n\r\n")
        except ConnectionError:
            pass
        answer = connection.answer()
        assert answer.status == 413 and answer.closed
    assert small.chat("hi", max_tokens=1).status == 200


def test_a_client_that_expects_to_be_told_first_is(small):
    with small.connect() as connection:
        connection.send("POST", CHAT, headers={"Expect": "100-continue",
                                               "Content-Length": "100000"})
        answer = connection.answer()
        assert answer.status == 413


@pytest.mark.slow  # a sanitizer is slow with large texts
def test_a_body_of_the_very_limit_is_read_at_the_default_settings(start_fake):
    server = start_fake({"token_ms": 1, "context": 4096}, http__workers="1")

    def fill(head, tail, size):
        return head + "x" * (size - len(head) - len(tail)) + tail

    ignored = '{"max_tokens":2,"messages":[{"role":"user","content":"a"}],"metadata":["b",{"c":"'
    content = '{"messages":[{"role":"user","content":"'
    limit = 32 * 1024 * 1024
    with server.stream("hello", max_tokens=3000) as neighbour:  # holds a little of the buffers
        neighbour.read(2)
        assert server.post(CHAT, fill(ignored, '"}]}', limit), timeout=60).status == 200
        answer = server.post(CHAT, fill(content, '"}]}', limit - 1000), timeout=60)
        assert answer.status == 400 and answer.error()["code"] == "context_length_exceeded"
        answer = server.post(CHAT, fill(ignored, '"}]}', limit + 1), timeout=60)
        assert answer.status == 413 and answer.error()["code"] == "request_too_large"


MESSAGE = '{"role":"user","content":"a"}'
COUNTS = {
    "brackets": (CHAT, '{"messages":' + "[" * 10000 + "]" * 10000 + "}"),
    "open-brackets": (CHAT, "[" * 1000000),
    "objects": (CHAT, '{"a":' * 100000),
    "messages": (CHAT, '{"messages":[' + "{}," * 1000000 + "{}]}"),
    "good-messages": (CHAT, '{"messages":[' + (MESSAGE + ",") * 60000 + MESSAGE + "]}"),
    "keys": (CHAT, "{" + ",".join(f'"k{i}":1' for i in range(1000000)) + "}"),
    "some-keys": (CHAT, '{"messages":[' + MESSAGE + '],"max_tokens":1,'
                  + ",".join(f'"k{i}":1' for i in range(200000)) + "}"),
    "stops": (CHAT, '{"messages":[' + MESSAGE + '],"stop":[' + '"a",' * 300000 + '"a"]}'),
    "parts": (CHAT, '{"messages":[{"role":"user","content":['
              + '{"type":"text","text":""},' * 100000 + '{"type":"text","text":"a"}]}]}'),
    "calls": (CHAT, '{"messages":[' + MESSAGE + ',{"role":"assistant","tool_calls":['
              + '{"function":{"name":"f"}},' * 80000 + "5]}]}"),
    "bias": (CHAT, '{"messages":[' + MESSAGE + '],"logit_bias":{'
             + ",".join(f'"{i}":1' for i in range(200000)) + "}}"),
    "ids": ("/v1/completions", '{"prompt":[' + "1," * 600000 + "1]}"),
    "prompts": ("/v1/completions", '{"prompt":[' + '"a",' * 600000 + '"a"]}'),
    "stop-ids": ("/v1/completions", '{"prompt":"a","stop_token_ids":[' + "1," * 600000 + "1]}"),
    "detokenize": ("/detokenize", '{"tokens":[' + "1," * 600000 + "1]}"),
}


@pytest.mark.parametrize("name", COUNTS)
def test_counts_are_bounded_and_their_refusal_is_quick(fake, name):
    path, body = COUNTS[name]
    before = worker_seconds(fake)
    answer = fake.post(path, body, timeout=60)
    took = worker_seconds(fake) - before
    print(f"{name}: {answer.status} after {took:.2f} s")
    assert answer.status in (200, 400, 413), answer.body[:200]
    if answer.status >= 400:
        answer.error()
    assert took < (15 if daemon.SANITIZER else 2)


def test_json_that_would_take_too_much_memory_is_413(small):
    body = json.dumps(daemon.chat_body("a", metadata=[[]] * 20000))
    assert len(body) > 64 * 1024
    body = '{"messages":[],"m":[' + "{}," * 12000 + "{}]}"
    assert len(body) < 64 * 1024
    answer = small.post(CHAT, body)
    assert answer.status == 413 and "http.buffer" in answer.error()["message"]


def test_bodies_that_fill_the_buffers_are_refused_and_leave_them_free(start_fake):
    server = start_fake({"token_ms": 1}, http__workers="1", http__body="512KiB",
                        http__buffer="1MiB")
    half = b"{" + b" " * (400 * 1024)
    waiting = []
    for _ in range(2):
        connection = server.connect()
        connection.send("POST", CHAT, half, {"Content-Length": str(len(half) + 1)})
        waiting.append(connection)
    time.sleep(0.3)
    answer = server.chat("x" * 400000, max_tokens=1)
    assert answer.status == 503 and answer.error()["code"] == "server_overloaded"
    for connection in waiting:
        connection.close()
    time.sleep(0.2)
    answer = server.chat("x" * 300000, max_tokens=1)
    assert answer.status == 400 and answer.error()["code"] == "context_length_exceeded"


# ---- time ----

def test_a_stream_is_kept_alive_while_its_worker_reads_the_largest_bodies(start_fake):
    """Parsing and tokenizing go on in slices; what is one go is short against any keepalive."""
    server = start_fake({"prefill_ms": 2000, "token_ms": 1, "context": 16384}, http__workers="1",
                        http__keepalive="200ms")
    text = '{"messages":[{"role":"user","content":"%s"}]}'
    bodies = [text % (one * (size // len(one))) for one, size in
              (("x", 31 << 20), (" ", 8 << 20), ("word ", 20 << 20), ("7", 4 << 20))]
    bodies += ['{"x":[' + "[]," * 180000 + "[]]}", COUNTS["keys"][1]]
    done = threading.Event()

    def send(body):
        while not done.is_set():
            assert server.post(CHAT, body, timeout=60).status in (400, 413, 503)

    with concurrent.futures.ThreadPoolExecutor(4) as crew, server.stream("hello", max_tokens=1) as s:
        s.read(1)
        crew.submit(send, bodies[0])
        gaps = []
        for body in bodies[1:]:
            crew.submit(lambda b: server.post(CHAT, b, timeout=60), body)
        end = time.monotonic() + 4
        while (last := time.monotonic()) < end:
            assert s.next()["choices"][0]["finish_reason"] is None
            gaps.append(time.monotonic() - last)
        done.set()
    print(f"{len(gaps)} events, the longest gap was {max(gaps) * 1e3:.0f} ms")
    assert max(gaps) < 2 and len(gaps) > 4


def test_a_header_that_trickles_is_cut_off(small):
    start = time.monotonic()
    with small.connect() as connection:
        with pytest.raises(ConnectionError):
            for byte in b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Slow: " + b"a" * 40:
                connection.send_raw(bytes([byte]))
                time.sleep(0.1)
    assert 0.8 < time.monotonic() - start < 4


def test_a_later_header_that_trickles_is_408_and_the_end(small):
    with small.connect() as connection:
        connection.send("GET", "/health")
        assert connection.answer().status == 200
        time.sleep(0.3)  # idling is no part of it
        start = time.monotonic()
        for byte in b"GET /hea":
            connection.send_raw(bytes([byte]))
            time.sleep(0.05)
        answer = connection.answer()
        assert answer.status == 408 and answer.closed
        assert answer.error()["code"] == "request_timeout"
        assert connection.at_end()
        assert 0.8 < time.monotonic() - start < 4


def test_a_body_that_trickles_is_408_and_the_end(small):
    with small.connect() as connection:
        connection.send("POST", CHAT, b"{", {"Content-Length": "1000"})
        start = time.monotonic()
        for _ in range(6):
            connection.send_raw(b" ")
            time.sleep(0.1)
        answer = connection.answer()
        assert answer.status == 408 and answer.closed
        assert answer.error()["code"] == "request_timeout"
        assert connection.at_end()
        assert 0.7 < time.monotonic() - start < 3


def test_an_idle_connection_is_closed(small):
    with small.connect() as connection:
        connection.send("GET", "/health")
        assert connection.answer().status == 200
        start = time.monotonic()
        assert connection.at_end()
        assert 0.8 < time.monotonic() - start < 3


def test_a_request_that_came_in_time_is_answered_however_late_we_look(start_fake):
    server = start_fake(http__idle_timeout="1s", http__header_timeout="1s", http__workers="1",
                        http__per_address="64")
    (worker,) = server.children()["colizig-worker"]
    with contextlib.ExitStack() as open_ones:
        kept = [open_ones.enter_context(server.connect()) for _ in range(20)]
        for connection in kept:
            connection.send("GET", "/health")
            assert connection.answer().status == 200
        # Not in the middle of the last answer, whose time is libmicrohttpd's.
        until(lambda: sleeps(worker))
        os.kill(worker, signal.SIGSTOP)
        try:
            for connection in kept:
                connection.send("GET", "/health")
            time.sleep(1.5)  # the time of each is over before a byte was read
        finally:
            os.kill(worker, signal.SIGCONT)
        assert [connection.answer().status for connection in kept] == [200] * 20


def test_waiting_for_the_engine_is_not_idling(start_fake):
    server = start_fake({"prefill_ms": 100, "token_ms": 1}, http__idle_timeout="1s",
                        http__keepalive="10s")
    answer = server.chat("hello", max_tokens=1)
    assert answer.status == 200 and answer.json()["timings"]["prompt_ms"] > 900
    with server.stream("hello", max_tokens=1) as stream:
        assert stream.rest().done


@pytest.mark.parametrize("settings, word", [
    ({"http__idle_timeout": "1s"}, "client=gone"),
    ({"http__body": "64KiB", "http__buffer": "1MiB"}, "client dropped")],
    ids=["idle", "buffer"])
def test_a_reader_that_stops_reading_is_let_go_and_slows_nobody(start_fake, settings, word):
    server = start_fake({"token_ms": 0, "prefill_ms": 0, "sequences": 2, "context": 60000},
                        http__workers="1", **settings)
    lazy = server.connect()
    lazy.socket.setsockopt(1, 8, 4096)  # SO_RCVBUF
    lazy.send("POST", CHAT, daemon.chat_body("hello", max_tokens=50000, stream=True))
    start = time.monotonic()
    for _ in range(5):
        assert server.chat("hi", max_tokens=4).status == 200
    assert time.monotonic() - start < 2
    server.await_log(word, 10)
    lazy.close()
    assert server.chat("hi", max_tokens=4).status == 200


# ---- ending ----

def test_a_drain_lets_requests_finish_and_exits_0(start_fake):
    server = start_fake({"token_ms": 5})
    idle = server.connect()
    idle.send("GET", "/health")
    idle.answer()
    stream = server.stream("hello", max_tokens=200).read(2)
    server.signal(signal.SIGTERM)
    assert idle.at_end()
    assert stream.rest().done and stream.finish() == "length"
    assert server.wait() == 0


def test_a_drain_has_an_end(start_fake):
    server = start_fake({"token_ms": 50, "context": 100000}, http__drain_timeout="1s")
    stream = server.stream("hello", max_tokens=50000).read(2)
    connection = server.connect()
    connection.send("POST", CHAT, daemon.chat_body("hello", max_tokens=50000))
    time.sleep(0.2)
    start = time.monotonic()
    server.signal(signal.SIGTERM)
    stream.rest()
    assert stream.broken and stream.events[-1]["error"]["code"] == "draining"
    answer = connection.answer()
    assert answer.status == 503 and answer.error()["code"] == "draining"
    assert server.wait() == 0
    assert time.monotonic() - start < 4


def test_an_open_connection_is_told_that_the_server_drains(start_fake):
    server = start_fake({"token_ms": 20}, http__workers="1")
    stream = server.stream("hello", max_tokens=60).read(2)
    late = server.connect()
    late.send("POST", CHAT, daemon.chat_body("hello"), {"Content-Length": "1000"})
    time.sleep(0.2)
    server.signal(signal.SIGTERM)
    server.await_log("draining")
    body = json.dumps(daemon.chat_body("hello"))
    late.send_raw(b" " * (1000 - len(body)))
    answer = late.answer()
    assert answer.status == 503 and answer.error()["code"] == "draining"
    assert stream.rest().done
    assert server.wait() == 0
