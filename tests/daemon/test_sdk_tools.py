"""Tool calls and thinking through the official OpenAI SDK."""
import json

import openai
import pytest

TOOLS = [{"type": "function", "function": {
    "name": "get_temp", "description": "Read a sensor.",
    "parameters": {"type": "object", "properties": {"room": {"type": "string"}},
                   "required": ["room"], "additionalProperties": False}, "strict": True}}]
THOUGHT = "<think>\nTwo sensors are needed.\n</think>\n\n"
CALL = '<tool_call>\n{"name": "get_temp", "arguments": {"room": "%s"}}\n</tool_call>'
REST = '{"room": "attic"}}\n</tool_call>'
REPLIES = [
    {"on": "21.5", "text": THOUGHT + "The kitchen has 21.5 and the attic 9 degrees."},
    {"on": "How warm", "text": THOUGHT + "Checking both.\n" + CALL % "kitchen" + "\n" +
                               CALL % "attic"},
    # What a model says behind the beginning of a call that it was made to write.
    {"on": "Required", "text": THOUGHT.rstrip() + 'get_temp", "arguments": ' + REST},
    {"on": "Named", "text": THOUGHT.rstrip() + REST},
    {"on": "fail", "text": THOUGHT + "Hello", "fail_after": 12},
    {"on": None, "text": THOUGHT + "Hello."},
]
QUESTION = {"role": "user", "content": "How warm are kitchen and attic?"}


def connect(start_fake, token_ms):
    server = start_fake({"token_ms": token_ms, "replies": REPLIES, "context": 4096},
                        model__chat_template="builtin:qwen3")
    return openai.OpenAI(base_url=server.base + "/v1", api_key="none", max_retries=0, timeout=20)


@pytest.fixture(scope="module")
def client(start_fake):
    with connect(start_fake, 0.2) as one:
        yield one


def test_two_rounds_of_a_tool_loop(client):
    messages = [QUESTION]
    first = client.chat.completions.create(model="m", messages=messages, tools=TOOLS).choices[0]
    assert first.finish_reason == "tool_calls" and first.message.content == "Checking both."
    assert first.message.reasoning_content == "Two sensors are needed."
    calls = first.message.tool_calls
    rooms = [json.loads(call.function.arguments)["room"] for call in calls]
    assert rooms == ["kitchen", "attic"]
    assert len({call.id for call in calls}) == 2
    assert all(call.type == "function" and call.function.name == "get_temp" for call in calls)

    messages.append(first.message)
    messages += [{"role": "tool", "tool_call_id": call.id, "content": text}
                 for call, text in zip(calls, ("21.5", "9"))]
    second = client.chat.completions.create(model="m", messages=messages, tools=TOOLS)
    assert second.choices[0].finish_reason == "stop"
    assert second.choices[0].message.content == "The kitchen has 21.5 and the attic 9 degrees."
    assert not second.choices[0].message.tool_calls
    assert second.usage.completion_tokens_details.reasoning_tokens > 0


def test_the_stream_helper_assembles_calls(client):
    with client.chat.completions.stream(model="m", messages=[QUESTION], tools=TOOLS) as stream:
        events = list(stream)
        final = stream.get_final_completion()
    choice = final.choices[0]
    assert choice.finish_reason == "tool_calls" and choice.message.content == "Checking both."
    assert [call.function.parsed_arguments for call in choice.message.tool_calls] == \
        [{"room": "kitchen"}, {"room": "attic"}]
    done = [event for event in events if event.type == "tool_calls.function.arguments.done"]
    assert [(event.index, event.name, json.loads(event.arguments)) for event in done] == \
        [(0, "get_temp", {"room": "kitchen"}), (1, "get_temp", {"room": "attic"})]


def test_the_plain_stream_says_the_same_as_the_whole_reply(client):
    whole = client.chat.completions.create(model="m", messages=[QUESTION], tools=TOOLS).choices[0]
    chunks = list(client.chat.completions.create(model="m", messages=[QUESTION], tools=TOOLS,
                                                 stream=True))
    deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    assert "".join(delta.content or "" for delta in deltas) == whole.message.content
    thought = "".join(getattr(delta, "reasoning_content", None) or "" for delta in deltas)
    assert thought == whole.message.reasoning_content
    arguments = ["", ""]
    for delta in deltas:
        for call in delta.tool_calls or ():
            arguments[call.index] += call.function.arguments
    assert arguments == [call.function.arguments for call in whole.message.tool_calls]


OTHER = [{"type": "function", "function": {"name": "open_door"}}]


@pytest.mark.parametrize("question, choice, tools", [
    ("Required", "required", TOOLS + OTHER),
    ("Named", "required", TOOLS),
    ("Named", {"type": "function", "function": {"name": "get_temp"}}, TOOLS + OTHER)])
def test_a_forced_choice_is_a_call(client, question, choice, tools):
    reply = client.chat.completions.create(
        model="m", messages=[{"role": "user", "content": question}], tools=tools,
        tool_choice=choice).choices[0]
    assert reply.finish_reason == "tool_calls" and reply.message.content is None
    call, = reply.message.tool_calls
    assert call.function.name == "get_temp" and json.loads(call.function.arguments) == \
        {"room": "attic"}
    assert reply.message.reasoning_content == "Two sensors are needed."


@pytest.mark.parametrize("fields, param", [
    ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name"),
    ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"n": 5}, "n"),
    ({"messages": [{"role": "tool", "tool_call_id": "x", "content": "?"}]}, "messages"),
])
def test_mistakes_are_bad_requests_that_name_the_field(client, fields, param):
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(**{"model": "m", "messages": [QUESTION], **fields})
    assert caught.value.param.startswith(param)
    assert caught.value.code and caught.value.body["message"]


def test_an_error_in_mid_stream_is_raised(start_fake):
    # Slowly, or the failure could overtake the first token, and there would be no stream.
    with connect(start_fake, 30) as client, pytest.raises(openai.APIError) as caught:
        list(client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "fail"}], stream=True))
    assert not isinstance(caught.value, openai.APIStatusError)


def test_thinking_is_switched_off(client):
    reply = client.chat.completions.create(
        model="m", messages=[{"role": "user", "content": "hi"}],
        extra_body={"chat_template_kwargs": {"enable_thinking": False}, "logprobs": True,
                    "top_logprobs": 3})
    assert len(reply.choices[0].logprobs.content[0].top_logprobs) == 3


def test_choices(client):
    reply = client.chat.completions.create(model="m", n=3,
                                           messages=[{"role": "user", "content": "hi"}])
    assert [choice.index for choice in reply.choices] == [0, 1, 2]
    assert all(choice.message.content for choice in reply.choices)
