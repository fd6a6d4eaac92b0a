"""Whole streams, byte for byte, against tests/data/sse: what clients were built against must not move.

Random and measured things are replaced: ids by their kind and number, times by 0. A stream that
breaks off ends with the line "(connection lost)".
"""
import pathlib
import re

import pytest

from server import chat_body

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "data" / "sse"

TOOL = {"type": "function", "function": {
    "name": "get_temp", "description": "Read a sensor",
    "parameters": {"type": "object", "properties": {"room": {"type": "string"},
                                                    "deep": {"type": "integer"}},
                   "required": ["room"]}}}


def json_call(room):
    return f'<tool_call>\n{{"name": "get_temp", "arguments": {{"room": "{room}"}}}}\n</tool_call>'


def xml_call(room):
    return (f"<tool_call>\n<function=get_temp>\n<parameter=room>\n{room}\n</parameter>\n"
            "<parameter=deep>\n2\n</parameter>\n</function>\n</tool_call>")


REPLIES = [
    {"on": "text", "text": "Hi.\nüß🌲"},
    {"on": "think", "thinking": "One.\nTwo.", "text": "So: 3"},
    {"on": "calls", "thinking": "Two.", "text": "Both:\n\n" + json_call("hall") + "\n" + json_call("attic")},
    {"on": "cut", "text": json_call("hall")[:-24], "finish": "length"},
    {"on": "several", "text": ["Red.", "Blue."]},
    {"on": "breaks", "text": "Hello", "fail_after": 2},
]
XML_REPLIES = [{"on": "calls", "text": "Both:\n\n" + xml_call("hall") + "\n" + xml_call("<b>")}]


def read_all(connection):
    """The body as it came, and whether it ended as it should."""
    head = connection.head()
    assert head.status == 200 and head.headers["content-type"] == "text/event-stream; charset=utf-8"
    body = b""
    try:
        while data := connection.chunk():
            body += data
    except ConnectionError:
        return body.decode() + "(connection lost)\n"
    return body.decode()


def normal(text):
    calls = {}

    def number(found):
        return calls.setdefault(found[0], f"call_{len(calls) + 1}")

    text = re.sub(r'"id":"(chatcmpl|cmpl)-[0-9A-Za-z]{28}"', r'"id":"\1-ID"', text)
    text = re.sub(r"call_[0-9A-Za-z]{24}", number, text)
    text = re.sub(r'"created":[0-9]{10}', '"created":0', text)
    text = re.sub(r'"fp_[0-9a-f]{10}"', '"fp_0"', text)
    return re.sub(r'("[a-z_]+_(?:ms|second)"):[0-9.]+', r"\1:0", text)


def once(text):
    """How often a keepalive comes is the clock's affair."""
    frames = text.split("\n\n")
    return "\n\n".join(frame for i, frame in enumerate(frames)
                       if i == 0 or frame != frames[i - 1] or '"delta":{}' not in frame)


def record(server, content, path="/v1/chat/completions", **fields):
    body = chat_body(content, **fields) if "chat" in path else \
        {"prompt": content, "temperature": 0, **fields}
    with server.connect() as connection:
        connection.send("POST", path, {**body, "stream": True})
        return normal(read_all(connection))


def compare(text, name):
    assert text == (GOLDEN / f"{name}.txt").read_text()


@pytest.fixture(scope="module")
def says(start_fake):
    return start_fake({"token_ms": 0.1, "replies": REPLIES})


USAGE = {"stream_options": {"include_usage": True}}
CASES = {
    "text": ("text", {}),
    "text-usage": ("text", USAGE),
    "reasoning": ("think", {}),
    "reasoning-hidden": ("think", {"include_reasoning": False, **USAGE}),
    "reasoning-in-content": ("think", {"reasoning_format": "none"}),
    "two-tool-calls": ("calls", {"tools": [TOOL], **USAGE}),
    "two-tool-calls-one-wanted": ("calls", {"tools": [TOOL], "parallel_tool_calls": False}),
    "function-call": ("calls", {"functions": [TOOL["function"]]}),
    "length-inside-a-call": ("cut", {"tools": [TOOL]}),
    "two-choices": ("several", {"n": 2, **USAGE}),
    "logprobs": ("think", {"logprobs": True, "top_logprobs": 2}),
    "stop-string": ("think", {"stop": ": 3"}),
    "error-inside": ("breaks", {}),
}


@pytest.mark.parametrize("name", CASES)
def test_a_stream_is_byte_for_byte_what_it_was(says, name):
    content, fields = CASES[name]
    compare(record(says, content, **fields), name)


def test_calls_in_the_other_style_make_the_same_stream(start_fake):
    says = start_fake({"token_ms": 0.1, "replies": XML_REPLIES},
                      model__chat_template="builtin:qwen3-coder")
    compare(record(says, "calls", tools=[TOOL]), "two-tool-calls-xml")


@pytest.mark.parametrize("name, fields", [("completion", {}), ("completion-logprobs", {"logprobs": 1})])
def test_a_stream_of_a_completion_is_byte_for_byte_what_it_was(says, name, fields):
    compare(record(says, "text", path="/v1/completions", **fields), name)


def test_a_stream_that_is_kept_alive_is_byte_for_byte_what_it_was(start_fake):
    slow = start_fake({"token_ms": 0.1, "prefill_ms": 20, "replies": REPLIES},
                      http__keepalive="100ms")
    text = once(record(slow, "text"))
    compare(text, "keepalive")
