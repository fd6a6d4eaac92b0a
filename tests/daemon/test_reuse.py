"""Prompts that begin like earlier ones, through the daemon: what usage and counters say of them."""
import time

import openai
import pytest

import server
from census import engine_stats as stats

STORY = " ".join(f"The {i}th sheep jumps over the fence." for i in range(12))


# They end their replies by themselves, so that these come back just as they were sampled.
MODELS = server.ROOT / "tests/data/models"


@pytest.fixture(scope="module", params=["chat-qwen3-moe", "chat-qwen4-exp"])
def daemon(request, start_real):
    return start_real(MODELS / request.param, engine__context="4096", engine__sequences="16",
                      http__workers="1")


@pytest.fixture()
def client(daemon):
    with openai.OpenAI(base_url=daemon.base + "/v1", api_key="none", max_retries=0,
                       timeout=60) as one:
        yield one


def ask(client, messages, **fields):
    """A model of few words: nothing is thought about."""
    reply = client.chat.completions.create(model="any", messages=messages, max_tokens=200,
                                           temperature=0, reasoning_effort="none", **fields)
    usage = reply.usage
    assert 0 <= usage.prompt_tokens_details.cached_tokens < usage.prompt_tokens
    return reply.choices[0].message.content, usage


def test_the_same_question_is_computed_once(daemon, client):
    messages = [{"role": "user", "content": STORY + " Why?"}]
    before = stats(daemon)
    first, usage = ask(client, messages)
    assert usage.prompt_tokens_details.cached_tokens < usage.prompt_tokens / 4
    again, second = ask(client, messages)
    after = stats(daemon)
    assert again == first and second.prompt_tokens == usage.prompt_tokens
    assert second.prompt_tokens_details.cached_tokens == usage.prompt_tokens - 1
    found = sum(one.prompt_tokens_details.cached_tokens for one in (usage, second))
    assert after["prefix_tokens"] - before["prefix_tokens"] == found
    assert after["prompt_tokens"] - before["prompt_tokens"] == 2 * usage.prompt_tokens - found
    assert f"colizig_prefix_cache_hit_tokens_total {after['prefix_tokens']}" in (
        daemon.get("/metrics").body.decode())


def test_the_next_turn_costs_its_own_tokens(client):
    messages = [{"role": "user", "content": STORY + " Who?"}]
    answer, usage = ask(client, messages)
    seen = usage.prompt_tokens + usage.completion_tokens
    for question in ("And then?", "Is that so?"):
        messages += [{"role": "assistant", "content": answer}, {"role": "user", "content": question}]
        answer, usage = ask(client, messages)
        cached = usage.prompt_tokens_details.cached_tokens
        assert seen - 4 <= cached <= seen, "the reply came back as it was sampled"
        seen = usage.prompt_tokens + usage.completion_tokens


def test_a_system_prompt_is_found_by_the_third_who_has_it(client):
    """By the second already, where no state is needed. Who counts the tokens is the first."""
    system = {"role": "system", "content": "You count sheep. " + STORY}
    alone = client.chat.completions.create(
        model="any", messages=[system, {"role": "user", "content": "a"}], max_tokens=1,
        extra_body={"reasoning_effort": "none"}).usage.prompt_tokens
    cached = []
    for question in ("How many are there?", "Are they tired?", "Which one was first?"):
        _, usage = ask(client, [system, {"role": "user", "content": question}])
        cached.append(usage.prompt_tokens_details.cached_tokens)
    assert alone > 150 and min(cached[1:]) > alone - 20, (alone, cached)


def test_who_wants_no_part_of_it_finds_nothing_and_leaves_nothing(daemon, client):
    messages = [{"role": "user", "content": "In private. " + STORY}]
    apart = {"extra_body": {"cache_prompt": False}}
    pages = stats(daemon)["prefix_pages"]
    first, _ = ask(client, messages, **apart)
    assert stats(daemon)["prefix_pages"] == pages
    again, usage = ask(client, messages)
    assert again == first and usage.prompt_tokens_details.cached_tokens < 30
    _, usage = ask(client, messages, **apart)
    assert usage.prompt_tokens_details.cached_tokens == 0


def test_an_owner_who_wants_none_has_none(start_real):
    daemon = start_real(MODELS / "chat-qwen3-moe", engine__prefix_cache="false")
    with openai.OpenAI(base_url=daemon.base + "/v1", api_key="none", max_retries=0,
                       timeout=60) as client:
        messages = [{"role": "user", "content": STORY}]
        for _ in range(2):
            _, usage = ask(client, messages)
            assert usage.prompt_tokens_details.cached_tokens == 0
    told = stats(daemon)
    assert told["prefix_pages"] == 0 and told["prefix_lookups"] == 0


def test_a_client_that_was_cut_off_goes_on(daemon, client):
    messages = [{"role": "user", "content": "Once more. " + STORY * 3}]
    stream = daemon.stream(messages[0]["content"], max_tokens=200, reasoning_effort="none")
    stream.read(2)
    stream.close()
    while stats(daemon)["running"]:
        time.sleep(0.02)
    _, usage = ask(client, messages)
    assert usage.prompt_tokens_details.cached_tokens == usage.prompt_tokens - 1
