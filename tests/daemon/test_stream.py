"""Streamed answers: the shape of chunks, stop strings, whole characters, keepalive, errors."""
import time

import pytest

TEXT = "one two three four five"


@pytest.fixture(scope="module")
def says(start_fake):
    """A server that says TEXT and stops."""
    return start_fake({"reply": "text", "text": TEXT, "token_ms": 0.5})


def test_chunks_come_in_their_order_and_shape(fake):
    with fake.stream(max_tokens=5) as stream:
        stream.rest()
    answer = stream.answer
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert answer.headers["cache-control"] == "no-cache, no-transform"
    assert answer.headers["x-accel-buffering"] == "no"
    assert answer.headers["transfer-encoding"] == "chunked"
    assert stream.done
    same = {(e["id"], e["created"], e["model"], e["object"], e["system_fingerprint"])
            for e in stream.events}
    assert len(same) == 1 and stream.events[0]["object"] == "chat.completion.chunk"
    assert stream.events[0]["choices"] == [{"index": 0, "delta": {"role": "assistant", "content": ""},
                                            "logprobs": None, "finish_reason": None}]
    for event in stream.events[1:-1]:
        (choice,) = event["choices"]
        assert list(choice["delta"]) == ["content"] and choice["delta"]["content"]
        assert choice["finish_reason"] is None
    assert stream.events[-1]["choices"][0]["delta"] == {}
    assert stream.finish() == "length"
    assert "timings" in stream.events[-1]
    assert not [e for e in stream.events if "usage" in e or "error" in e]


def test_usage_comes_last_and_only_when_asked_for(fake):
    with fake.stream(max_tokens=5, stream_options={"include_usage": True}) as stream:
        stream.rest()
    last = stream.events[-1]
    assert last["choices"] == [] and "timings" in last
    assert all(event["usage"] is None and event["choices"] for event in stream.events[:-1])
    usage = fake.chat(max_tokens=5).usage()
    assert last["usage"] == usage
    for options in ({"include_usage": False}, None, {}):
        with fake.stream(max_tokens=2, stream_options=options) as plain:
            assert all("usage" not in event for event in plain.rest().events)


@pytest.mark.parametrize("n", [1, 7, 48])
def test_streamed_text_equals_the_text_at_once(fake, n):
    with fake.stream(max_tokens=n) as stream:
        assert stream.rest().text() == fake.chat(max_tokens=n).text()
    assert stream.done


def test_text_streams_token_by_token(start_fake):
    server = start_fake({"token_ms": 10})
    with server.stream(max_tokens=30) as stream:
        start = time.monotonic()
        stream.read(2)
        first = time.monotonic() - start
        stream.rest()
        assert first < 0.15 and time.monotonic() - start > 0.25
    assert len(stream.events) > 15


def test_a_connection_is_kept_after_a_stream(fake):
    with fake.stream(max_tokens=3) as stream:
        stream.rest()
        stream.connection.send("GET", "/v1/models")
        assert stream.connection.answer().json()["object"] == "list"


def test_http_1_0_clients_get_an_unchunked_stream(fake):
    body = b'{"messages":[{"role":"user","content":"a"}],"max_tokens":2,"stream":true}'
    with fake.connect() as connection:
        connection.send_raw(b"POST /v1/chat/completions HTTP/1.0\r\nContent-Length: %d\r\n\r\n%s"
                            % (len(body), body))
        data = b""
        while more := connection.socket.recv(65536):
            data += more
    head, rest = data.split(b"\r\n\r\n", 1)
    assert b" 200 " in head.split(b"\r\n")[0] and b"chunked" not in head.lower()
    assert rest.startswith(b"data: {") and rest.endswith(b"data: [DONE]\n\n")


# ---- characters ----

@pytest.mark.parametrize("seed", range(4))
def test_characters_that_span_tokens_arrive_whole(fake, seed):
    fields = {"max_tokens": 120, "temperature": 1, "seed": seed}
    text = fake.chat(**fields).text()
    with fake.stream(**fields) as stream:
        assert stream.rest().text() == text
    assert any(ord(c) > 0xffff for c in text[:-1]) and "\ufffd" not in text[:-1]


def test_a_character_cut_by_the_limit_is_replaced_once(start_fake):
    server = start_fake({"reply": "text", "text": "a🌲b"})
    tokens = server.post("/tokenize", {"content": "a🌲b"}).json()["tokens"]
    assert len(tokens) > 3
    for n in range(2, len(tokens) - 1):
        text = server.chat(max_tokens=n).text()
        assert text == "a\ufffd"
        with server.stream(max_tokens=n) as stream:
            assert stream.rest().text() == text
    assert server.chat().text() == "a🌲b"


# ---- stop strings ----

@pytest.mark.parametrize("stop, text", [
    ("two", "one "), (" three", "one two"), ("e t", "on"), (["five", "four"], "one two three "),
    (["nothing", "ree fo"], "one two th"), ("o", ""), ("five", "one two three four "), ("one", "")])
def test_a_stop_string_ends_the_text_before_it(says, stop, text):
    answer = says.chat(stop=stop)
    assert (answer.text(), answer.finish()) == (text, "stop")
    with says.stream(stop=stop) as stream:
        assert (stream.rest().text(), stream.finish()) == (text, "stop")
    assert stream.done
    usage = answer.usage()
    assert 0 < usage["completion_tokens"] <= len(TEXT) and usage["prompt_tokens"] > 0


def test_the_stopped_work_costs_no_more_tokens(start_fake):
    server = start_fake({"reply": "text", "text": TEXT, "token_ms": 0.5})
    all_tokens = len(server.post("/tokenize", {"content": TEXT}).json()["tokens"])
    assert server.chat(stop="two").usage()["completion_tokens"] < all_tokens
    assert server.chat().usage()["completion_tokens"] == all_tokens + 1  # the end token counts


@pytest.mark.parametrize("stop", ["two", "e", " three f", "four"])
def test_a_stop_string_is_paid_for_up_to_the_token_that_completes_it(says, stop):
    """The engine is cancelled then and reports nothing, so these are the worker's own figures."""
    pieces = says.post("/tokenize", {"content": TEXT, "with_pieces": True}).json()["tokens"]
    text, expected = b"", None
    for n, piece in enumerate(pieces, 1):
        part = piece["piece"]
        text += part.encode() if isinstance(part, str) else bytes(part)
        if stop.encode() in text and expected is None:
            expected = n
    whole = says.chat("count", max_tokens=200).usage()
    answer = says.chat("count", stop=stop, max_tokens=200)
    assert answer.usage()["completion_tokens"] == expected < whole["completion_tokens"]
    assert answer.usage()["prompt_tokens"] == whole["prompt_tokens"]
    assert answer.usage()["total_tokens"] == whole["prompt_tokens"] + expected
    timings = answer.json()["timings"]
    assert timings["predicted_n"] == expected
    assert timings["prompt_n"] + timings["cache_n"] == whole["prompt_tokens"]
    assert 0 < timings["prompt_ms"] < 5000 and 0 < timings["predicted_ms"] < 5000
    with says.stream("count", stop=stop, max_tokens=200,
                     stream_options={"include_usage": True}) as stream:
        stream.rest()
    assert stream.events[-1]["usage"]["completion_tokens"] == expected
    assert stream.events[-1]["timings"]["predicted_n"] == expected


@pytest.mark.parametrize("stop", ["five!", "e\u0001", " five six", "four five\n"])
def test_text_held_back_for_a_stop_that_never_comes_is_delivered(says, stop):
    answer = says.chat(stop=stop)
    assert (answer.text(), answer.finish()) == (TEXT, "stop")
    with says.stream(stop=stop) as stream:
        assert stream.rest().text() == TEXT
    tokens = says.post("/tokenize", {"content": TEXT}).json()["tokens"]
    limited = says.chat(stop=stop, max_tokens=len(tokens))
    assert (limited.text(), limited.finish()) == (TEXT, "length")


def test_stop_token_ids_end_the_text(says):
    tokens = says.post("/tokenize", {"content": TEXT}).json()["tokens"]
    answer = says.chat(stop_token_ids=[tokens[-1]])
    assert answer.status == 200


# ---- waiting ----

@pytest.fixture(scope="module")
def slow(start_fake):
    """Reads 10 ms a token and looks alive every 300 ms."""
    return start_fake({"prefill_ms": 10, "token_ms": 5, "context": 4096}, http__keepalive="300ms")


def test_headers_and_role_come_before_the_prompt_is_read(slow):
    start = time.monotonic()
    with slow.stream("hello " * 20, max_tokens=2) as stream:
        assert stream.next()["choices"][0]["delta"] == {"role": "assistant", "content": ""}
        assert time.monotonic() - start < 0.3
        stream.rest()
    assert time.monotonic() - start > 0.6 and stream.done


def test_chunks_without_content_keep_a_waiting_stream_alive(slow):
    with slow.stream("hello " * 20, max_tokens=3) as stream:
        stream.rest()
    quiet = [e for e in stream.events if e["choices"] and e["choices"][0]["delta"] == {}
             and e["choices"][0]["finish_reason"] is None]
    assert len(quiet) >= 2
    with slow.stream("hello " * 20, path="/v1/completions", max_tokens=3) as stream:
        stream.rest()
    assert [c for c in stream.choices() if c["text"] == "" and c["finish_reason"] is None]
    assert stream.done


def test_progress_is_told_when_asked_for(slow):
    with slow.stream("hello " * 60, max_tokens=1, return_progress=True) as stream:
        stream.rest()
    told = [e["prompt_progress"] for e in stream.events if "prompt_progress" in e]
    assert told and all(0 < p["processed"] <= p["total"] for p in told)
    assert stream.done


def test_tokens_behind_a_stop_string_count_in_no_choice(start_fake):
    """However late the engine hears of it."""
    server = start_fake({"token_ms": 0, "reply": "text",
                         "text": "one two three four five six seven eight"})
    alone = server.chat("hi", stop="three", max_tokens=50).usage()["completion_tokens"]
    for _ in range(30):
        answer = server.chat("hi", n=4, stop="three", max_tokens=50)
        assert [choice["message"]["content"] for choice in answer.json()["choices"]] \
            == ["one two "] * 4
        assert answer.usage()["completion_tokens"] == 4 * alone


# ---- errors ----

def test_an_error_inside_a_stream_is_an_event_and_a_broken_end(start_fake):
    server = start_fake({"fail_on_text": "break here", "fail_after": 3})
    with server.stream("please break here") as stream:
        assert stream.answer.status == 200
        stream.rest()
    assert stream.events[-1]["error"]["code"] == "engine_error"
    assert stream.done and stream.broken
    assert stream.finish() is None
    assert server.chat(max_tokens=1).status == 200


def test_a_dying_engine_breaks_streams_and_comes_back(start_fake):
    server = start_fake({"crash_on_text": "die now", "token_ms": 5})
    with server.stream("long life", max_tokens=1000) as neighbour, \
            server.stream("die now") as stream:
        neighbour.read(3)
        for one in (stream.rest(), neighbour.rest()):
            assert one.broken and one.events[-1]["error"]["type"] == "server_error"
    answer = server.chat("hello", max_tokens=1)
    if answer.status != 200:
        assert answer.status == 503 and int(answer.headers["retry-after"]) > 0
    server.await_status("/readyz", 200)
    assert server.chat("hello", max_tokens=1).status == 200
    assert len(server.children()) > 0
