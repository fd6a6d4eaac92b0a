"""The official OpenAI SDK, sync and async, as clients use it."""
import asyncio

import openai
import pytest

MESSAGES = [{"role": "user", "content": "hello"}]


@pytest.fixture(scope="module")
def client(fake):
    with openai.OpenAI(base_url=fake.base + "/v1", api_key="none", max_retries=0,
                       timeout=20) as one:
        yield one


def create(client, **fields):
    fields = {"model": "fake-model", "messages": MESSAGES, "temperature": 0, **fields}
    return client.chat.completions.create(**fields)


def test_create(client):
    reply = create(client, max_tokens=6)
    assert reply.choices[0].message.role == "assistant" and reply.choices[0].message.content
    assert reply.choices[0].finish_reason == "length"
    assert reply.usage.completion_tokens == 6
    assert reply.usage.prompt_tokens_details.cached_tokens == 0
    assert reply._request_id.startswith("req_")


def test_stream(client):
    whole = create(client, max_tokens=20).choices[0].message.content
    chunks = list(create(client, max_tokens=20, stream=True,
                         stream_options={"include_usage": True}))
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == whole
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens == 20


def test_stream_helper(client):
    with client.beta.chat.completions.stream(model="fake-model", messages=MESSAGES,
                                             temperature=0, max_tokens=20) as stream:
        for _ in stream:
            pass
        with pytest.raises(openai.LengthFinishReasonError):
            stream.get_final_completion()


def test_stop_and_seed(client):
    text = create(client, max_tokens=30).choices[0].message.content
    stop = text[6:10]
    reply = create(client, max_tokens=30, stop=[stop])
    assert reply.choices[0].message.content == text[:text.find(stop)]
    assert reply.choices[0].finish_reason == "stop"

    def seeded(seed):
        return create(client, max_tokens=20, temperature=1, seed=seed).choices[0].message.content

    assert seeded(3) == seeded(3) != seeded(4)


def test_completions_and_models(client):
    reply = client.completions.create(model="fake-model", prompt=["a", "b"], max_tokens=3)
    assert [choice.index for choice in reply.choices] == [0, 1]
    assert [model.id for model in client.models.list()] == ["fake-model"]
    assert client.models.retrieve("fake-model").id == "fake-model"


@pytest.mark.parametrize("kind, fields", [
    (openai.BadRequestError, {"messages": []}),
    (openai.BadRequestError, {"n": 5}),
    (openai.BadRequestError, {"messages": [{"role": "user", "content": "z-" * 3000}]}),
    (openai.BadRequestError, {"stream": True, "top_p": 7})])
def test_bad_requests_raise_their_class(client, kind, fields):
    with pytest.raises(kind) as caught:
        create(client, **fields)
    assert caught.value.status_code == 400 and caught.value.message
    assert caught.value.type == "invalid_request_error"


def test_unknown_things_raise_not_found(client):
    with pytest.raises(openai.NotFoundError) as caught:
        client.models.retrieve("none")
    assert caught.value.code == "model_not_found"


def test_embeddings_raise_bad_request_and_are_not_retried(fake):
    with openai.OpenAI(base_url=fake.base, api_key="none", max_retries=2) as client:
        before = len(fake.log())
        with pytest.raises(openai.BadRequestError) as caught:
            client.embeddings.create(model="fake-model", input="x")
    assert caught.value.code == "unsupported_operation"
    assert fake.log()[before:].count("route=/embeddings") == 1


def test_a_loading_model_raises_internal_server_error_until_it_is_there(start_fake):
    server = start_fake({"load_ms": 1500}, wait="livez")
    with openai.OpenAI(base_url=server.base + "/v1", api_key="none", max_retries=0) as client:
        with pytest.raises(openai.InternalServerError) as caught:
            create(client, max_tokens=1)
        assert caught.value.status_code == 503 and caught.value.code == "model_loading"
        server.await_status("/readyz", 200)
        assert create(client, max_tokens=1).choices


def test_an_engine_error_raises_internal_server_error_or_breaks_the_stream(start_fake):
    server = start_fake({"fail_on_text": "break", "fail_after": 2})
    with openai.OpenAI(base_url=server.base + "/v1", api_key="none", max_retries=0) as client:
        with pytest.raises(openai.InternalServerError):
            create(client, messages=[{"role": "user", "content": "break"}])
        with pytest.raises(openai.APIError) as caught:
            list(create(client, messages=[{"role": "user", "content": "break"}], stream=True))
        assert "engine failed" in caught.value.message


def test_leaving_a_stream_early_leaves_the_client_usable(client):
    for _ in range(3):
        stream = create(client, max_tokens=1000, stream=True)
        next(iter(stream))
        stream.close()
    assert create(client, max_tokens=2).choices


def test_async(fake):
    async def use():
        async with openai.AsyncOpenAI(base_url=fake.base + "/v1", api_key="none",
                                      max_retries=0) as client:
            replies = await asyncio.gather(*[
                create(client, max_tokens=4, messages=[{"role": "user", "content": f"client {i}"}])
                for i in range(6)])
            assert all(reply.usage.completion_tokens == 4 for reply in replies)
            text = ""
            async for chunk in await create(client, max_tokens=12, stream=True):
                text += chunk.choices[0].delta.content or ""
            assert text == (await create(client, max_tokens=12)).choices[0].message.content
            with pytest.raises(openai.BadRequestError):
                await create(client, temperature=9)
            with pytest.raises(openai.NotFoundError):
                await client.models.retrieve("none")

    asyncio.run(use())
