"""A client that leaves: its work stops at once, its neighbours notice nothing."""
import time

import pytest

import server as daemon


@pytest.fixture(scope="module")
def one_at_a_time(start_fake):
    """One sequence runs, the rest wait: whoever keeps the engine busy is seen by the next."""
    return start_fake({"token_ms": 2, "prefill_ms": 2, "sequences": 1, "queue": 8,
                       "context": 4096})


def assert_free(server, within=1.0):
    """The only slot is free: a short request is answered at once."""
    start = time.monotonic()
    answer = server.chat("hi", max_tokens=1)
    assert answer.status == 200
    assert time.monotonic() - start < within


@pytest.mark.parametrize("reset", [False, True])
def test_leaving_a_stream_stops_the_work(one_at_a_time, reset):
    stream = one_at_a_time.stream("hello", max_tokens=4000)
    stream.read(4)
    if reset:
        stream.connection.socket.setsockopt(1, 13, b"\1\0\0\0\0\0\0\0")  # SO_LINGER: RST
    stream.close()
    assert_free(one_at_a_time)


@pytest.mark.parametrize("fields", [{}, {"stream": True}])
@pytest.mark.parametrize("content, wait", [("hello", 0.3), ("hello " * 250, 0.2)],
                         ids=["generating", "reading"])
def test_leaving_before_an_answer_stops_the_work(one_at_a_time, fields, content, wait):
    connection = one_at_a_time.connect()
    connection.send("POST", "/v1/chat/completions",
                    daemon.chat_body(content, max_tokens=3000, **fields))
    time.sleep(wait)
    connection.close()
    assert_free(one_at_a_time)


def test_half_closing_counts_as_leaving(one_at_a_time):
    connection = one_at_a_time.connect()
    connection.send("POST", "/v1/chat/completions", daemon.chat_body("hello", max_tokens=4000))
    time.sleep(0.2)
    connection.socket.shutdown(1)
    assert connection.at_end()
    assert_free(one_at_a_time)


def test_queued_clients_that_leave_never_run(one_at_a_time):
    running = one_at_a_time.stream("hello", max_tokens=500)
    running.read(3)
    queued = []
    for index in range(4):
        connection = one_at_a_time.connect()
        connection.send("POST", "/v1/chat/completions",
                        daemon.chat_body("next", max_tokens=4000, stream=index % 2 == 0))
        queued.append(connection)
    time.sleep(0.2)
    for connection in queued:
        connection.close()
    time.sleep(0.2)
    text = running.rest().text()
    assert running.done and running.finish() == "length"
    assert_free(one_at_a_time)
    assert text == one_at_a_time.chat("hello", max_tokens=500).text()


def test_neighbours_keep_their_text_while_others_come_and_go(start_fake):
    server = start_fake({"token_ms": 2, "sequences": 4, "queue": 8})
    want = server.chat("hello", max_tokens=250).text()
    stream = server.stream("hello", max_tokens=250)
    for index in range(12):
        other = server.stream(f"other {index}", max_tokens=4000)
        other.read(2)
        other.close()
        stream.read(5)
    assert stream.rest().text() == want and stream.done


def test_between_prompts_of_a_list_leaving_stops_the_rest(one_at_a_time):
    stream = one_at_a_time.stream(["one", "two", "three"], path="/v1/completions", max_tokens=1000)
    stream.read(3)
    stream.close()
    assert_free(one_at_a_time)
