"""Clients that are slow, silent, rude or gone: the others notice nothing, and nothing is left of them."""
import concurrent.futures
import contextlib
import json
import os
import re
import signal
import socket
import threading
import time

import pytest

import server as daemon
from census import MIB, Census, engine_stats, rss_anon

CHAT = "/v1/chat/completions"
GOOD = 4  # streams that stay


RESET = b"\1\0\0\0\0\0\0\0"  # SO_LINGER: the end is an RST


def connect_from(server, address):
    return server.connect(20, address)


def close_all(connections):
    for connection in connections:
        connection.close()


@contextlib.contextmanager
def stopped(pid):
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


# ---- both workers ----

@pytest.mark.parametrize("which", [0, 1])
def test_with_one_worker_stopped_new_connections_are_served(start_fake, which):
    server = start_fake({"token_ms": 1, "sequences": 16, "queue": 64})
    with stopped(sorted(server.children()["colizig-worker"])[which]):
        waits = []

        def ask(_):
            start = time.monotonic()
            assert server.chat("hi", max_tokens=2).status == 200
            waits.append(time.monotonic() - start)

        for _ in range(20):
            ask(None)
        with concurrent.futures.ThreadPoolExecutor(30) as crew:
            list(crew.map(ask, range(30)))
    print(f"50 of 50, the longest took {max(waits) * 1e3:.0f} ms")
    assert len(waits) == 50 and max(waits) < 3


def test_both_workers_serve_in_a_burst(start_fake):
    """They share the listening socket; whoever is free takes the next one."""
    server = start_fake({"token_ms": 5, "sequences": 64, "queue": 64})
    streams = [None] * 64

    def open_one(i):
        streams[i] = server.stream(f"client {i}", max_tokens=60, timeout=30)

    with concurrent.futures.ThreadPoolExecutor(64) as crew:
        list(crew.map(open_one, range(64)))
        list(crew.map(lambda stream: stream.rest(), streams))
    assert all(stream.done and stream.finish() == "length" for stream in streams)
    counts = {}
    for stream in streams:
        worker = server.await_log(rf"worker\[(\d)\]: request id="
                                  rf"{stream.answer.headers['x-request-id']} ")[1]
        counts[worker] = counts.get(worker, 0) + 1
    print(counts)
    assert set(counts) == {"0", "1"} and min(counts.values()) >= 4


# ---- silence ----

def test_500_silent_connections_keep_nobody_out(start_fake):
    """From ten addresses, so that they are more than the places of all; then all places again."""
    server = start_fake({"token_ms": 1}, http__header_timeout="60s")
    for _ in range(4):
        assert server.chat("hi", max_tokens=2).status == 200
    before = Census(server)
    with server.stream("hello", max_tokens=100) as stream:
        stream.read(2)
        silent = []
        for i in range(500):
            silent.append(connect_from(server, f"127.0.1.{i // 50 + 1}"))
            if i % 3 == 1:
                silent[-1].send_raw(b"POST / HTTP/1.1\r\nX-A: ")
        start = time.monotonic()
        for _ in range(10):
            assert server.chat("hi", max_tokens=2).status == 200
        took = time.monotonic() - start
        held = {pid: rss_anon(pid) - before.memory[pid] for pid in before.pids["colizig-worker"]}
        print(f"ten answers in {took * 1e3:.0f} ms, {[b // 1024 for b in held.values()]} KiB held")
        assert took < 5
        if not daemon.SANITIZER:
            assert max(held.values()) < 2 * MIB  # libmicrohttpd's memory is for those that ask
        assert stream.rest().done
    close_all(silent)
    before.check(grown=MIB)


@pytest.fixture(scope="module")
def strict(start_fake):
    return start_fake({"token_ms": 2, "prefill_ms": 0.01, "context": 4096},
                      http__header_timeout="1500ms", http__body_timeout="1500ms",
                      http__idle_timeout="2s")


def test_bytes_that_trickle_end_with_their_deadline_and_slow_nobody(strict):
    want = strict.chat("hello", max_tokens=300).text()
    before = Census(strict)
    head = b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Slow: " + b"a" * 200
    body = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 999\r\n\r\n"
    slow = [(connect_from(strict, f"127.0.2.{i % 4 + 1}"), i % 2) for i in range(80)]
    for connection, has_body in slow:
        connection.send_raw(body if has_body else head[:20])
    start = time.monotonic()
    with strict.stream("hello", max_tokens=300) as stream, \
            concurrent.futures.ThreadPoolExecutor(1) as crew:
        text = crew.submit(lambda: stream.rest().text())
        alive, at = list(slow), 20
        while alive and time.monotonic() - start < 8:
            for connection, has_body in list(alive):
                try:
                    connection.send_raw(b" " if has_body else head[at:at + 1])
                except OSError:
                    alive.remove((connection, has_body))
            at += 1
            time.sleep(0.1)
        took = time.monotonic() - start
        assert text.result() == want
    print(f"the last was cut off after {took:.1f} s")
    assert not alive and took < 6
    for connection, has_body in slow[:2]:
        assert connection.answer().status == 408
    close_all(connection for connection, _ in slow)
    before.check(grown=MIB)


def test_readers_that_never_read_are_let_go_and_cost_their_share_only(start_fake):
    server = start_fake({"token_ms": 0.3, "prefill_ms": 0, "sequences": 16, "context": 120000},
                        http__workers="1", http__idle_timeout="2s", http__body="256KiB",
                        http__buffer="4MiB")
    want = server.chat("hello", max_tokens=200).text()
    before = Census(server)
    peak = leave_unread(server, want)
    print(f"at most {peak / MIB:.1f} MiB held")
    if not daemon.SANITIZER:
        assert peak < 6 * MIB
    before.check(grown=2 * MIB)  # of what malloc keeps of 4


def leave_unread(server, want):
    """Four streams that nobody reads, until the last is given up; what the worker held then."""
    worker = server.children()["colizig-worker"][0]
    first, peak, lazy = rss_anon(worker), 0, []
    for i in range(4):
        lazy.append(server.connect())
        lazy[-1].socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        lazy[-1].send("POST", CHAT, daemon.chat_body(f"hello {i}", max_tokens=100000, stream=True))
    end = time.monotonic() + 40
    while engine_stats(server)["running"] > 0:
        assert time.monotonic() < end, server.log()
        assert server.chat("hello", max_tokens=200).text() == want
        peak = max(peak, rss_anon(worker) - first)
    close_all(lazy)
    return peak


# ---- those who go ----

def body_text(content, **fields):
    return json.dumps(daemon.chat_body(content, **fields)).encode()


class Vanishing:
    """Clients that leave, each at another point of a request's life."""

    def __init__(self, server, prefill_text):
        self.server, self.prefill_text = server, prefill_text

    def at_connect(self, c):
        pass

    def in_header(self, c):
        c.send_raw(b"POST /v1/chat/completions HTTP/1.1\r\nHost: local")

    def in_body(self, c):
        c.send("POST", CHAT, b'{"messages":[', {"Content-Length": "50000"})

    def at_once(self, c):  # in the queue, or not even there
        c.send("POST", CHAT, body_text("next", max_tokens=3000))

    def waiting(self, c):
        c.send("POST", CHAT, body_text("wait", max_tokens=3000, stream=True))
        time.sleep(0.01)

    def in_prefill(self, c):
        c.send("POST", CHAT, body_text(self.prefill_text, max_tokens=5))
        time.sleep(0.02)

    def in_decode(self, c):
        c.send("POST", CHAT, body_text("more", max_tokens=3000, stream=True))
        try:
            c.socket.settimeout(0.5)
            c.socket.recv(2000)
        except OSError:
            pass  # it is still waiting for its turn

    def after_the_answer(self, c):
        c.send("GET", "/v1/models")
        c.answer()

    PHASES = ("at_connect", "in_header", "in_body", "at_once", "waiting", "in_prefill", "in_decode",
              "after_the_answer")

    def go(self, i):
        with self.server.connect(20, f"127.0.3.{i % 5 + 1}") as connection:
            getattr(self, self.PHASES[i % len(self.PHASES)])(connection)
            how = i // len(self.PHASES) % 3
            if how == 1:
                connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            elif how == 2:
                connection.socket.shutdown(socket.SHUT_WR)

    def all_go(self, n):
        with concurrent.futures.ThreadPoolExecutor(8) as crew:
            list(crew.map(self.go, range(n)))


def good_streams(server, tokens):
    """Four at once, read to their ends."""
    with concurrent.futures.ThreadPoolExecutor(GOOD) as crew:
        streams = list(crew.map(lambda i: server.stream(f"good {i}", max_tokens=tokens, timeout=60),
                                range(GOOD)))
        list(crew.map(lambda stream: stream.rest(), streams))
    assert all(stream.done for stream in streams), server.log()
    return [(stream.text(), stream.finish()) for stream in streams]


def vanish_beside(server, clients, tokens, n):
    """What four streams say while n clients come and go, until the last has gone."""
    texts, gone = [], threading.Event()

    def leave():
        try:
            clients.all_go(n)
        finally:
            gone.set()

    with concurrent.futures.ThreadPoolExecutor(1) as crew:
        leaving = crew.submit(leave)
        while not gone.is_set():
            texts.append(good_streams(server, tokens))
        leaving.result()
    return texts


@pytest.mark.parametrize("engine", ["scripted", pytest.param("real", marks=pytest.mark.slow)])
def test_200_vanishing_clients_change_nothing_for_four_that_stay(start_fake, start_real, engine):
    if engine == "scripted":
        server = start_fake({"token_ms": 2, "prefill_ms": 0.3, "sequences": 8, "queue": 256,
                             "context": 4096})
        clients, tokens = Vanishing(server, "word " * 2000), 400
    else:
        server = start_real("demo", engine__sequences="8", engine__queue="256",
                            engine__context="2048")
        clients, tokens = Vanishing(server, "word " * 600), 40
    want = good_streams(server, tokens)
    clients.all_go(40)  # whatever is taken once and kept is there now
    before = Census(server)
    texts = vanish_beside(server, clients, tokens, 200)
    print(f"{len(texts)} rounds of {GOOD} streams beside 200 clients")
    assert texts and all(one == want for one in texts)
    before.check(grown=MIB)
    stats = engine_stats(server)
    assert stats["running"] == stats["waiting"] == 0
    assert good_streams(server, tokens) == want
    assert not re.search(r"worker \d ended|engine ended", server.log())
