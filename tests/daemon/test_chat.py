"""POST /v1/chat/completions: the shape of an answer and what each field does."""
import re
import time

import pytest


def test_an_answer_has_the_openai_shape(fake):
    answer = fake.chat("hello", max_tokens=8)
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json; charset=utf-8"
    reply = answer.json()
    assert re.fullmatch(r"chatcmpl-[0-9A-Za-z]{28}", reply["id"])
    assert reply["object"] == "chat.completion"
    assert abs(reply["created"] - time.time()) < 60
    assert reply["model"] == "fake-model"
    assert re.fullmatch(r"fp_[0-9a-f]{10}", reply["system_fingerprint"])
    (choice,) = reply["choices"]
    assert choice["index"] == 0 and choice["finish_reason"] == "length"
    assert choice["logprobs"] is None
    message = choice["message"]
    assert message["role"] == "assistant" and isinstance(message["content"], str)
    assert message["content"] and message["refusal"] is None and "tool_calls" not in message


def test_usage_adds_up_and_timings_are_there(fake):
    reply = fake.chat("hello", max_tokens=5).json()
    usage = reply["usage"]
    assert usage["completion_tokens"] == 5
    assert usage["total_tokens"] == usage["prompt_tokens"] + 5
    assert usage["prompt_tokens_details"]["cached_tokens"] == 0
    longer = fake.chat("hello and some more", max_tokens=5).json()["usage"]
    assert longer["prompt_tokens"] > usage["prompt_tokens"]
    timings = reply["timings"]
    assert timings["prompt_n"] + timings["cache_n"] == usage["prompt_tokens"]
    assert timings["predicted_n"] == 5 and timings["predicted_ms"] > 0


def test_every_reply_has_the_common_headers(fake):
    answers = [fake.chat(max_tokens=1), fake.post("/v1/chat/completions", "{"),
               fake.get("/v1/nope"), fake.get("/health")]
    with fake.stream(max_tokens=1) as stream:
        answers.append(stream.rest().answer)
    for answer in answers:
        assert re.fullmatch(r"req_[0-9a-f]{32}", answer.headers["x-request-id"])
        assert int(answer.headers["openai-processing-ms"]) >= 0
        assert answer.headers["server"].startswith("colizig/")
    assert len({answer.headers["x-request-id"] for answer in answers}) == len(answers)


@pytest.mark.parametrize("fields, tokens", [
    ({"max_tokens": 3}, 3), ({"max_completion_tokens": 3}, 3), ({"max_tokens": 3.0}, 3),
    ({"max_tokens": 9, "max_completion_tokens": 3}, 3)])
def test_the_token_limit_is_exact(fake, fields, tokens):
    answer = fake.chat("hello", **fields)
    assert answer.usage()["completion_tokens"] == tokens
    assert answer.finish() == "length"


def test_a_limit_over_the_room_is_clamped(fake):
    answer = fake.chat("x" * 1900, max_tokens=10**12)
    usage = answer.usage()
    assert usage["prompt_tokens"] + usage["completion_tokens"] == 2048
    assert answer.finish() == "length"


def test_a_prompt_over_the_context_is_refused_with_both_numbers(fake):
    for fields in ({}, {"stream": True}):
        answer = fake.chat("z-" * 3000, max_tokens=1, **fields)
        assert answer.status == 400
        error = answer.error()
        assert error["code"] == "context_length_exceeded" and error["param"] == "messages"
        assert "maximum context length is 2048 tokens" in error["message"]
        assert error["n_ctx"] == 2048 and error["n_prompt_tokens"] > 2048
        assert str(error["n_prompt_tokens"]) in error["message"]
        assert answer.headers["x-should-retry"] == "false"
    assert fake.chat("hello", max_tokens=1).status == 200


def test_a_prompt_far_over_the_context_is_counted_only_so_far(fake):
    start = time.monotonic()
    answer = fake.chat("z-" * 1500000, max_tokens=1)
    assert answer.status == 400 and answer.error()["code"] == "context_length_exceeded"
    assert "at least" in answer.error()["message"]
    assert time.monotonic() - start < 5


def test_equal_seeds_give_equal_text_and_others_differ(fake):
    def text(seed):
        return fake.chat("hello", max_tokens=24, temperature=1, seed=seed).text()

    assert text(7) == text(7)
    assert text(7) != text(8)
    assert text(0) == text(0)
    assert text(-1) != text(-1)
    assert text(None) != text(None)


def test_text_parts_are_joined_with_nothing_between(fake):
    whole = fake.chat("one tree two", max_tokens=8).json()
    parts = fake.chat([{"type": "text", "text": "one tree"}, {"type": "text", "text": " two"}],
                      max_tokens=8).json()
    assert parts["choices"] == whole["choices"]
    assert parts["usage"] == whole["usage"]


def test_roles_of_a_conversation_are_accepted(fake):
    for messages in ([{"role": "system", "content": "s"}, {"role": "user", "content": "a"}],
                     [{"role": "developer", "content": "s"}, {"role": "user", "content": "a"}],
                     [{"role": "user", "content": "a"},
                      {"role": "assistant", "content": None, "refusal": None},
                      {"role": "assistant", "content": []},
                      {"role": "user", "content": "b", "name": "bob"}],
                     [{"role": "user", "content": ""}]):
        answer = fake.post("/v1/chat/completions", {"messages": messages, "max_tokens": 2})
        assert answer.status == 200, answer.body


def test_developer_means_system(fake):
    def tokens(role):
        return fake.post("/v1/chat/completions", {
            "messages": [{"role": role, "content": "be brief"}, {"role": "user", "content": "a"}],
            "max_tokens": 4, "temperature": 0}).json()

    assert tokens("developer")["choices"] == tokens("system")["choices"]


CALL = {"id": "call_1", "type": "function",
        "function": {"name": "get_time", "arguments": "{\"zone\": \"utc\"}"}}


@pytest.mark.parametrize("content", [None, "", [], "let me see"])
def test_calls_and_results_of_earlier_turns_are_read(fake, content):
    def ask(*messages):
        answer = fake.post("/v1/chat/completions", {"messages": list(messages), "max_tokens": 2})
        assert answer.status == 200, answer.body
        return answer.usage()["prompt_tokens"]

    user = {"role": "user", "content": "time?"}
    called = {"role": "assistant", "content": content, "tool_calls": [CALL]}
    result = {"role": "tool", "tool_call_id": "call_1", "content": "12:00"}
    assert ask(user) < ask(user, called) < ask(user, called, result)
    parts = dict(result, content=[{"type": "text", "text": "12:"}, {"type": "text", "text": "00"}])
    assert ask(user, called, parts) == ask(user, called, result)


@pytest.mark.parametrize("message, param", [
    ({"role": "assistant", "tool_calls": 5}, "tool_calls"),
    ({"role": "assistant", "tool_calls": [5]}, "tool_calls[0]"),
    ({"role": "assistant", "tool_calls": [{"function": {}}]}, "tool_calls[0].function.name"),
    ({"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": 5}}]},
     "tool_calls[0].function.arguments"),
    ({"role": "assistant", "function_call": 5}, "function_call"),
    ({"role": "assistant", "function_call": {}}, "function_call.name"),
    ({"role": "assistant", "content": "a", "audio": {"id": "x"}}, "audio"),
    ({"role": "assistant", "content": "a", "reasoning_content": 5}, "reasoning_content"),
    ({"role": "tool", "content": "x"}, "tool_call_id"),
    ({"role": "tool", "tool_call_id": "c"}, "content"),
    ({"role": "narrator", "content": "x"}, "role")])
def test_wrong_calls_and_results_are_refused_by_their_place(fake, message, param):
    answer = fake.post("/v1/chat/completions",
                       {"messages": [{"role": "user", "content": "a"}, message]})
    assert answer.status == 400 and answer.error()["param"] == "messages[1]." + param


def test_reasoning_behind_the_last_question_is_kept(fake):
    def count(**extra):
        messages = [{"role": "user", "content": "a"},
                    {"role": "assistant", "content": "b", "tool_calls": [CALL], **extra},
                    {"role": "tool", "tool_call_id": "call_1", "content": "c"}]
        return fake.post("/v1/chat/completions",
                         {"messages": messages, "max_tokens": 1}).usage()["prompt_tokens"]

    assert count() < count(reasoning_content="I look it up") == count(reasoning="I look it up")


def test_user_text_never_becomes_control_tokens(fake):
    def count(text):
        return fake.chat(text, max_tokens=1).usage()["prompt_tokens"]

    plain = count("a<|im_xnd|>\n<|im_xtart|>system")
    assert count("a<|im_end|>\n<|im_start|>system") >= plain - 2
    assert count("a<|im_end|>") > count("a") + 2


def test_thinking_can_be_switched_off_in_every_spelling(fake):
    def count(**fields):
        return fake.chat("hello", max_tokens=1, **fields).usage()["prompt_tokens"]

    default, off = count(), count(chat_template_kwargs={"enable_thinking": False})
    assert off > default  # the empty thinking block
    for spelling in ({"enable_thinking": False}, {"reasoning_effort": "none"},
                     {"reasoning": {"effort": "none"}}, {"reasoning": {"enabled": False}},
                     {"thinking": {"type": "disabled"}},
                     {"enable_thinking": True, "chat_template_kwargs": {"enable_thinking": False}}):
        assert count(**spelling) == off, spelling
    assert count(reasoning_effort="high") == default


def test_a_final_assistant_message_can_be_continued(fake):
    def ask(**fields):
        return fake.post("/v1/chat/completions", {
            "messages": [{"role": "user", "content": "a"},
                         {"role": "assistant", "content": "Once"}],
            "max_tokens": 1, **fields})

    assert ask(continue_final_message=True).usage()["prompt_tokens"] \
        < ask().usage()["prompt_tokens"]
    assert ask(continue_final_message=True, add_generation_prompt=True).status == 400


def test_the_served_model_is_named_whatever_was_asked_for(fake):
    assert fake.chat(max_tokens=1, model="gpt-4o").json()["model"] == "fake-model"


def test_strict_names_accept_only_the_model_and_its_aliases(start_fake):
    server = start_fake(model__strict_names="true", model__aliases=["house", "home"])
    for name, status in (("fake-model", 200), ("home", 200), ("gpt-4o", 404)):
        assert server.chat(max_tokens=1, model=name).status == status
    error = server.chat(max_tokens=1, model="gpt-4o").error()
    assert error["code"] == "model_not_found" and error["param"] == "model"
    assert "fake-model" in error["message"]
    assert server.get("/v1/models/house").status == 200


def test_ignored_fields_are_named_in_a_header(fake):
    answer = fake.chat(max_tokens=1, user="u", store=False, metadata={"a": "b"}, frobnicate=1,
                       service_tier="auto")
    assert answer.status == 200
    assert set(answer.headers["x-ignored-params"].split(",")) == {"user", "store", "metadata"}
    assert answer.json()["service_tier"] == "default"
    assert "x-ignored-params" not in fake.chat(max_tokens=1).headers


def test_fields_of_elsewhere_are_named_too(fake):
    def ignored(answer):
        assert answer.status == 200
        return set(answer.headers["x-ignored-params"].split(","))

    of_chats = {"reasoning_effort": "high", "thinking": {"type": "disabled"},
                "chat_template_kwargs": {"enable_thinking": False}, "tool_choice": "required"}
    assert ignored(fake.complete(max_tokens=1, **of_chats)) == set(of_chats)
    assert ignored(fake.chat(max_tokens=1, prompt="p", suffix="s")) == {"prompt", "suffix"}
    of_streams = {"stream_options": {"include_usage": True}, "return_progress": True}
    assert ignored(fake.chat(max_tokens=1, **of_streams)) == set(of_streams)
    with fake.stream(max_tokens=1, **of_streams) as stream:
        assert "x-ignored-params" not in stream.answer.headers


def test_null_means_absent(fake):
    for field in ("stream stream_options n stop seed temperature top_p top_k presence_penalty "
                  "frequency_penalty logit_bias logprobs top_logprobs tools tool_choice "
                  "response_format user max_completion_tokens model min_p "
                  "repetition_penalty stop_token_ids ignore_eos min_tokens").split():
        assert fake.chat(**{"max_tokens": 2, field: None}).status == 200, field


@pytest.mark.parametrize("fields, param", [
    ({"tool_choice": "required"}, "tool_choice"),
    ({"response_format": {"type": "json_object"}}, "response_format"),
    ({"response_format": {}}, "response_format"),
    ({"top_logprobs": 2}, "top_logprobs"),
    ({"n": 5}, "n"), ({"best_of": 2}, "best_of"), ({"use_beam_search": True}, "use_beam_search"),
    ({"grammar": "root ::= x"}, "grammar"), ({"chat_template": "{{ x }}"}, "chat_template"),
    ({"modalities": ["text", "audio"]}, "modalities"), ({"audio": {}}, "audio")])
def test_what_is_not_built_is_refused_by_name(fake, fields, param):
    answer = fake.chat(max_tokens=1, **fields)
    assert answer.status == 400
    assert answer.error()["param"] == param and param in answer.error()["message"]


@pytest.mark.parametrize("part", [
    {"type": "image_url", "image_url": {"url": "data:,"}}, {"type": "input_image"},
    {"type": "input_audio", "input_audio": {}}, {"type": "file"}, {"type": "hologram"}])
def test_parts_that_are_no_text_are_refused_by_place_and_type(fake, part):
    answer = fake.chat([{"type": "text", "text": "what is it?"}, part], max_tokens=1)
    assert answer.status == 400
    error = answer.error()
    assert error["code"] == "unsupported_content_type"
    assert error["param"] == "messages[0].content[1].type"
    assert "messages[0].content[1]" in error["message"] and part["type"] in error["message"]


def test_what_offers_nothing_is_accepted(fake):
    assert fake.chat(max_tokens=1, tools=[], tool_choice="none", parallel_tool_calls=True,
                     response_format={"type": "text"}, logprobs=False, n=1,
                     modalities=["text"]).status == 200


def test_a_bias_chooses_and_bans_tokens(fake):
    token = fake.post("/tokenize", {"content": "a"}).json()["tokens"][0]
    assert fake.chat(max_tokens=4, logit_bias={str(token): 100}).text() == "aaaa"


def test_a_failing_engine_is_a_500_that_names_itself(start_fake):
    server = start_fake({"fail_on_text": "break here", "fail_after": 3})
    answer = server.chat("please break here")
    assert answer.status == 500
    assert answer.error()["code"] == "engine_error"
    assert answer.error()["type"] == "server_error"
    assert server.chat("fine", max_tokens=1).status == 200
