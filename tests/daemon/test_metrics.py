"""GET /metrics: the format, sums over both workers, and answers whatever the engine does."""
import contextlib
import math
import os
import re
import signal
import socket
import time

import pytest

import server

SAMPLE = re.compile(r'([a-z_]+)(\{((?:[a-z_]+="(?:[^"\\\n]|\\["\\n])*",?)*)\})? (\S+)')
LABEL = re.compile(r'([a-z_]+)="((?:[^"\\\n]|\\["\\n])*)"')


def parse(text):
    """{(name, labels): value}, every line of it checked against the format 0.0.4."""
    samples, types, helped, family = {}, {}, set(), None
    assert text.endswith("\n")
    for line in text[:-1].split("\n"):
        if line.startswith("# HELP "):
            family = line.split(" ", 3)[2]
            assert family not in helped and line.split(" ", 3)[3]
            helped.add(family)
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name == family and name not in types
            assert kind in ("counter", "gauge", "histogram")
            types[name] = kind
        else:
            found = SAMPLE.fullmatch(line)
            assert found, line
            name, labels = found[1], dict(LABEL.findall(found[3] or ""))
            base = name
            if types[family] == "histogram":
                base = re.sub(r"_(bucket|sum|count)$", "", name)
            assert base == family, f"{line} under {family}"
            assert (types[family] == "counter") == name.endswith("_total")
            value = float(found[4])
            assert math.isfinite(value) and value >= 0, line
            key = (name, frozenset(labels.items()))
            assert key not in samples, line
            samples[key] = value
    check_histograms(samples, types)
    return samples


def check_histograms(samples, types):
    for name, kind in types.items():
        if kind != "histogram":
            continue
        series = {}
        for (sample, labels), value in samples.items():
            if sample == f"{name}_bucket":
                bound = dict(labels)["le"]
                rest = frozenset(label for label in labels if label[0] != "le")
                series.setdefault(rest, []).append((float(bound), value))
        for rest, buckets in series.items():
            counts = [count for _, count in sorted(buckets)]
            assert counts == sorted(counts) and sorted(buckets)[-1][0] == math.inf
            assert counts[-1] == samples[(f"{name}_count", rest)]
            assert (samples[(f"{name}_sum", rest)] > 0) <= (counts[-1] > 0)


def scrape(connection):
    connection.send("GET", "/metrics")
    answer = connection.answer()
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return parse(answer.body.decode())


def value(samples, name, **labels):
    return samples.get((f"colizig_{name}", frozenset(labels.items())), 0)


def await_value(connection, wanted, name, seconds=10, **labels):
    """Counts travel as messages: the one of a request that just ended may be on its way."""
    deadline = time.monotonic() + seconds
    while True:
        samples = scrape(connection)
        if value(samples, name, **labels) == wanted:
            return samples
        assert time.monotonic() < deadline, (name, labels, wanted, value(samples, name, **labels))
        time.sleep(0.02)


def both_workers(daemon):
    """A kept connection to each worker: while one stands still, the other takes it."""
    found = []
    pids = daemon.children()["colizig-worker"]
    for stopped in pids:
        os.kill(stopped, signal.SIGSTOP)
        try:
            found.append(daemon.connect())
            scrape(found[-1])
        finally:
            os.kill(stopped, signal.SIGCONT)
    return found


@pytest.fixture(scope="module")
def daemon(start_fake):
    return start_fake({"token_ms": 1, "n_tokens": 5, "context": 256, "sequences": 1, "queue": 4,
                       "fail_on_text": "boom", "fail_after": 2})


def test_counters_add_up_over_both_workers(daemon):
    one, two = both_workers(daemon)
    before = scrape(one)
    for _ in range(3):
        for connection in (one, two):
            connection.send("POST", "/v1/chat/completions", server.chat_body("hello"))
            assert connection.answer().status == 200
    for connection, body, status in (
            (one, server.chat_body("short", max_tokens=2), 200),
            (two, server.chat_body("hello", stop=["e", "a", "o", "i"], max_tokens=100), 200),
            (one, server.chat_body("boom"), 500),
            (two, server.chat_body("word " * 999), 400),
            (one, server.chat_body("hello", temperature=9), 400)):
        connection.send("POST", "/v1/chat/completions", body)
        assert connection.answer().status == status
    two.send("GET", "/secret/path/of/a/client")
    assert two.answer().status == 404

    await_value(one, 1 + value(before, "http_requests_total", method="GET", route="other",
                               status="404"),
                "http_requests_total", method="GET", route="other", status="404")
    for connection in (one, two):  # both say the same
        after = await_value(connection, 8, "http_requests_total", method="POST",
                            route="/chat/completions", status="200")
        assert value(after, "http_requests_total", method="POST", route="/chat/completions",
                     status="400") == 2
        assert value(after, "http_requests_total", method="POST", route="/chat/completions",
                     status="500") == 1
        assert value(after, "http_request_duration_seconds_count", route="/chat/completions") == 11
        ends = {reason: value(after, "requests_finished_total", reason=reason)
                for reason in ("stop", "length", "cancelled", "error")}
        assert ends == {"stop": 7, "length": 1, "cancelled": 0, "error": 1}
        assert value(after, "requests_rejected_total", reason="context_length") == 1
        assert value(after, "requests_rejected_total", reason="invalid") == 1
        for name in ("request_seconds", "decode_seconds", "request_prompt_tokens"):
            assert value(after, f"{name}_count") == 8
        for name in ("queue_seconds", "prefill_seconds"):  # not of the one with a stop string
            assert value(after, f"{name}_count") == 7
        assert value(after, "time_to_first_token_seconds_count") == 9
        assert value(after, "engine_up") == 1 and value(after, "model_loaded") == 1
        assert value(after, "context_tokens_max") == 256
        assert not any("secret" in text for key in after for label in key[1] for text in label)
    one.close()
    two.close()


def test_a_client_that_leaves_is_counted_where_it_was(start_fake):
    slow = start_fake({"token_ms": 20, "prefill_ms": 4, "sequences": 1})
    with slow.connect() as connection:
        running = slow.stream("first")
        running.read(3)
        waiting = slow.stream("second")
        samples = await_value(connection, 1, "requests_queued")
        assert value(samples, "requests_running") == 1
        waiting.close()
        await_value(connection, 1, "client_disconnects_total", phase="queue")
        running.close()
        samples = await_value(connection, 1, "client_disconnects_total", phase="decode")
        assert value(samples, "requests_finished_total", reason="cancelled") == 2
        reading = slow.stream("word " * 800)
        reading.close()
        await_value(connection, 1, "client_disconnects_total", phase="prefill")


def test_it_answers_at_once_while_the_engine_computes_hangs_or_is_gone(start_fake):
    daemon = start_fake({"hang_on_text": "hang", "load_ms": 1000}, wait=None)
    with daemon.connect() as connection:
        daemon.await_log("engine started")
        while not value(samples := scrape(connection), "engine_up"):
            time.sleep(0.02)
        assert value(samples, "model_loaded") == 0  # loading, and the door answers
    daemon.await_status("/readyz", 200)
    hung = daemon.stream("hang")  # the engine thread stands still in the middle of a step
    with daemon.connect() as connection:
        started = time.monotonic()
        assert value(scrape(connection), "engine_up") == 1
        assert time.monotonic() - started < 1
        engine = daemon.children()["colizig-door"][0]
        os.kill(engine, signal.SIGSTOP)
        try:
            started = time.monotonic()
            samples = scrape(connection)
            assert value(samples, "engine_up") == 0 and len(samples) == 3
            assert 0.9 < time.monotonic() - started < 5
        finally:
            os.kill(engine, signal.SIGKILL)
        hung.close()
        daemon.await_log("engine died")
        started = time.monotonic()
        assert value(scrape(connection), "model_loaded") == 0
        assert time.monotonic() - started < 1
    daemon.await_status("/readyz", 200)
    with daemon.connect() as connection:  # counters begin anew, all together
        assert value(await_value(connection, 1, "model_loaded"), "requests_finished_total",
                     reason="cancelled") == 0


def test_no_scrape_among_many_calls_a_living_engine_down(start_fake):
    fake = start_fake({"token_ms": 0.5}, http__workers="1")
    with contextlib.ExitStack() as stack:
        all_of_them = [stack.enter_context(fake.connect()) for _ in range(40)]
        for connection in all_of_them:
            connection.send("GET", "/metrics")
        answers = [connection.answer() for connection in all_of_them]
    for answer in answers:
        if answer.status == 200:
            assert value(parse(answer.body.decode()), "engine_up") == 1
        else:
            assert answer.status == 503 and int(answer.headers["retry-after"]) > 0


def test_real_figures_of_the_real_engine(start_real):
    real = start_real()
    with real.connect() as connection:
        before = scrape(connection)
        assert real.chat("Tell me", max_tokens=20).status == 200
        await_value(connection, 1, "requests_finished_total", reason="length")
        after = await_value(connection, 20, "generation_tokens_total", kind="content")
    grown = {name: value(after, name) - value(before, name)
             for name in ("prompt_tokens_total", "expert_cache_hits_total",
                          "expert_cache_misses_total")}
    assert grown["prompt_tokens_total"] > 4
    assert grown["expert_cache_hits_total"] > 0 and grown["expert_cache_misses_total"] > 0
    assert value(after, "memory_planned_bytes") <= value(after, "memory_budget_bytes") == 512 << 20
    resident = after[("process_resident_memory_bytes", frozenset())]
    assert resident > 1 << 20
    assert after[("process_cpu_seconds_total", frozenset())] > 0
    head = real.request("HEAD", "/metrics")
    assert head.status == 200 and real.post("/metrics", {}).status == 405


def test_a_reader_that_takes_its_time_gets_figures_and_nothing_else(start_fake):
    """An answer that waits for its reader for longer than the page would wait for the engine."""
    fake = start_fake({"token_ms": 0.5}, http__workers="1")
    connection = server.Connection.__new__(server.Connection)
    connection.socket, connection.port, connection.buffer = socket.socket(), fake.port, b""
    with connection:
        # So little fits into the kernel's buffers that the answers cannot leave at once.
        connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2304)
        connection.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 88)
        connection.socket.settimeout(10)
        connection.socket.connect(("127.0.0.1", fake.port))
        for _ in range(12):
            connection.send("GET", "/metrics")
        time.sleep(1.5)
        for i in range(100): # other clients' memory, of the size of an answer
            assert fake.post("/tokenize", {"content": "secret " * (430 + 20 * i)}).status == 200
        for _ in range(12):
            answer = connection.answer()
            assert answer.status == 200 and b"secret" not in answer.body
            parse(answer.body.decode())
