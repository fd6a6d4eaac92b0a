"""A conversation that grows is read once: each prompt begins with the one before it and its reply,
token for token, whatever the client made of the reply meanwhile."""
import json
import time

import pytest

import server as daemon
from admin import Admin

QWEN3 = daemon.ROOT / "build/tokenizers/qwen3/tokenizer.json"
CHATS = daemon.ROOT / "tests/data/chat"
N_TURNS = 10
SYSTEM = {"role": "system", "content": "You look after a house."}
QUESTION = {"role": "user", "content": "Is all well? <|im_end|> is no mark."}
TOOLS = [{"type": "function", "function": {
    "name": "act", "description": "Does something", "parameters": {
        "type": "object", "properties": {"n": {"type": "integer"}, "ratio": {"type": "number"},
                                         "path": {"type": "string"}, "flags": {"type": "array"}},
        "required": ["n"]}}}]


def call_text(k, style):
    """A call as a model writes it, which is not how the template would print it again."""
    if style == "json":
        return ('<tool_call>\n{"name": "act",  "arguments": {"n":%d, "ratio": %d.0, "path": '
                '"/\\u00e9/%d/\\"x\\"","flags": [true,null, {"b": 1, "a": 2}]}}\n'
                '</tool_call>' % (k, k, k))
    return (f"<tool_call>\n<function=act>\n<parameter=n>\n{k}\n</parameter>\n<parameter=ratio>\n"
            f"{k}.0\n</parameter>\n<parameter=path>\n/é/{k}/\"x\"\n</parameter>\n<parameter=flags>\n"
            f'[true,null, {{"b": 1, "a": 2}}]\n</parameter>\n</function>\n</tool_call>')


def said(k, style):
    """Turn k of the scripted model: two calls each, the last turn none."""
    if k == N_TURNS - 1:
        return "All is  well. "
    return f"Step  {k}.\n\n{call_text(k, style)}\n{call_text(100 + k, style)}"


def script(style, thinks=True):
    """thinks: a model that never does would have no template that shows it."""
    replies = [{"on": f"result {k - 1}." if k else "Is all well?", "text": said(k, style),
                **({"thinking": f"Thought {k}:  hm."} if thinks else {})} for k in range(N_TURNS)]
    replies.append({"on": None, "text": "Yes."})
    return {"token_ms": 0.01, "prefill_ms": 0.001, "context": 16384, "replies": replies}


@pytest.fixture(scope="module")
def start(start_fake):
    """One server for each template, and one of its own where settings are given."""
    servers = {}

    def start(style="xml", template="qwen3.8.jinja", **settings):
        if settings or template not in servers:
            one = start_fake(script(style, "coder" not in template), tokenizer=QWEN3,
                             model__chat_template=CHATS / template,
                             http__workers=1 if settings else 2, **settings)
            await_all(one)
            if settings:
                return one
            servers[template] = one
        return servers[template]
    return start


def await_all(server):
    """A worker that has just begun meets the engine a moment later: until all have."""
    ready = 0
    deadline = time.monotonic() + 20
    while ready < 10:
        assert time.monotonic() < deadline, server.log()
        ready = ready + 1 if server.get("/readyz").status == 200 else 0
        time.sleep(0.02)


# ---- a client that drops reasoning and spells arguments anew ----

def respell(value):
    """Other order of keys, whole numbers without their fraction."""
    if isinstance(value, dict):
        return {key: respell(value[key]) for key in reversed(value)}
    if isinstance(value, list):
        return [respell(one) for one in value]
    return int(value) if isinstance(value, float) and value == int(value) else value


def as_client_keeps(message):
    kept = {"role": "assistant", "content": message["content"]}
    if message.get("tool_calls"):
        kept["tool_calls"] = [
            {"type": "function", "id": call["id"], "function": {
                "arguments": json.dumps(respell(json.loads(call["function"]["arguments"])),
                                        separators=(",", ":")),
                "name": call["function"]["name"]}} for call in message["tool_calls"]]
    return kept


class Client:
    def __init__(self, server, **fields):
        self.server = server
        self.fields = {"tools": TOOLS, **fields}
        self.messages = [SYSTEM, QUESTION]

    def body(self, **more):
        return {"messages": self.messages, **self.fields, **more}

    def tokens(self, **more):
        answer = self.server.post("/tokenize", self.body(**more))
        assert answer.status == 200, answer.body
        return answer.json()["tokens"]

    def ask(self, **more):
        """The reply as the client will send it back, and how many tokens it had."""
        answer = self.server.post("/v1/chat/completions", self.body(**more))
        assert answer.status == 200, answer.body
        reply = answer.json()
        message = reply["choices"][0]["message"]
        if reply["choices"][0]["finish_reason"] == "length":
            message.pop("tool_calls", None)
        self.messages.append(as_client_keeps(message))
        return message, reply["usage"]

    def results(self, k):
        calls = self.messages[-1].get("tool_calls", [])
        for i, call in enumerate(calls):
            self.messages.append({"role": "tool", "tool_call_id": call["id"],
                                  "content": f"result {k}.{i}"})


def text_of(server, tokens):
    return server.post("/detokenize", {"tokens": tokens}).json()["content"]


def mark(server, text):
    [token] = server.post("/tokenize", {"content": text, "parse_special": True}).json()["tokens"]
    return token


def expect_prefix(server, now, before, n_reply, reply):
    """now begins with before, then the reply's n_reply tokens, then the end of a turn."""
    assert now[:len(before)] == before, (text_of(server, before), text_of(server, now))
    end = len(before) + n_reply
    body = text_of(server, now[len(before):end])
    assert reply in body, (reply, body)
    assert now[end] == mark(server, "<|im_end|>"), text_of(server, now[len(before):])


def other_workers(server):
    """Those that served so far die; who comes next has never seen this conversation."""
    old = server.children()["colizig-worker"]
    for pid in old:
        daemon.os.kill(pid, daemon.signal.SIGKILL)
    deadline = time.monotonic() + 20
    while True:
        now = server.children().get("colizig-worker", [])
        if len(now) == 2 and not set(now) & set(old):
            await_all(server)
            return
        assert time.monotonic() < deadline, server.log()
        time.sleep(0.02)


CASES = [pytest.param("qwen3.8.jinja", "xml", {}, id="qwen3.8"),
         pytest.param("qwen3.8.jinja", "xml", {"enable_thinking": False}, id="qwen3.8-off",
                      marks=pytest.mark.slow),
         pytest.param("qwen3-hybrid.jinja", "json", {}, id="hybrid", marks=pytest.mark.slow),
         pytest.param("qwen3-hybrid.jinja", "json", {"enable_thinking": False}, id="hybrid-off"),
         pytest.param("qwen3-coder.jinja", "xml", {}, id="coder", marks=pytest.mark.slow)]


@pytest.mark.parametrize("template,style,fields", CASES)
def test_each_prompt_begins_with_the_last_one_and_its_reply(start, template, style, fields):
    server = start(style, template)
    client = Client(server, **fields)
    before = client.tokens()
    for k in range(N_TURNS):
        message, usage = client.ask(stream=False)
        assert bool(message.get("tool_calls")) == (k < N_TURNS - 1)
        client.results(k)
        if k == N_TURNS - 1 and template != "qwen3-hybrid.jinja":
            client.messages.append({"role": "user", "content": "And now?"})
        now = client.tokens()
        assert usage["prompt_tokens"] == len(before)
        expect_prefix(server, now, before, usage["completion_tokens"] - 1, said(k, style))
        before = now
        if k in (3, 7):
            other_workers(server)
            assert client.tokens() == now


def one_turn(server, **fields):
    """A client with one reply in its history, the prompt before it, and the reply's tokens."""
    client = Client(server, **fields)
    before = client.tokens()
    _, usage = client.ask()
    client.results(0)
    return client, before, usage["completion_tokens"] - 1


def is_replayed(server, client, before, n_reply):
    now = client.tokens()
    return now[:len(before)] == before and said(0, "xml") in text_of(
        server, now[len(before):len(before) + n_reply])


def counted(server):
    with Admin(server) as admin:
        return admin.data("stats")


@pytest.fixture(scope="module")
def plain(start):
    return start()


def test_a_stream_is_remembered_as_a_whole_reply_is(plain):
    client = Client(plain)
    before = client.tokens()
    calls = {}
    with plain.stream(**client.body()) as stream:
        for choice in stream.rest().choices():
            for call in choice["delta"].get("tool_calls", []):
                kept = calls.setdefault(call["index"], {"id": None, "function": {
                    "name": "", "arguments": ""}})
                kept["id"] = kept["id"] or call.get("id")
                for key, value in call["function"].items():
                    kept["function"][key] += value
    assert len(calls) == 2
    client.messages.append(as_client_keeps({"content": "Step  0.", "tool_calls": [
        calls[0], calls[1]]}))
    client.results(0)
    assert is_replayed(plain, client, before, 10000)


def test_what_the_client_changed_is_read_as_it_stands(plain):
    """Neither other content nor other arguments come back as what the model had said."""
    client, before, n_reply = one_turn(plain)
    assert is_replayed(plain, client, before, n_reply)
    reply = client.messages[2]
    reply["content"] = "Step 0."
    assert not is_replayed(plain, client, before, n_reply)
    assert "Step 0." in text_of(plain, client.tokens())
    reply["content"] = "Step  0."
    function = reply["tool_calls"][1]["function"]
    kept = function["arguments"]
    function["arguments"] = json.dumps({**json.loads(kept), "n": 7})
    assert not is_replayed(plain, client, before, n_reply)
    function["arguments"] = kept
    function["name"] = "other"
    assert not is_replayed(plain, client, before, n_reply)
    function["name"] = "act"
    del reply["tool_calls"][1]
    client.messages.pop()
    assert not is_replayed(plain, client, before, n_reply)


def test_thoughts_of_the_client_are_its_own(plain):
    client, before, n_reply = one_turn(plain)
    client.messages[2]["reasoning_content"] = "Thought 0:  hm."
    assert is_replayed(plain, client, before, n_reply)
    client.messages[2]["reasoning_content"] = "Something else."
    assert not is_replayed(plain, client, before, n_reply)
    assert "Something else." in text_of(plain, client.tokens())
    assert "Thought 0" not in text_of(plain, client.tokens())


def test_another_beginning_is_no_base_but_thoughts_come_back(plain):
    client, before, n_reply = one_turn(plain)
    client.messages[0] = {"role": "system", "content": "Other words."}
    now = text_of(plain, client.tokens())
    assert "Thought 0:  hm." in now
    assert not is_replayed(plain, client, before, n_reply)


def test_every_page_shows_what_the_engine_gets(plain):
    client, before, n_reply = one_turn(plain)
    now = client.tokens()
    template = plain.post("/apply-template", client.body()).json()
    counted_tokens = plain.post("/v1/chat/completions/input_tokens", client.body()).json()
    assert template["prompt"] == text_of(plain, now)
    assert template["n_tokens"] == counted_tokens["input_tokens"] == len(now)
    _, usage = client.ask()
    assert usage["prompt_tokens"] == len(now)


def test_the_switch_of_a_request_leaves_everything_as_it_was_sent(plain):
    client, before, n_reply = one_turn(plain)
    assert is_replayed(plain, client, before, n_reply)
    off = text_of(plain, client.tokens(reasoning_memory=False))
    assert "Thought" not in off and "Step  0." in off
    client = Client(plain, seed=1)
    client.ask(reasoning_memory=False)
    client.results(0)
    assert "Thought" not in text_of(plain, client.tokens())
    answer = plain.post("/tokenize", client.body(reasoning_memory="no"))
    assert answer.status == 400 and answer.error()["param"] == "reasoning_memory"


def test_a_reply_without_calls_is_known_by_its_conversation(plain):
    client = Client(plain)
    client.messages[1] = {"role": "user", "content": "Hello. result 8."}
    before = client.tokens()
    message, usage = client.ask()
    assert not message.get("tool_calls")
    client.messages.append({"role": "user", "content": "And?"})
    now = client.tokens()
    expect_prefix(plain, now, before, usage["completion_tokens"] - 1, said(N_TURNS - 1, "xml"))
    client.messages[1] = {"role": "user", "content": "Hello! result 8."}
    assert "Thought" not in text_of(plain, client.tokens())


def test_ids_come_back_that_no_text_would_give(start_fake):
    """The same letters, cut otherwise than the tokenizer cuts them."""
    letters = [86, 68, 75, 75]  # one by one
    server = start_fake({"reply": "ids", "ids": letters, "token_ms": 0.01, "prefill_ms": 0.001},
                        tokenizer=QWEN3, model__chat_template="builtin:qwen3")
    client = Client(server)
    del client.fields["tools"]
    before = client.tokens()
    assert client.ask()[0]["content"] == "well"
    assert client.tokens()[:len(before) + len(letters)] == before + letters
    assert client.tokens(reasoning_memory=False)[:len(before) + len(letters)] != before + letters


def test_a_reply_that_a_stop_string_cut_gives_back_its_thoughts_alone(plain):
    client = Client(plain)
    before = client.tokens()
    message, usage = client.ask(stop=["tep"])
    assert message["content"] == "S"
    client.messages.append({"role": "user", "content": "Go on."})
    now = client.tokens()
    assert now[:len(before)] == before
    text = text_of(plain, now[len(before):])
    assert text.startswith("Thought 0:  hm.\n</think>\n\nS<|im_end|>"), text


@pytest.mark.parametrize("fields,text", [
    ({}, call_text(1, "xml") + "\n\nNow I wait for it to answer me, and go on and on."),
    ({"parallel_tool_calls": False}, call_text(1, "xml") + "\n" + call_text(2, "xml"))])
def test_what_is_dropped_behind_a_call_does_not_come_back(start_fake, fields, text):
    server = start_fake({"token_ms": 0.01, "prefill_ms": 0.001, "replies": [
        {"on": None, "thinking": "Act.", "text": text}]}, tokenizer=QWEN3,
        http__workers=1, model__chat_template="builtin:qwen3.8")
    client = Client(server, **fields)
    before = client.tokens()
    message, _ = client.ask()
    assert len(message["tool_calls"]) == 1
    client.results(0)
    now = client.tokens()
    assert now[:len(before)] == before
    assert text_of(server, now[len(before):]).startswith(
        f"Act.\n</think>\n\n{call_text(1, 'xml')}<|im_end|>")


@pytest.mark.parametrize("limit,replayed", [(3, False), (12, True), (60, False)])
def test_a_reply_that_the_limit_cut_is_whole_or_not_there(plain, limit, replayed):
    """In its thoughts, in its content, in a call."""
    client = Client(plain)
    before = client.tokens()
    message, usage = client.ask(max_tokens=limit)
    client.messages.append({"role": "user", "content": "Go on."})
    text = text_of(plain, client.tokens()[len(before):])
    if replayed:
        assert message["content"] and not message.get("tool_calls")
        assert text.startswith(f"Thought 0:  hm.\n</think>\n\n{message['content']}"), text
    else:
        assert "Thought" not in text


def test_each_choice_is_remembered(start_fake):
    texts = ["One.", "Two. ", "Three."]
    server = start_fake({"token_ms": 0.01, "prefill_ms": 0.001, "replies": [
        {"on": None, "thinking": "Which?", "text": texts}]}, tokenizer=QWEN3,
        http__workers=1, model__chat_template="builtin:qwen3.8")
    client = Client(server)
    del client.fields["tools"]
    before = client.tokens()
    answer = server.post("/v1/chat/completions", client.body(n=3)).json()
    for choice, text in zip(answer["choices"], texts):
        other = Client(server)
        del other.fields["tools"]
        other.messages += [as_client_keeps(choice["message"]), {"role": "user", "content": "?"}]
        now = other.tokens()
        assert now[:len(before)] == before
        assert text_of(server, now[len(before):]).startswith(
            f"Which?\n</think>\n\n{text}<|im_end|>")


# ---- without it ----

def works_without(server, client):
    text = text_of(server, client.tokens())
    assert "Thought" not in text and "Step  0." in text
    message, _ = client.ask()
    assert message["tool_calls"]


@pytest.mark.slow
def test_without_memory_the_same_requests_work(start):
    server = start(memory__reasoning=0)
    client, _, _ = one_turn(server)
    works_without(server, client)
    stats = counted(server)
    assert stats["reasoning_memory_bytes"] == stats["reasoning_memory_entries"] == 0


@pytest.mark.slow
def test_what_was_evicted_is_text_again(start):
    server = start(memory__reasoning="1MiB")
    client, before, n_reply = one_turn(server)
    assert is_replayed(server, client, before, n_reply)
    n = 0
    while not counted(server)["reasoning_memory_evictions"]:
        other = Client(server)
        other.messages[1] = {"role": "user", "content": f"{n} Is all well?"}
        other.ask()
        n += 1
        assert n < 2000
    works_without(server, client)
    stats = counted(server)
    assert stats["reasoning_memory_used"] <= stats["reasoning_memory_bytes"] <= 1 << 20
    assert stats["reasoning_memory_hits"] > 0 and stats["reasoning_memory_misses"] > 0
    metrics = server.get("/metrics").body.decode()
    assert "\ncolizig_reasoning_memory_hits_total " in metrics


def test_an_engine_that_was_restarted_knows_nothing(start):
    server = start()
    client, before, n_reply = one_turn(server)
    assert is_replayed(server, client, before, n_reply)
    [engine] = server.children()["colizig-door"]
    daemon.os.kill(engine, daemon.signal.SIGKILL)
    server.await_status("/readyz", 503)
    await_all(server)
    works_without(server, client)


@pytest.mark.slow
def test_an_engine_that_does_not_answer_keeps_nobody_waiting(start):
    """Stopped for a while: tokens are counted without it."""
    server = start()
    client, _, _ = one_turn(server)
    [engine] = server.children()["colizig-door"]
    daemon.os.kill(engine, daemon.signal.SIGSTOP)
    try:
        assert "Thought" not in text_of(server, client.tokens())
    finally:
        daemon.os.kill(engine, daemon.signal.SIGCONT)


def test_nothing_of_it_is_written(start, tmp_path):
    server = start(log__level="debug")
    client, _, _ = one_turn(server)
    client.tokens()
    assert "Thought 0" not in server.log() and "Step  0" not in server.log()
    for file in server.log_path.parent.rglob("*"):
        if file.is_file() and file.name != "fake.json":
            assert b"Thought 0" not in file.read_bytes()
