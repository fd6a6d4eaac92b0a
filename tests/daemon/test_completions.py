"""POST /v1/completions: raw prompts, lists of them, ids, echo."""
import pytest


def test_an_answer_has_the_legacy_shape(fake):
    reply = fake.complete("hello", max_tokens=4).json()
    assert reply["id"].startswith("cmpl-") and reply["object"] == "text_completion"
    (choice,) = reply["choices"]
    assert choice["index"] == 0 and isinstance(choice["text"], str) and choice["text"]
    assert choice["finish_reason"] == "length" and choice["logprobs"] is None


def test_sixteen_tokens_are_the_default(fake):
    assert fake.complete("hello").usage()["completion_tokens"] == 16
    assert fake.complete("hello", n_predict=3).usage()["completion_tokens"] == 3


def test_several_prompts_run_in_order(fake):
    prompts = ["one", "two", "three"]
    reply = fake.complete(prompts, max_tokens=6).json()
    alone = [fake.complete(prompt, max_tokens=6).json() for prompt in prompts]
    assert [choice["index"] for choice in reply["choices"]] == [0, 1, 2]
    assert [choice["text"] for choice in reply["choices"]] \
        == [one["choices"][0]["text"] for one in alone]
    for key in ("prompt_tokens", "completion_tokens", "total_tokens"):
        assert reply["usage"][key] == sum(one["usage"][key] for one in alone)


def test_several_prompts_stream_in_order(fake):
    with fake.stream(["one", "two"], path="/v1/completions", max_tokens=6) as stream:
        stream.rest()
    assert stream.done
    for index, prompt in enumerate(("one", "two")):
        assert stream.text(index) == fake.complete(prompt, max_tokens=6).text()
        assert stream.finish(index) == "length"
    order = [choice["index"] for choice in stream.choices()]
    assert order == sorted(order)


def test_token_ids_are_a_prompt(fake):
    ids = fake.post("/tokenize", {"prompt": "hello there"}).json()["tokens"]
    text = fake.complete("hello there", max_tokens=8)
    assert fake.complete(ids, max_tokens=8).text() == text.text()
    several = fake.complete([ids, ids[:1]], max_tokens=8).json()
    assert several["choices"][0]["text"] == text.text()


def test_control_tokens_in_a_raw_prompt_are_honoured(fake):
    def count(prompt):
        return fake.complete(prompt, max_tokens=1).usage()["prompt_tokens"]

    assert count("a<|im_end|>b") == 3
    assert count("a<|im_xnd|>b") > 3


def test_echo_with_logprobs_is_refused_for_the_prompts_are_not_told(fake):
    answer = fake.complete("hello", max_tokens=1, echo=True, logprobs=0)
    assert answer.status == 400
    assert answer.error()["param"] == "echo" and "logprobs" in answer.error()["message"]


def test_echo_puts_the_prompt_in_front(fake):
    said = fake.complete("hello there", max_tokens=6).text()
    assert fake.complete("hello there", max_tokens=6, echo=True).text() == "hello there" + said
    ids = fake.post("/tokenize", {"prompt": "hello there"}).json()["tokens"]
    assert fake.complete(ids, max_tokens=6, echo=True).text() == "hello there" + said
    with fake.stream("hello there", path="/v1/completions", max_tokens=6, echo=True) as stream:
        assert stream.rest().text() == "hello there" + said


@pytest.mark.parametrize("prompt, code", [
    (None, "missing_required_parameter"), ([], "empty_array"), ("", "invalid_value"),
    (5, "invalid_type"), ({}, "invalid_type"), ([{}], "invalid_type"), ([-1], "invalid_value"),
    ([10**9], "invalid_value"), ([1.5], "invalid_value"), (["a", 5], "invalid_type"),
    ([[]], "empty_array"), ([[1], "a", None], "invalid_type"),
    (["a"] * 17, "array_above_max_length")])
def test_wrong_prompts_are_refused(fake, prompt, code):
    answer = fake.complete(prompt, max_tokens=2)
    assert answer.status == 400
    assert answer.error()["code"] == code and answer.error()["param"].startswith("prompt")


@pytest.mark.parametrize("fields, param", [({"suffix": 5}, "suffix"), ({"tools": [{}]}, "tools"),
                                           ({"logprobs": True}, "logprobs"), ({"n": 5}, "n"),
                                           ({"best_of": 3}, "best_of")])
def test_what_is_not_built_is_refused_by_name(fake, fields, param):
    answer = fake.complete("hello", **fields)
    assert answer.status == 400 and answer.error()["param"] == param


def test_a_prompt_over_the_context_names_the_prompt(fake):
    error = fake.complete(["ok", "z-" * 3000], max_tokens=1).error()
    assert error["code"] == "context_length_exceeded" and error["param"] == "prompt"


def test_stop_strings_work_in_every_prompt(fake):
    text = fake.complete("one", max_tokens=40).text()
    stop = text[8:12]
    assert text.find(stop) == 8
    reply = fake.complete(["one", "two"], max_tokens=40, stop=stop).json()
    assert reply["choices"][0]["text"] == text[:8]
    assert reply["choices"][0]["finish_reason"] == "stop"


def test_a_suffix_makes_a_gap_that_the_model_fills(start_fake):
    marks = "<|fim_prefix|>left <|fim_suffix|> right<|fim_middle|>"
    server = start_fake({"token_ms": 0.1, "replies": [
        {"on": marks, "text": "middle<|fim_pad|>and more"}, {"text": "no gap<|fim_pad|> here"}]})
    ids = server.post("/tokenize", {"content": "left "}).json()["tokens"]
    for prompt in ("left ", ids, ["left ", "left "]):
        answer = server.complete(prompt, suffix=" right", max_tokens=50)
        assert answer.status == 200, answer.body
        for choice in answer.json()["choices"]:
            assert choice["text"] == "middle" and choice["finish_reason"] == "stop"
    assert server.complete("left ", suffix="", max_tokens=50).text() == "no gap<|fim_pad|> here"
    echoed = server.complete("left ", suffix=" right", echo=True, max_tokens=50)
    assert echoed.text() == "left middle"
