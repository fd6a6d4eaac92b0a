"""A Qwen4-Exp model through the whole daemon: its template, its thinking, its tools, the SDK."""
import openai
import pytest

QUESTION = [{"role": "user", "content": "Who makes the laws?"}]
TOOLS = [{"type": "function", "function": {
    "name": "get_temp", "parameters": {"type": "object", "properties": {
        "room": {"type": "string"}}, "required": ["room"]}}}]


@pytest.fixture(scope="module")
def server(start_real):
    return start_real("demo4", ram="1GiB")


@pytest.fixture(scope="module")
def client(server):
    with openai.OpenAI(base_url=server.base + "/v1", api_key="none", max_retries=0,
                       timeout=60) as one:
        yield one


def create(client, **fields):
    return client.chat.completions.create(**{"model": "demo4", "messages": QUESTION,
                                             "temperature": 0, "max_tokens": 24, **fields})


def test_it_thinks_first_and_answers_without_when_told(client):
    thinking = create(client).choices[0].message
    assert thinking.reasoning_content and not thinking.content
    plain = create(client, reasoning_effort="none").choices[0].message
    assert plain.content and not hasattr(plain, "reasoning_content")
    budget = create(client, extra_body={"thinking_budget": 5}).choices[0].message
    assert budget.content and thinking.reasoning_content.startswith(budget.reasoning_content)


@pytest.mark.slow
def test_a_stream_says_what_the_whole_reply_says(client):
    whole = create(client, reasoning_effort="none")
    chunks = list(create(client, reasoning_effort="none", stream=True,
                         stream_options={"include_usage": True}))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens == 24


@pytest.mark.slow
def test_the_checkpoints_template_is_used(server):
    prompt = server.post("/apply-template", {"messages": QUESTION}).json()["prompt"]
    assert prompt.endswith("<|im_start|>assistant\n<think>\n")
    assert "Reasoning effort is set to xhigh." in prompt
    low = server.post("/apply-template", {"messages": QUESTION, "tools": TOOLS,
                                          "reasoning_effort": "low"}).json()["prompt"]
    assert "Reasoning effort is set to low." in low and '"name": "get_temp"' in low


@pytest.mark.slow
def test_a_forced_call_is_one(client):
    reply = create(client, tools=TOOLS, reasoning_effort="none", max_tokens=40, tool_choice={
        "type": "function", "function": {"name": "get_temp"}}).choices[0]
    assert reply.message.tool_calls[0].function.name == "get_temp"


@pytest.mark.slow
def test_choices_are_those_of_their_draws(client):
    both = create(client, n=2, seed=5, temperature=1, reasoning_effort="none")
    again = create(client, n=2, seed=5, temperature=1, reasoning_effort="none", top_logprobs=2,
                   logprobs=True)
    texts = [choice.message.content for choice in both.choices]
    assert texts == [choice.message.content for choice in again.choices]
    assert texts[0] != texts[1]
    assert all(len(entry.top_logprobs) == 2 for entry in again.choices[1].logprobs.content)


@pytest.mark.slow
def test_answers_do_not_depend_on_company(server):
    alone = server.chat("hello", max_tokens=30, reasoning_effort="none").text()
    streams = [server.stream(f"another question, number {n}", max_tokens=60) for n in range(3)]
    assert server.chat("hello", max_tokens=30, reasoning_effort="none").text() == alone
    for stream in streams:
        stream.connection.close()
