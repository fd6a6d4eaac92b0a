"""What clients send takes no more memory of a worker than http.buffer, and little of its time."""
import concurrent.futures
import pathlib
import random
import threading
import time

import pytest

import server as daemon
from census import seconds, worker_seconds

QWEN3 = daemon.ROOT / "build/tokenizers/qwen3/tokenizer.json"
MIB = 1 << 20
CHAT = "/v1/chat/completions"
# What the plan gives a worker beside its tokenizer is 2 MiB, and it takes 0.8.
SLACK = MIB


@pytest.fixture(scope="module")
def start_qwen(start_fake):
    """A worker with the tokenizer of Qwen3, for a context of 16384."""
    def start(**settings):
        server = start_fake({"token_ms": 1, "context": 16384}, tokenizer=QWEN3,
                            http__workers="1", **settings)
        assert server.chat("hello", max_tokens=2).status == 200
        return server
    return start


def worker_of(server):
    return pathlib.Path(f"/proc/{server.children()['colizig-worker'][0]}")


def kib(worker, key):
    for line in (worker / "status").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1])
    raise AssertionError(key)


class Peak:
    """How much more anonymous memory the worker took at its highest than before."""

    def __init__(self, server):
        self.worker = worker_of(server)

    def __enter__(self):
        (self.worker / "clear_refs").write_text("5")
        self.before = kib(self.worker, "RssAnon")
        return self

    def __exit__(self, *_):
        # The peak is of all that was resident; pages of files are not given back meanwhile.
        self.bytes = (kib(self.worker, "VmHWM") - kib(self.worker, "RssFile") - self.before) * 1024
        print(f"anonymous memory rose by {self.bytes / MIB:.1f} MiB")


def words(n_bytes):
    rng = random.Random(5)
    letters = "abcdefghijklmnopqrstuvwxyz"
    some = ["".join(rng.choice(letters) for _ in range(rng.randrange(1, 12))) for _ in range(5000)]
    out, size = [], 0
    while size < n_bytes:
        out.append(rng.choice(some))
        size += len(out[-1]) + 1
    return " ".join(out)[:n_bytes]


TEXTS = {
    "letter": lambda n: "a" * n,
    "blanks": lambda n: " " * n,
    "words": words,
    "digits": lambda n: "7" * n,
    "chinese": lambda n: "中" * (n // 3),
    "marks": lambda n: "\u0301" * (n // 2),
    "escapes": lambda n: "\\u0041" * (n // 6),
}


def body_of(text):
    return f'{{"messages":[{{"role":"user","content":"{text}"}}]}}'.encode()


@pytest.mark.slow  # a sanitizer has memory of its own
@pytest.mark.parametrize("kind", TEXTS)
def test_thirty_mebibytes_are_refused_within_the_buffer_and_a_second(start_qwen, kind):
    server = start_qwen(http__buffer="64MiB")
    body = body_of(TEXTS[kind](30 * MIB))
    before = worker_seconds(server)
    with Peak(server) as peak, server.connect(60) as connection:
        connection.send("POST", CHAT, body)
        answer = connection.answer()
    took = worker_seconds(server) - before
    print(f"{kind}: {answer.status} after {took:.2f} s")
    assert answer.status == 400, answer.body
    assert answer.error()["code"] == "context_length_exceeded"
    assert peak.bytes <= 64 * MIB + SLACK
    assert took < 1
    # And it is given back, once the answer is out.
    end = time.monotonic() + 10
    while kib(worker_of(server), "RssAnon") > peak.before + 2048:
        assert time.monotonic() < end, kib(worker_of(server), "RssAnon")
        time.sleep(0.02)


@pytest.mark.slow
def test_many_large_bodies_at_once_stay_within_the_buffer(start_qwen):
    server = start_qwen(http__buffer="64MiB")
    bodies = [body_of(TEXTS[kind](size * MIB)) for kind in ("letter", "blanks", "words", "chinese")
              for size in (4, 12, 30)]
    with Peak(server) as peak, concurrent.futures.ThreadPoolExecutor(len(bodies)) as crew:
        answers = list(crew.map(lambda body: server.post(CHAT, body, timeout=60), bodies))
    seen = sorted((answer.status, answer.error()["code"]) for answer in answers)
    print(seen)
    assert set(seen) <= {(400, "context_length_exceeded"), (503, "server_overloaded")}
    assert (400, "context_length_exceeded") in seen
    assert all(answer.headers["retry-after"] for answer in answers if answer.status == 503)
    assert peak.bytes <= 64 * MIB + SLACK
    assert server.chat("hello", max_tokens=2).status == 200


@pytest.mark.slow
def test_json_of_many_small_values_is_paid_for(start_qwen):
    server = start_qwen(http__buffer="32MiB")
    message = '{"role":"user","content":"x"}'
    bodies = {
        "messages": '{"messages":[' + ",".join([message] * 40000) + "]}",
        "parts": '{"messages":[{"role":"user","content":['
                 + ",".join(['{"type":"text","text":"' + "word " * 100 + '"}'] * 12000) + "]}]}",
        "ids": '{"prompt":[' + ",".join(["5"] * 200000) + "]}",
        "prompts": '{"prompt":[' + ",".join(['"' + "b" * 400000 + '"'] * 16) + "]}",
        "unknown": '{"messages":[' + message + '],"x":[' + ",".join(["[]"] * 140000) + "]}",
    }
    for name, body in bodies.items():
        path = "/v1/completions" if '{"prompt"' in body else CHAT
        with Peak(server) as peak:
            answer = server.post(path, body, timeout=60)
        print(f"{name}: {answer.status} {answer.error()['code'] if answer.status > 200 else ''}")
        assert answer.status in (200, 400, 413), name
        assert peak.bytes <= 32 * MIB + SLACK, name


def test_prompts_that_wait_their_turn_are_paid_for(start_fake):
    """Sixteen prompts run one after the other; their ids stay meanwhile."""
    server = start_fake({"token_ms": 1, "prefill_ms": 0, "context": 16384}, http__workers="1",
                        http__buffer="512KiB", http__body="256KiB")
    fits = {"prompt": [[5] * 1000] * 2, "max_tokens": 2}
    assert server.post("/v1/completions", fits).status == 200
    text = {"prompt": ["5 " * 6000] * 16, "max_tokens": 2}
    answer = server.post("/v1/completions", text)
    assert answer.status == 413, answer.body
    assert "http.buffer" in answer.error()["message"]
    assert server.post("/v1/completions", fits).status == 200


@pytest.mark.slow
def test_others_are_served_while_a_long_text_is_tokenized(start_qwen):
    """Measured by the work itself, which takes more or less time on another machine: what lies
    between two answers is a small part of it."""
    server = start_qwen(http__buffer="64MiB")
    body = body_of(" " * (8 * MIB))  # fits four contexts, so it is counted to its end
    waits, pid = [], server.children()["colizig-worker"][0]
    begun = seconds(pid)
    with server.connect(60) as connection:
        connection.send("POST", CHAT, body)
        done = threading.Event()

        def look():
            while not done.is_set():
                start = seconds(pid)
                assert server.get("/health").status == 200
                waits.append(seconds(pid) - start)
                time.sleep(0.01)

        with concurrent.futures.ThreadPoolExecutor(1) as crew:
            looking = crew.submit(look)
            answer = connection.answer()
            done.set()
            looking.result()
    total = seconds(pid) - begun
    assert answer.status == 400
    assert answer.json()["error"]["n_prompt_tokens"] > 60000
    print(f"at most {max(waits) * 1e3:.0f} of {total * 1e3:.0f} ms of work came before an answer")
    assert max(waits) < 0.4 * total


def test_tokenize_of_a_long_text_gives_the_ids_of_its_parts(start_qwen):
    server = start_qwen()
    text = words(200000)
    whole = server.post("/tokenize", {"content": text}).json()["tokens"]
    assert server.post("/detokenize", {"tokens": whole}).json()["content"] == text
    count = server.post("/v1/chat/completions/input_tokens",
                        {"messages": [{"role": "user", "content": text[:100000]}]}).json()
    half = server.post("/tokenize", {"content": text[:100000]}).json()["tokens"]
    assert 0 < count["input_tokens"] - len(half) < 20


def test_a_client_that_leaves_while_its_text_is_tokenized_leaves_nothing(start_qwen):
    server = start_qwen(http__buffer="64MiB")
    for _ in range(3):
        with server.connect() as connection:
            connection.send("POST", CHAT, body_of(" " * (6 * MIB)))
            time.sleep(0.02)
    assert server.chat("hello", max_tokens=2).status == 200
    with server.connect(60) as connection:
        connection.send("POST", CHAT, body_of("a" * (25 * MIB)))
        assert connection.answer().status == 400


def test_ids_whose_text_has_no_room_are_refused(start_fake):
    """Their JSON has: what they stand for, three times over, has not."""
    server = start_fake(http__workers="1", http__body="512KiB", http__buffer="1MiB")
    longest = max(range(500), key=lambda i: len(detokenized(server, [i])))
    statuses = [server.post("/detokenize", {"tokens": [longest] * n}).status
                for n in range(8000, 13000, 1000)]
    assert statuses == sorted(statuses) and set(statuses) == {200, 503}
    assert len(detokenized(server, [longest] * 8000)) == 8000 * len(detokenized(server, [longest]))


def detokenized(server, ids):
    return server.post("/detokenize", {"tokens": ids}).json()["content"]
