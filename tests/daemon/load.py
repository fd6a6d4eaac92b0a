"""Clients of every kind, well-behaved and not, that keep a daemon busy, each with a seed of its own;
how every request ended is judged and counted.

An ending is one of: complete, refused (an error object), error event, closed (the connection went
without either). Anything else, an answer that is no HTTP or no JSON, a stream that stops without a
word on an open connection, is a fault."""
import collections
import contextlib
import functools
import json
import random
import socket
import threading
import time
import traceback

import server as daemon

WORDS = "the of river stone light two house about winter and bread letter slow green".split()


def words(chance, n):
    return " ".join(chance.choice(WORDS) for _ in range(n))


class Load:
    """Threads that ask until stopped. kinds: functions of this module, (server, chance) -> ending.
    server is asked for each time: it may be another one by then."""

    def __init__(self, server, kinds, n_threads, seed):
        self.server, self.kinds, self.stopping = server, kinds, threading.Event()
        self.endings = collections.Counter()
        self.faults = []
        self.closed = []  # (begin, end, kind): who lost a connection, and when
        self.lock = threading.Lock()
        self.threads = [threading.Thread(target=self._run, args=(f"{seed}-{i}",), daemon=True)
                        for i in range(n_threads)]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self, seconds=60):
        self.stopping.set()
        deadline = time.monotonic() + seconds
        for thread in self.threads:
            thread.join(max(0, deadline - time.monotonic()))
            if thread.is_alive():
                self.faults.append(f"{thread.name} hangs")

    def _run(self, seed):
        chance = random.Random(seed)
        while not self.stopping.is_set():
            kind = chance.choice(self.kinds)
            begin = time.monotonic()
            fault = None
            try:
                ending = kind(self.server, chance)
            except (ConnectionError, BrokenPipeError):
                ending = "closed"
            except Exception:  # a timeout is one: nothing may take that long
                ending, fault = "fault", f"{kind.__name__}: {traceback.format_exc()}"
            with self.lock:
                self.endings[kind.__name__, ending] += 1
                if fault:
                    self.faults.append(fault)
                if ending == "closed":
                    self.closed.append((begin, time.monotonic(), kind.__name__))
            if ending in ("closed", "refused"):
                self.stopping.wait(0.02)

    def table(self):
        rows = collections.defaultdict(dict)
        for (kind, ending), n in sorted(self.endings.items()):
            rows[kind][ending] = n
        return "\n".join(f"{kind:16} " + ", ".join(f"{n} {ending}" for ending, n in row.items())
                         for kind, row in rows.items())


def their_end(connection):
    """What the kernel says of the server's end: state, queues, and an inode once it is accepted."""
    port = connection.socket.getsockname()[1]
    return [line.split() for line in open("/proc/net/tcp")
            if f":{port:04X} " in line] or "gone"


# ---- well-behaved ----

def judge(answer):
    """The ending of a whole answer."""
    if answer.status == 200:
        answer.json()
        return "complete"
    assert answer.status >= 400, answer.status
    error = answer.error()
    if answer.status == 503:
        assert int(answer.headers["retry-after"]) > 0, error
    return "refused"


def judge_stream(stream):
    """The ending of a stream, read to its end."""
    if stream.answer.status != 200:
        return judge(stream.answer)
    stream.rest()
    if stream.events and "error" in stream.events[-1]:
        assert stream.events[-1]["error"]["message"] and not stream.finish()
        return "error event"
    if stream.done:
        assert stream.finish() in ("stop", "length"), stream.events[-2:]
        return "complete"
    assert stream.broken, f"a stream ended without a word: {stream.events[-2:]}"
    return "closed"


def whole(server, chance):
    return judge(server.chat(words(chance, 8), max_tokens=chance.randrange(1, 24), timeout=60))


def streamed(server, chance):
    with server.stream(words(chance, 8), max_tokens=chance.randrange(1, 48), timeout=60) as stream:
        return judge_stream(stream)


def completion(server, chance):
    return judge(server.complete(words(chance, 5), max_tokens=4, timeout=60))


def kept(server, chance):
    """Several requests on one connection."""
    with server.connect(60) as connection:
        for _ in range(chance.randrange(2, 6)):
            connection.send("POST", "/v1/chat/completions",
                            daemon.chat_body(words(chance, 4), max_tokens=2))
            answer = connection.answer("POST")
            ending = judge(answer)
            if answer.closed:
                break
    return ending


def looks(server, chance):
    answer = server.get(chance.choice(["/v1/models", "/health", "/readyz", "/livez", "/metrics"]))
    assert answer.status in (200, 404, 503), answer.status
    return "complete"


def long_prompt(server, chance):
    """Near the context, or past it."""
    return judge(server.chat(words(chance, chance.randrange(100, 700)), max_tokens=4, timeout=110))


# ---- not so ----

@functools.cache
def large(shape, size):
    """A request of megabytes: one text, many small values, many lists, many messages."""
    body = daemon.chat_body("x", max_tokens=2)
    if shape == "text":
        body["messages"][0]["content"] = "winter light " * (size // 13)
    elif shape == "objects":
        body["metadata"] = [{"a": i} for i in range(size // 14)]
    elif shape == "lists":
        body["metadata"] = [[i, [i]] for i in range(size // 20)]
    else:
        body["messages"] *= size // 40
    return json.dumps(body).encode()


def some_large(chance):
    return large(chance.choice(["text", "objects", "lists", "messages"]),
                 chance.choice([1 << 20, 3 << 20, 12 << 20, 24 << 20]))


def large_body(server, chance):
    return judge(server.post("/v1/chat/completions", some_large(chance), timeout=110))


def hoard(server, chance):
    """Most of a large body, and then nothing, for as long as the server waits."""
    body = some_large(chance)
    with server.connect(60) as connection:
        connection.send_raw(b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                            b"Content-Type: application/json\r\n"
                            b"Content-Length: %d\r\n\r\n" % len(body))
        try:
            connection.send_raw(body[:len(body) * 9 // 10])
        except ConnectionError:
            pass
        except TimeoutError as late:
            raise AssertionError(their_end(connection)) from late
        return judge(connection.answer("POST"))


def slow_body(server, chance):
    """A piece now and then, for longer than http.body_timeout or not."""
    body = json.dumps(daemon.chat_body(words(chance, 400), max_tokens=2)).encode()
    with server.connect(60) as connection:
        connection.send_raw(b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                            b"Content-Type: application/json\r\n"
                            b"Content-Length: %d\r\n\r\n" % len(body))
        step = chance.randrange(20, 200)
        for at in range(0, len(body), step):
            try:
                connection.send_raw(body[at:at + step])
            except ConnectionError:
                break  # its time was over; what was said about it may still be there
            time.sleep(0.05)
        return judge(connection.answer("POST"))


def slow_head(server, chance):
    with server.connect(60) as connection:
        try:
            for byte in b"GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: yes\r\n\r\n":
                connection.send_raw(bytes([byte]))
                time.sleep(chance.choice([0.01, 0.05]))
        except ConnectionError:
            pass
        return judge(connection.answer())


def vanishing(server, chance):
    """Leaves in the middle: of its head, its body, its answer."""
    connection = server.connect(60)
    body = json.dumps({**daemon.chat_body(words(chance, 60), max_tokens=400), "stream": True})
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: " \
           f"application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    request = (head + body).encode()
    with contextlib.suppress(ConnectionError):
        connection.send_raw(request[:chance.choice([20, len(head), len(head) + 100, len(request)])])
        time.sleep(chance.random() * 0.3)
    if chance.random() < 0.5:  # a reset rather than an end
        connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    connection.close()
    return "complete"


def deaf(server, chance):
    """Asks for much and reads none of it for a while."""
    with server.connect(60) as connection:
        connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.send("POST", "/v1/chat/completions",
                        {**daemon.chat_body("on", max_tokens=1000), "stream": True})
        time.sleep(1 + chance.random() * 3)
    return "complete"


def crowd(server, chance):
    """Many connections that say nothing, or half a line."""
    with contextlib.ExitStack() as all_of_them:
        for _ in range(chance.randrange(20, 80)):
            with contextlib.suppress(ConnectionError):
                connection = all_of_them.enter_context(server.connect(60))
                connection.send_raw(chance.choice([b"", b"GET /v1/mod", b"POST / HTTP/1.1\r\nA: b"]))
        time.sleep(chance.random() * 2)
    return "complete"


def nonsense(server, chance):
    """Bytes that are no HTTP, or no JSON."""
    with server.connect(60) as connection:
        if chance.random() < 0.5:
            connection.send_raw(bytes(chance.randrange(256) for _ in range(400)) + b"\r\n\r\n")
            with contextlib.suppress(ConnectionError):
                connection.socket.recv(65536)
            return "complete"
        connection.send("POST", "/v1/chat/completions", "{\"messages\":" + "[" * 3000)
        return judge(connection.answer("POST"))


POLITE = [whole, streamed, completion, kept, looks]
ALL = POLITE + [long_prompt, slow_body, slow_head, vanishing, deaf, crowd, nonsense] \
    + 3 * [large_body, hoard]
