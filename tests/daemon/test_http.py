"""HTTP/1.1 as clients, proxies and attackers spell it: one clear answer in JSON, then the connection
is in step or closed."""
import json
import time

import pytest

import server as daemon

CHAT = "/v1/chat/completions"
GOOD = json.dumps({"messages": [{"role": "user", "content": "a"}], "max_tokens": 2}).encode()
LENGTH = f"Content-Length: {len(GOOD)}"
CHUNKED = "Transfer-Encoding: chunked"
POST = f"POST {CHAT} HTTP/1.1"
GET = "GET /health HTTP/1.1"


def raw(line, *fields, body=b"", host="Host: localhost"):
    lines = [line, *([host] if host else []), *fields]
    return "".join(one + "\r\n" for one in lines).encode("latin-1") + b"\r\n" + body


def ask(server, data, method="GET", later=False):
    """The answer, its error object checked when it has one; and whether the end came after it.
    later: on a connection that had an answer before."""
    with server.connect(5) as connection:
        if later:
            connection.send("GET", "/health")
            assert connection.answer().status == 200
        start = time.monotonic()
        connection.send_raw(data)
        answer = connection.answer(method)
        assert time.monotonic() - start < 2
        if answer.status >= 400:
            assert answer.headers["content-type"] == "application/json; charset=utf-8"
            assert answer.headers["x-request-id"].startswith("req_")
            answer.error()
        if answer.closed:
            assert connection.at_end()
        else:  # in step
            connection.send("GET", "/v1/models")
            assert connection.answer().json()["object"] == "list"
        return answer


either = pytest.mark.parametrize("later", [False, True], ids=["first", "later"])


# ---- where a request ends ----

@either
@pytest.mark.parametrize("fields, status, code", [
    (["Content-Length: abc"], 400, "invalid_request"),
    (["Content-Length: -5"], 400, "invalid_request"),
    (["Content-Length: +5"], 400, "invalid_request"),
    (["Content-Length: 0x10"], 400, "invalid_request"),
    (["Content-Length: 5, 5"], 400, "invalid_request"),
    (["Content-Length:"], 400, "invalid_request"),
    (["Content-Length: 99999999999999999999999"], 413, "request_too_large"),
    (["Content-Length: 18446744073709551616"], 413, "request_too_large"),
    ([LENGTH, "Content-Length: 3"], 400, "invalid_request"),
    ([LENGTH, LENGTH], 400, "invalid_request"),
    ([LENGTH, CHUNKED], 400, "invalid_request"),
    ([CHUNKED, CHUNKED], 400, "invalid_request"),
    (["Transfer-Encoding: gzip"], 501, "unsupported_transfer_encoding"),
    (["Transfer-Encoding: gzip, chunked"], 501, "unsupported_transfer_encoding"),
    (["Transfer-Encoding: identity"], 501, "unsupported_transfer_encoding"),
    (["Content-Length : 5"], 400, "invalid_request"),
    (["Host: localhost"], 400, "invalid_request"),
    (["X-A: 1\r\n folded"], 400, "invalid_request"),
    (["X-A: a\rContent-Length: 3"], 400, "invalid_request"),
    (["X-A: a\0b"], 400, "invalid_request"),
    (["no colon"], 400, "invalid_request")])
def test_a_request_that_could_be_read_in_two_ways_is_refused_and_ends(fake, fields, status, code,
                                                                      later):
    answer = ask(fake, raw(POST, *fields, body=GOOD), later=later)
    assert answer.status == status and answer.closed
    assert answer.error()["code"] == code
    assert answer.headers["x-should-retry"] == "false"


@either
@pytest.mark.parametrize("body", [b"zz\r\nabc\r\n0\r\n\r\n", b"-1\r\n", b"2\r\nabcd\r\n0\r\n\r\n",
                                  b"2\r\nab\r\n \r\n\r\n", b"0x2\r\nab\r\n0\r\n\r\n",
                                  b"1000000000000000000\r\n"],
                         ids=["size", "negative", "no-end", "blank", "hex", "huge"])
def test_a_body_that_is_not_made_of_chunks_is_refused_and_ends(fake, body, later):
    answer = ask(fake, raw(POST, CHUNKED, body=body), later=later)
    assert answer.status == 400 and answer.closed
    with fake.connect(5) as connection:  # libmicrohttpd's own words where the head came before
        connection.send_raw(raw(POST, CHUNKED))
        time.sleep(0.05)
        connection.send_raw(body)
        answer = connection.head()
        assert 400 <= answer.status < 500 and answer.closed
    assert fake.get("/health").status == 200


@pytest.mark.parametrize("what", ["extension", "trailer"])
def test_an_endless_line_in_a_chunked_body_does_not_wait_for_the_bodys_time(fake, what):
    line = b"1;a=" if what == "extension" else b"0\r\nX-A: "
    with fake.connect(10) as connection:
        connection.send_raw(raw(POST, CHUNKED, body=line + b"a" * 100000))
        answer = connection.answer()  # body_timeout is 30 s
        assert 400 <= answer.status < 500 and answer.closed
        assert what == "trailer" or "chunked body" in answer.error()["message"]
        assert connection.at_end()


def test_bodies_end_where_they_say(fake):
    for fields, body in (([LENGTH], GOOD), ([CHUNKED], b"%x\r\n%s\r\n0\r\n\r\n" % (len(GOOD), GOOD)),
                         ([CHUNKED], b"%x;ext=1\r\n%s\r\n0\r\nX-Trailer: 1\r\n\r\n" % (len(GOOD), GOOD))):
        answer = ask(fake, raw(POST, *fields, body=body))
        assert answer.status == 200 and not answer.closed


# ---- what is asked for ----

@pytest.mark.parametrize("line, status", [
    ("GET /health HTTP/1.1", 200), ("GET http://localhost/health HTTP/1.1", 200),
    ("GET http://127.0.0.1:8080/v1/models?x=1 HTTP/1.1", 200), ("GET HTTP://LOCALHOST HTTP/1.1", 200),
    ("GET http://evil.example/health HTTP/1.1", 403), ("GET http://localhost@evil/ HTTP/1.1", 403),
    ("GET http:///health HTTP/1.1", 403), ("GET ftp://localhost/health HTTP/1.1", 404),
    ("OPTIONS * HTTP/1.1", 204), ("GET * HTTP/1.1", 404), ("CONNECT localhost:80 HTTP/1.1", 404),
    ("BREW /health HTTP/1.1", 405), ("TRACE /health HTTP/1.1", 405), ("get /health HTTP/1.1", 405),
    ("PROPFIND / HTTP/1.1", 405), ("GET /health HTTP/1.9", 200), ("GET /health?a=%00%zz HTTP/1.1", 200),
    ("GET /%zz HTTP/1.1", 404), ("GET /health%00 HTTP/1.1", 404), ("GET //v1//health/ HTTP/1.1", 200)])
def test_targets_and_methods_have_one_answer(fake, line, status):
    assert ask(fake, raw(line), line.split()[0]).status == status


@either
@pytest.mark.parametrize("data, status", [
    (b"GET /health\r\n\r\n", 400), (b"BAD\r\n\r\n", 400), (raw("GET /\0 HTTP/1.1"), 400), (raw("GET /health HTTP/2.0"), 505), (raw("GET /a b HTTP/1.1"), 400),
    (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505), (raw("GET /health http/1.1"), 400),
    (bytes.fromhex("16030100c8010000c40303") + b"\xa5" * 190, 400), (b'{"messages":[]}', 400),
    (raw("GET /" + "a" * 9000 + " HTTP/1.1"), 414), (b"GET /" + b"a" * 300000, 414),
    (raw(GET, "X-A: " + "a" * 17000), 431), (raw(GET, "X-A: " + "a" * 1000000), 431),
    (raw(GET, *["a:"] * 3000), 431), (raw("GET /?" + "a&" * 3000 + " HTTP/1.1"), 431),
    (raw(GET, "Cookie: " + "a=b;" * 2000), 431), (raw(GET, "Cookie: " + "a=b;" * 3000), 431)],
    ids=["0.9", "bad", "zero", "2.0", "blank", "h2", "lower", "tls", "json", "url", "endless-url", "header",
         "large-header", "fields", "arguments", "cookies", "more-cookies"])
def test_what_is_no_request_or_too_much_of_one_is_told_so_once_and_ends(fake, data, status, later):
    answer = ask(fake, data, later=later)
    assert answer.status == status and answer.closed


def test_sixteen_kibibytes_of_headers_are_read(fake):
    pad = "X-A: " + "a" * (16 * 1024 - 200)
    assert ask(fake, raw(GET, pad)).status == 200
    assert ask(fake, raw(POST, pad, LENGTH, body=GOOD)).status == 200
    assert ask(fake, raw(GET, *[f"X-{i}: {i}" for i in range(150)])).status == 200
    assert ask(fake, raw(GET, "Cookie: " + "name=0123456789; " * 100)).status == 200


def test_http_1_0_needs_no_host_and_is_closed_unless_kept(fake):
    answer = ask(fake, raw("GET /health HTTP/1.0", host=None))
    assert answer.status == 200 and answer.closed
    with fake.connect() as connection:
        for _ in range(2):
            connection.send_raw(raw("GET /health HTTP/1.0", "Connection: keep-alive", host=None))
            assert connection.answer().status == 200
    # A stream without chunks ends with the connection.
    body = json.dumps(daemon.chat_body("a", max_tokens=3, stream=True)).encode()
    with fake.connect() as connection:
        connection.send_raw(raw(f"POST {CHAT} HTTP/1.0", f"Content-Length: {len(body)}", host=None,
                                body=body))
        head = connection.head()
        assert head.status == 200 and "transfer-encoding" not in head.headers
        text = connection.buffer
        while data := connection.socket.recv(65536):
            text += data
        assert text.endswith(b"data: [DONE]\n\n")
    assert ask(fake, raw(GET, host=None)).status == 400


def test_continue_is_said_before_a_body_that_will_be_read(fake):
    with fake.connect() as connection:
        connection.send_raw(raw(POST, LENGTH, "Expect: 100-continue"))
        assert connection._line().startswith(b"HTTP/1.1 100 ")
        assert connection._line() == b""
        connection.send_raw(GOOD)
        assert connection.answer().status == 200


def test_requests_sent_together_are_answered_in_turn(fake):
    with fake.connect() as connection:
        connection.send_raw(raw(GET) + raw(POST, LENGTH, body=GOOD) + raw("GET /nope HTTP/1.1") +
                            raw(POST, CHUNKED, body=b"%x\r\n%s\r\n0\r\n\r\n" % (len(GOOD), GOOD)) +
                            raw("GET /version HTTP/1.1"))
        got = [connection.answer() for _ in range(5)]
    assert [answer.status for answer in got] == [200, 200, 404, 200, 200]
    assert "choices" in got[1].json() and "version" in got[4].json()


@pytest.mark.parametrize("second", [raw("GET /\0 HTTP/1.1"), raw(GET)[:-9], b"BAD\r\n\r\n", b"x",
                                    raw(POST, LENGTH, "Content-Length: 3", body=GOOD)])
def test_what_is_sent_along_and_is_no_request_is_not_taken_for_one(fake, second):
    with fake.connect(5) as connection:
        connection.send_raw(raw(POST, LENGTH, body=GOOD) + second)
        answer = connection.answer()
        assert answer.status == 200 and answer.closed
        assert connection.at_end()


def test_what_comes_while_an_answer_is_made_is_looked_at_after_it(start_fake):
    server = start_fake({"token_ms": 100})
    with server.connect() as connection:
        connection.send_raw(raw(POST, LENGTH, body=GOOD))
        server.await_requests(1)
        connection.send_raw(raw("GET /\0 HTTP/1.1"))
        assert connection.answer().status == 200
        answer = connection.answer()
        assert answer.status == 400 and answer.closed and answer.error()
        assert connection.at_end()


def test_a_head_may_come_in_pieces(fake):
    data = raw(POST, LENGTH, body=GOOD)
    with fake.connect() as connection:
        for _ in range(2):
            for at in range(0, len(data), 7):
                connection.send_raw(data[at:at + 7])
                time.sleep(0.001)
            answer = connection.answer()
            assert answer.status == 200 and not answer.closed


# ---- who may ask ----

@pytest.fixture(scope="module")
def named(start_fake):
    return start_fake({"token_ms": 1}, http__hosts=["llm.home.lan", "[fd00::7]"],
                      http__cors=["https://chat.home.lan", "app://obsidian.md"])


@pytest.mark.parametrize("host, status", [
    ("llm.home.lan", 200), ("LLM.home.lan:8080", 200), ("[fd00::7]:80", 200), ("localhost", 200),
    ("home.lan", 403), ("llm.home.lan.evil.example", 403), ("llm.home.lan:80x", 403),
    ("fd00::7", 403), ("192.168.1.7", 403)])
def test_http_hosts_adds_names(named, host, status):
    assert ask(named, raw(GET, host=f"Host: {host}")).status == status
    assert ask(named, raw(f"GET http://{host}/health HTTP/1.1")).status == status


@pytest.mark.parametrize("origin, allowed", [
    ("https://chat.home.lan", True), ("app://obsidian.md", True), ("http://localhost:3000", True),
    ("http://chat.home.lan", False), ("https://chat.home.lan:444", False),
    ("https://chat.home.lan.evil.example", False), ("null", False)])
def test_http_cors_adds_origins(named, origin, allowed):
    answers = [named.get("/health", headers={"Origin": origin}),
               named.get("/nope", headers={"Origin": origin}),
               named.request("OPTIONS", CHAT, headers={
                   "Origin": origin, "Access-Control-Request-Method": "POST",
                   "Access-Control-Request-Headers": "authorization, x-stainless-os"})]
    assert [answer.status for answer in answers] == [200, 404, 204]
    for answer in answers:
        assert answer.headers.get("access-control-allow-origin") == (origin if allowed else None)
        assert "access-control-allow-credentials" not in answer.headers
        assert not allowed or answer.headers["vary"] == "Origin"
    assert answers[2].headers.get("access-control-allow-headers") \
        == ("authorization, x-stainless-os" if allowed else None)


def test_preflights_are_answered_when_all_else_is_refused(start_fake):
    server = start_fake({"token_ms": 5, "sequences": 1, "queue": 0}, http__workers="1",
                        http__per_address="2")
    streams = [server.stream("hello", max_tokens=2000).read(2)]
    busy = server.connect()
    busy.send("POST", CHAT, b"", {"Content-Length": "100"})
    time.sleep(0.1)
    answer = server.request("OPTIONS", CHAT, headers={"Origin": "http://localhost"})
    assert answer.status == 204 and answer.headers["access-control-allow-origin"]
    assert server.chat().status == 503
    busy.close()
    streams[0].close()


# ---- pages ----

@pytest.mark.parametrize("path", ["/", "/v1/models", "/v1/models/fake-model", "/health", "/v1/health",
                                  "/livez", "/readyz", "/version", "/props", "/slots"])
def test_head_goes_where_get_goes(fake, path):
    got, head = fake.get(path), fake.request("HEAD", path)
    assert got.status == head.status == 200
    assert int(head.headers["content-length"]) == len(got.body) > 0


def test_props_say_what_anyone_may_know(fake):
    got = fake.get("/props")
    props = got.json()
    assert props["default_generation_settings"]["n_ctx"] == 2048
    assert props["total_slots"] == 4 and props["model_alias"] == "fake-model"
    assert b"/fake-model" not in got.body and b"tokenizer" not in got.body  # no path


def test_slots_say_how_busy_it_is_and_not_with_what(start_fake):
    server = start_fake({"token_ms": 5, "context": 4096}, engine__sequences="3")

    def busy():
        slots = server.get("/slots").json()
        assert [slot["id"] for slot in slots] == [0, 1, 2]
        assert all(set(slot) == {"id", "n_ctx", "is_processing"} for slot in slots)
        return sum(slot["is_processing"] for slot in slots)

    def await_busy(n):
        end = time.monotonic() + 10
        while busy() != n:
            assert time.monotonic() < end
            time.sleep(0.05)

    await_busy(0)
    streams = [server.stream("secret word", max_tokens=4000).read(2) for _ in range(2)]
    await_busy(2)  # also in the worker that has none of them
    await_busy(2)
    assert b"secret" not in server.get("/slots").body
    for stream in streams:
        stream.close()
    await_busy(0)
