"""Tools, reasoning, choices and log probabilities over HTTP, on scripted replies."""
import json
import math

import pytest

from server import chat_body
from test_sse_golden import TOOL, json_call, xml_call

OTHER = {"type": "function", "function": {"name": "go"}}
MARKS = "<tool_call> </tool_call> <function=get_temp> <parameter=room> </parameter> </function> " \
        "{\"name\": \"get_temp\", \"arguments\": {\"room\": \"x\"}}"

REPLIES = [
    {"on": "both rooms", "thinking": "Two sensors needed.",
     "text": "Checking both.\n" + json_call("kitchen") + "\n" + json_call("attic")},
    {"on": "21.5", "thinking": "Good.", "text": "It is 21.5."},
    {"on": "one call", "text": json_call("hall")},
    {"on": "mute", "text": ""},
    {"on": "go on", "text": ' {"room": "forced"}}\n</tool_call>'},
    {"on": "any tool", "text": 'go", "arguments": {}}\n</tool_call>'},
    {"on": "think long", "thinking": "a b c d e f g h i j k l m n o p", "text": "Done."},
    {"on": "several", "text": ["Red.", "Blue STOP and more", "Green."]},
    {"on": "stopped", "thinking": "STOP is not for here", "text": "One.STOP two"},
    {"on": "text", "text": "Well then."},
]


@pytest.fixture(scope="module")
def says(start_fake):
    return start_fake({"token_ms": 0.1, "replies": REPLIES})


@pytest.fixture(scope="module")
def says_xml(start_fake):
    def call(*lines):
        return "<tool_call>\n" + "\n".join(lines) + "\n</tool_call>"

    return start_fake({"token_ms": 0.1, "replies": [
        {"on": "both rooms", "text": xml_call("kitchen") + "\n" + xml_call("attic")},
        {"on": "go on", "text": "<parameter=room>\nforced\n</parameter>\n</function>\n</tool_call>"},
        {"on": "any tool", "text": "=go>\n</function>\n</tool_call>"}]},
        model__chat_template="builtin:qwen3-coder")


def message_of(answer):
    assert answer.status == 200, answer.body
    return answer.json()["choices"][0]["message"]


def assembled(stream):
    """What a client puts together of a stream's first choice, as the official SDK's helper does."""
    message = {"content": "", "reasoning_content": "", "tool_calls": []}
    for choice in stream.choices():
        assert choice["index"] == 0
        delta = {key: value for key, value in choice["delta"].items() if key != "role"}
        assert len(delta) <= 1, "one thing a chunk"
        for key in ("content", "reasoning_content"):
            message[key] += delta.get(key, "")
        for call in delta.get("tool_calls", []):
            if call["index"] == len(message["tool_calls"]):
                assert list(call) == ["index", "id", "type", "function"]
                assert call["function"]["arguments"] == ""
                message["tool_calls"].append({key: call[key] for key in ("id", "type", "function")})
            else:
                assert list(call) == ["index", "function"] and list(call["function"]) == ["arguments"]
                assert call["index"] == len(message["tool_calls"]) - 1, "in order, not mixed"
                message["tool_calls"][-1]["function"]["arguments"] += call["function"]["arguments"]
    return message


def calls_of(message):
    return [(call["function"]["name"], json.loads(call["function"]["arguments"]))
            for call in message["tool_calls"]]


TWO_CALLS = [("get_temp", {"room": "kitchen"}), ("get_temp", {"room": "attic"})]


# ---- what is told ----

def test_reasoning_content_and_calls_are_told_apart(says):
    answer = says.chat("both rooms", tools=[TOOL])
    message = message_of(answer)
    assert list(message) == ["role", "content", "refusal", "annotations", "reasoning_content",
                             "tool_calls"]
    assert message["content"] == "Checking both."
    assert message["reasoning_content"] == "Two sensors needed."
    assert calls_of(message) == TWO_CALLS and answer.finish() == "tool_calls"
    for call in message["tool_calls"]:
        assert call["type"] == "function"
        assert call["id"].startswith("call_") and call["id"][5:].isalnum() and len(call["id"]) == 29
    assert len({call["id"] for call in message["tool_calls"]}) == 2
    usage = answer.usage()
    details = usage["completion_tokens_details"]
    assert 0 < details["reasoning_tokens"] < usage["completion_tokens"]


def test_without_text_the_content_of_calls_is_null(says):
    message = message_of(says.chat("one call", tools=[TOOL]))
    assert message["content"] is None and "reasoning_content" not in message
    assert calls_of(message) == [("get_temp", {"room": "hall"})]


def test_without_calls_there_is_no_list_of_them(says):
    message = message_of(says.chat("text", tools=[TOOL]))
    assert message["content"] == "Well then." and "tool_calls" not in message
    message = message_of(says.chat("mute", tools=[TOOL]))
    assert message["content"] == "" and "tool_calls" not in message


@pytest.mark.parametrize("content", ["both rooms", "one call", "text", "think long"])
def test_a_stream_assembles_to_the_whole_reply(says, content):
    whole = says.chat(content, tools=[TOOL])
    with says.stream(content, tools=[TOOL]) as stream:
        stream.rest()
    assert stream.done and stream.finish() == whole.finish()
    told, message = assembled(stream), message_of(whole)
    assert told["content"] == (message["content"] or "")
    assert told["reasoning_content"] == message.get("reasoning_content", "")
    assert calls_of(told) == calls_of({"tool_calls": [], **message})


def test_a_loop_of_two_rounds_ends_in_an_answer(says):
    first = message_of(says.chat("both rooms", tools=[TOOL]))
    results = [{"role": "tool", "tool_call_id": call["id"], "content": "21.5"}
               for call in first["tool_calls"]]
    body = chat_body("both rooms", tools=[TOOL])
    body["messages"] += [first, *results]
    answer = says.post("/v1/chat/completions", body)
    assert message_of(answer)["content"] == "It is 21.5."
    assert answer.finish() == "stop" and "x-mended" not in answer.headers


def test_results_of_unknown_calls_are_served_and_said(says):
    body = chat_body("both rooms", tools=[TOOL])
    body["messages"] += [
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "get_temp", "arguments": "{oops"}}]},
        {"role": "tool", "tool_call_id": "b", "content": "21.5"}]
    answer = says.post("/v1/chat/completions", body)
    assert message_of(answer)["content"] == "It is 21.5."
    assert answer.headers["x-mended"] == "tool_call_arguments,tool_call_id"


def test_functions_have_calls_of_their_own_shape(says):
    answer = says.chat("both rooms", functions=[TOOL["function"]])
    message = message_of(answer)
    assert answer.finish() == "function_call" and "tool_calls" not in message
    assert message["function_call"]["name"] == "get_temp"
    assert json.loads(message["function_call"]["arguments"]) == {"room": "kitchen"}
    body = chat_body("both rooms", functions=[TOOL["function"]])
    body["messages"] += [message, {"role": "function", "name": "get_temp", "content": "21.5"}]
    assert message_of(says.post("/v1/chat/completions", body))["content"] == "It is 21.5."


def test_one_call_is_enough_when_no_more_are_wanted(says):
    message = message_of(says.chat("both rooms", tools=[TOOL], parallel_tool_calls=False))
    assert calls_of(message) == TWO_CALLS[:1]


def test_calls_of_the_xml_style_are_typed_by_their_schema(says_xml):
    message = message_of(says_xml.chat("both rooms", tools=[TOOL]))
    assert calls_of(message) == [("get_temp", {"room": room, "deep": 2})
                                 for room in ("kitchen", "attic")]


# ---- what is decided beforehand ----

@pytest.mark.parametrize("server", ["says", "says_xml"])
def test_a_named_function_is_called_whatever_the_model_wanted(request, server):
    daemon = request.getfixturevalue(server)
    answer = daemon.chat("go on", tools=[OTHER, TOOL],
                         tool_choice={"type": "function", "function": {"name": "get_temp"}})
    assert calls_of(message_of(answer)) == [("get_temp", {"room": "forced"})]
    assert answer.finish() == "tool_calls"


@pytest.mark.parametrize("server", ["says", "says_xml"])
def test_a_call_that_is_required_is_made(request, server):
    daemon = request.getfixturevalue(server)
    answer = daemon.chat("any tool", tools=[OTHER, TOOL], tool_choice="required")
    assert calls_of(message_of(answer)) == [("go", {})]
    answer = daemon.chat("go on", functions=[TOOL["function"]], function_call={"name": "get_temp"})
    assert message_of(answer)["function_call"]["name"] == "get_temp"


def test_no_call_is_made_where_none_is_wanted(says):
    for fields in ({"tools": [TOOL], "tool_choice": "none"}, {},
                   {"functions": [TOOL["function"]], "function_call": "none"}):
        answer = says.chat("both rooms", **fields)
        message = message_of(answer)
        assert "tool_calls" not in message and answer.finish() == "stop"
        assert "<tool_call>" not in message["content"], "that token is banned"


def test_tools_that_are_not_to_be_called_stay_in_the_prompt(says):
    auto = says.chat("text", tools=[TOOL]).usage()["prompt_tokens"]
    assert says.chat("text", tools=[TOOL], tool_choice="none").usage()["prompt_tokens"] == auto
    assert says.chat("text").usage()["prompt_tokens"] < auto


def test_only_allowed_tools_are_shown(says):
    both = says.chat("text", tools=[TOOL, OTHER]).usage()["prompt_tokens"]
    one = says.chat("text", tools=[OTHER]).usage()["prompt_tokens"]
    allowed = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [OTHER]}}
    usage = says.chat("text", tools=[TOOL, OTHER], tool_choice=allowed).usage()
    assert one < both and usage["prompt_tokens"] == one


@pytest.mark.parametrize("fields", [
    {"thinking_budget": 5}, {"max_reasoning_tokens": 5}, {"reasoning": {"max_tokens": 5}},
    {"thinking": {"type": "enabled", "budget_tokens": 5}},
    {"chat_template_kwargs": {"thinking_budget": 5}}])
def test_thinking_ends_with_its_budget(says, fields):
    free, bound = says.chat("think long"), says.chat("think long", **fields)
    assert message_of(bound)["content"] == message_of(free)["content"] == "Done."
    short = message_of(bound)["reasoning_content"]
    assert message_of(free)["reasoning_content"].startswith(short) and len(short) <= 7
    reasoning = [answer.usage()["completion_tokens_details"]["reasoning_tokens"]
                 for answer in (free, bound)]
    assert reasoning[1] < reasoning[0]


def test_strict_functions_are_taken_with_a_word(says):
    strict = {"type": "function", "function": {**TOOL["function"], "strict": True}}
    answer = says.chat("text", tools=[strict])
    assert answer.headers["x-ignored-params"] == "tools.function.strict"


# ---- how reasoning is told ----

def test_reasoning_can_be_left_out_or_in(says):
    plain = says.chat("think long")
    for fields in ({"include_reasoning": False}, {"reasoning": {"exclude": True}}):
        answer = says.chat("think long", **fields)
        assert "reasoning_content" not in message_of(answer)
        assert message_of(answer)["content"] == "Done." and answer.usage() == plain.usage()
    for fields in ({"reasoning_format": "none"}, {"separate_reasoning": False}):
        message = message_of(says.chat("think long", **fields))
        reasoning = message_of(plain)["reasoning_content"]
        assert message["content"] == f"<think>\n{reasoning}\n</think>\n\nDone."
        assert "reasoning_content" not in message


def test_stop_strings_end_content_and_nothing_else(says):
    answer = says.chat("stopped", stop="STOP")
    message = message_of(answer)
    assert message["content"] == "One." and "STOP" in message["reasoning_content"]
    assert answer.finish() == "stop"
    message = message_of(says.chat("both rooms", tools=[TOOL], stop=["kitchen", "attic"]))
    assert calls_of(message) == TWO_CALLS


# ---- choices and log probabilities ----

def test_choices_come_side_by_side_and_the_prompt_counts_once(says):
    one, three = says.chat("several"), says.chat("several", n=3, stop="STOP")
    texts = [choice["message"]["content"] for choice in three.json()["choices"]]
    assert texts == ["Red.", "Blue ", "Green."]
    assert [choice["index"] for choice in three.json()["choices"]] == [0, 1, 2]
    assert {choice["finish_reason"] for choice in three.json()["choices"]} == {"stop"}
    assert three.usage()["prompt_tokens"] == one.usage()["prompt_tokens"]
    assert three.usage()["completion_tokens"] > one.usage()["completion_tokens"]
    with says.stream("several", n=3, stop="STOP") as stream:
        stream.rest()
    assert [stream.text(i) for i in range(3)] == texts
    assert [stream.finish(i) for i in range(3)] == ["stop"] * 3 and stream.done


def test_choices_of_prompts_are_numbered_through(says):
    reply = says.complete(["several", "text"], n=2, echo=True).json()
    assert [(choice["index"], choice["text"]) for choice in reply["choices"]] == [
        (0, "severalRed."), (1, "severalBlue STOP and more"), (2, "textWell then."),
        (3, "textWell then.")]
    reply = says.complete(["several", "text"], n=2, logprobs=0).json()
    assert [(choice["index"], choice["text"]) for choice in reply["choices"]] == [
        (0, "Red."), (1, "Blue STOP and more"), (2, "Well then."), (3, "Well then.")]
    for choice in reply["choices"]:
        lists, text = choice["logprobs"], choice["text"]
        places = lists["text_offset"]
        assert [text[place:].startswith(token) for place, token in zip(places, lists["tokens"])]
        assert "".join(lists["tokens"]) == text[places[0]:]
        assert len(lists["token_logprobs"]) == len(lists["top_logprobs"]) == len(lists["tokens"])
        assert all(tops == {token: value} for tops, token, value in
                   zip(lists["top_logprobs"], lists["tokens"], lists["token_logprobs"]))


@pytest.mark.parametrize("content", ["think long", "text", "stopped"])
def test_log_probabilities_are_those_of_the_content(says, content):
    fields = {"logprobs": True, "top_logprobs": 3, "stop": "STOP"}
    choice = says.chat(content, **fields).json()["choices"][0]
    entries = choice["logprobs"]["content"]
    assert choice["logprobs"]["refusal"] is None
    assert "".join(entry["token"] for entry in entries) == choice["message"]["content"]
    for entry in entries:
        assert list(entry) == ["token", "bytes", "logprob", "top_logprobs"]
        assert bytes(entry["bytes"]).decode() == entry["token"]
        assert math.isfinite(entry["logprob"]) and entry["logprob"] <= 0
        assert len(entry["top_logprobs"]) == 3
    with says.stream(content, **fields) as stream:
        stream.rest()
    told = []
    for chunk in stream.choices():
        if chunk["logprobs"]:
            assert chunk["delta"].get("content"), "they come with the content that they are of"
            told += chunk["logprobs"]["content"]
    assert told == entries


def test_no_log_probabilities_unless_asked_for(says):
    assert says.chat("text").json()["choices"][0]["logprobs"] is None
    assert says.chat("mute", logprobs=True).json()["choices"][0]["logprobs"] == {
        "content": [], "refusal": None}


def test_timings_come_with_every_delta_when_asked_for(says):
    with says.stream("several", n=2, timings_per_token=True) as stream:
        stream.rest()
    for index in range(2):
        deltas = [event for event in stream.events if event["choices"][0]["index"] == index
                  and event["choices"][0]["delta"].get("content")]
        assert [event["timings"]["predicted_n"] for event in deltas] == [
            n + 1 for n in range(len(deltas))]
        assert {event["timings"]["prompt_n"] > 0 for event in deltas} == {index == 0}
    assert stream.finish(0) == stream.finish(1) == "stop"


# ---- where the prompt leaves the model inside its thinking ----

def test_thinking_that_the_prompt_opened_is_told_apart_and_bounded(start_fake):
    inside = start_fake({"token_ms": 0.1, "replies": [
        {"on": "go on", "thinking": "Let me see.",
         "text": "<parameter=room>\nx\n</parameter>\n</function>\n</tool_call>"},
        {"on": "budget", "thinking": "a b c d e f g h i j", "text": "Done."},
        {"on": "ends inside", "text": "Never closes.<|im_end|>An answer all the same."}]},
        model__chat_template="builtin:qwen3.8")
    named = {"type": "function", "function": {"name": "get_temp"}}
    for fields, reasoning in ({}, "Let me see."), ({"thinking_budget": 0}, None), \
            ({"reasoning_effort": "none"}, None):
        answer = inside.chat("go on", tools=[TOOL], tool_choice=named, **fields)
        message = message_of(answer)
        assert message.get("reasoning_content") == reasoning and message["content"] is None
        assert calls_of(message) == [("get_temp", {"room": "x"})]
    message = message_of(inside.chat("budget", thinking_budget=3))
    assert message["content"] == "Done." and message["reasoning_content"] == "a b c"
    message = message_of(inside.chat("ends inside"))
    assert message["reasoning_content"] == "Never closes."
    assert message["content"] == "An answer all the same."


# ---- clumsy models ----

BROKEN = [
    "<tool_call>", "</tool_call>", "</tool_call>\n" + json_call("a"), "<tool_call>\n{", "<tool_call>[]",
    '<tool_call>\n{"name": "get_temp"}\n</tool_call>', '<tool_call>\n{"name": 5, "arguments": 7}\n</tool_call>',
    '<tool_call>\n{"arguments": {"room": "late"}, "name": "get_temp"}\n</tool_call>',
    '<tool_call>\n{"name": "get_temp", "arguments": "{\\"room\\": \\"text\\"}"}\n</tool_call>',
    '<tool_call>\n{"name": "get_temp", "arguments": {"room": "a",}}\n</tool_call>',
    "<tool_call>\n{'name': 'get_temp', 'arguments': {'room': None}}\n</tool_call>",
    '<tool_call>\n{"name": "unheard_of", "arguments": {}}\n</tool_call>',
    json_call("a") + " and then some words", json_call("a")[:-12], json_call("a") * 3,
    "<tool_call>\nnothing of the kind\n</tool_call>", xml_call("a"), xml_call("a")[11:-12],
    "<function=get_temp>\n<parameter=room>\na\n", "<function=get_temp>", "text <function=get_temp>",
    "\n<function=get_temp>\n</function>", "<think>", "</think>", "<think></think><tool_call>", MARKS,
    "<tool_call>" * 20, "<tool_call>🌲" + json_call("🌲")[11:],
]


@pytest.fixture(scope="module")
def clumsy(start_fake):
    return start_fake({"token_ms": 0.05, "replies": [
        {"on": f"case {i}.", "text": text, **({"thinking": "Hm."} if i % 2 else {})}
        for i, text in enumerate(BROKEN)]})


@pytest.mark.parametrize("fields", [{}, {"parallel_tool_calls": False}, {"reasoning_format": "none"}])
def test_malformed_replies_are_delivered_and_never_an_error(clumsy, fields):
    for i in range(len(BROKEN)):
        whole = clumsy.chat(f"case {i}.", tools=[TOOL], **fields)
        message = message_of(whole)
        with clumsy.stream(f"case {i}.", tools=[TOOL], **fields) as stream:
            stream.rest()
        assert stream.done and not stream.broken
        assert not [event for event in stream.events if "error" in event]
        told = assembled(stream)
        calls = message.get("tool_calls", [])
        assert told["content"] == (message["content"] or ""), BROKEN[i]
        assert [call["function"] for call in told["tool_calls"]] == \
            [call["function"] for call in calls], BROKEN[i]
        assert stream.finish() == whole.finish() == ("tool_calls" if calls else "stop")
        assert message["content"] or calls or message.get("reasoning_content") or not BROKEN[i].strip() \
            or BROKEN[i] in ("</tool_call>", "<think>", "</think>"), BROKEN[i]


def test_what_was_mended_is_counted(clumsy):
    before = clumsy.get("/metrics").body.decode()
    for i in range(len(BROKEN)):
        clumsy.chat(f"case {i}.", tools=[TOOL])
    clumsy.chat("case 14.", tools=[TOOL])
    after = clumsy.get("/metrics").body.decode()

    def total(text, name):
        return sum(int(line.rsplit(" ", 1)[1]) for line in text.splitlines()
                   if line.startswith(f"colizig_{name}{{"))

    for name in ("tool_calls_total", "tool_call_repairs_total", "generation_tokens_total"):
        assert total(after, name) > total(before, name), name
    assert 'requests_finished_total{reason="tool_calls"}' in after
