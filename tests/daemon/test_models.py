"""Models, health and the other answers that need no engine; paths and methods; CORS."""
import time

import pytest


def test_models_are_listed_with_their_limits(fake):
    reply = fake.get("/v1/models").json()
    assert reply["object"] == "list"
    (model,) = reply["data"]
    assert model["id"] == "fake-model" and model["object"] == "model"
    assert model["owned_by"] == "colizig" and isinstance(model["created"], int)
    assert model["max_model_len"] == model["context_length"] == model["meta"]["n_ctx"] == 2048
    assert model["status"] == {"value": "loaded"}
    time.sleep(1.1)
    assert fake.get("/v1/models").json() == reply


def test_one_model_is_found_by_id(fake):
    assert fake.get("/v1/models/fake-model").json()["id"] == "fake-model"
    assert fake.get("/models/fake%2Dmodel").status == 200
    answer = fake.get("/v1/models/none")
    assert answer.status == 404 and answer.error()["code"] == "model_not_found"


def test_ids_with_slashes_work_raw_and_encoded(start_fake):
    server = start_fake(model__name="Qwen/Qwen3-30B")
    assert server.get("/v1/models/Qwen/Qwen3-30B").json()["id"] == "Qwen/Qwen3-30B"
    assert server.get("/v1/models/Qwen%2FQwen3-30B").json()["id"] == "Qwen/Qwen3-30B"
    assert server.chat(max_tokens=1).json()["model"] == "Qwen/Qwen3-30B"


@pytest.mark.parametrize("path", ["/v1/models", "/models", "/v1/v1/models", "//v1//models/",
                                  "/v1/models?limit=3", "/v1/models/"])
def test_paths_are_taken_as_people_write_them(fake, path):
    assert fake.get(path).json()["object"] == "list"


def test_health_and_version_answer_on_both_prefixes(fake):
    for prefix in ("", "/v1"):
        assert fake.get(prefix + "/health").json() == {"status": "ok"}
        assert fake.get(prefix + "/livez").json() == {"status": "ok"}
        assert fake.get(prefix + "/readyz").json() == {"status": "ready"}
        assert fake.get(prefix + "/version").json()["version"]
    for path in ("/", "/v1"):
        assert fake.get(path).json()["service"] == "colizig"


def test_while_the_model_loads_health_says_so_and_requests_are_refused(start_fake):
    server = start_fake({"load_ms": 2500}, wait="livez")
    health = server.get("/health")
    assert health.status == 503 and int(health.headers["retry-after"]) > 0
    assert health.json()["status"] == "loading"
    assert health.error()["code"] == "model_loading"
    ready = server.get("/readyz")
    assert ready.status == 503 and ready.json()["status"] == "loading"
    assert 0 <= ready.json()["progress"] < 1
    assert server.get("/v1/models").json()["data"][0]["status"] == {"value": "loading"}
    for fields in ({}, {"stream": True}):
        answer = server.chat(**fields)
        assert answer.status == 503 and answer.error()["code"] == "model_loading"
        assert int(answer.headers["retry-after"]) > 0
    server.await_status("/readyz", 200)
    assert server.chat(max_tokens=1).status == 200


@pytest.mark.parametrize("method, path", [
    ("GET", "/v1/nope"), ("POST", "/v1/nope"), ("GET", "/v1/chat"), ("GET", "/../../etc/passwd"),
    ("GET", "/%00"), ("GET", "/v1/models%00x"), ("GET", "/%zz"),
    ("POST", "/v1/chat/completions/x")])
def test_unknown_paths_are_404_with_an_error_object(fake, method, path):
    answer = fake.request(method, path, "{}" if method == "POST" else None)
    assert answer.status == 404 and answer.error()["code"] == "unknown_url"


@pytest.mark.parametrize("method, path, allow", [
    ("GET", "/v1/chat/completions", "POST"), ("PUT", "/v1/completions", "POST"),
    ("HEAD", "/v1/chat/completions", "POST"), ("DELETE", "/v1/models", "GET"),
    ("POST", "/health", "GET"), ("PATCH", "/v1/models/fake-model", "GET")])
def test_wrong_methods_are_405_with_allow(fake, method, path, allow):
    answer = fake.request(method, path, "{}" if method in ("PUT", "POST", "PATCH") else None)
    assert answer.status == 405
    assert allow in answer.headers["allow"].split(", ")
    assert answer.headers["x-should-retry"] == "false"


def test_head_is_get_without_a_body(fake):
    with fake.connect() as connection:
        for path in ("/v1/models", "/health"):
            connection.send("HEAD", path)
            head = connection.answer("HEAD")
            connection.send("GET", path)
            get = connection.answer()
            assert head.status == get.status == 200
            assert head.headers["content-length"] == get.headers["content-length"]


@pytest.mark.parametrize("path", ["/v1/embeddings", "/v1/audio/speech", "/v1/images/generations",
                                  "/v1/moderations", "/v1/files", "/v1/rerank"])
def test_what_a_text_model_cannot_do_is_a_clean_400(fake, path):
    answer = fake.post(path, {"input": "x"})
    assert answer.status == 400 and answer.error()["code"] == "unsupported_operation"
    assert answer.error()["param"] is None
    assert answer.headers["x-should-retry"] == "false"


@pytest.mark.parametrize("method, path", [("POST", "/v1/responses"), ("GET", "/responses/resp_1"),
                                          ("POST", "/v1/responses/resp_1/cancel")])
def test_the_responses_api_is_a_404_that_names_what_is_built(fake, method, path):
    answer = fake.request(method, path, "{}" if method == "POST" else None)
    assert answer.status == 404 and answer.error()["code"] == "unsupported_operation"
    assert answer.error()["param"] is None
    assert "not built" in answer.error()["message"]
    assert "/v1/chat/completions" in answer.error()["message"]


# ---- browsers ----

@pytest.mark.parametrize("origin", ["http://localhost:3000", "http://127.0.0.1",
                                    "https://[::1]:8443", "http://localhost"])
def test_pages_of_this_machine_may_use_it(fake, origin):
    answer = fake.get("/v1/models", headers={"Origin": origin})
    assert answer.headers["access-control-allow-origin"] == origin
    assert answer.headers["vary"] == "Origin"
    assert "x-request-id" in answer.headers["access-control-expose-headers"]
    options = fake.request("OPTIONS", "/v1/chat/completions", headers={
        "Origin": origin, "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,x-stainless-lang",
        "Access-Control-Request-Private-Network": "true"})
    assert options.status == 204
    assert options.headers["access-control-allow-origin"] == origin
    assert options.headers["access-control-allow-headers"] == "authorization,x-stainless-lang"
    assert options.headers["access-control-allow-private-network"] == "true"
    assert "POST" in options.headers["access-control-allow-methods"]


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://localhost.evil.example",
                                    "http://127.0.0.1.evil.example", "http://localhost:80@evil"])
def test_other_pages_may_not(fake, origin):
    for method in ("GET", "OPTIONS"):
        answer = fake.request(method, "/v1/models", headers={"Origin": origin})
        assert not [name for name in answer.headers if name.startswith("access-control-")]


@pytest.mark.parametrize("host, status", [
    ("localhost", 200), ("localhost:1", 200), ("127.0.0.1:8080", 200), ("[::1]:8080", 200),
    ("127.1.2.3", 200), ("rebound.example", 403), ("localhost.evil.example:80", 403),
    ("127.0.0.1.evil.example", 403), ("", 403)])
def test_on_loopback_the_host_must_be_this_machine(fake, host, status):
    answer = fake.get("/v1/models", headers={"Host": host})
    assert answer.status == status
    if status == 403:
        assert answer.error()["code"] == "host_not_allowed"


def test_http_1_1_needs_a_host(fake):
    assert fake.get("/health", headers={"Host": None}).status == 400


# ---- tokenizer ----

def test_tokenize_and_detokenize_are_each_others_inverse(fake):
    text = "Hello, wörld 🌲 <|im_end|>"
    ids = fake.post("/tokenize", {"content": text}).json()["tokens"]
    assert fake.post("/detokenize", {"tokens": ids}).json() == {"content": text, "prompt": text}
    plain = fake.post("/tokenize", {"content": text, "parse_special": False}).json()["tokens"]
    assert len(plain) > len(ids)
    assert fake.post("/detokenize", {"tokens": plain}).json()["content"] == text


def test_tokenize_shows_pieces(fake):
    pieces = fake.post("/tokenize", {"content": "a🌲", "with_pieces": True}).json()["tokens"]
    assert pieces[0]["piece"] == "a"
    assert b"".join(bytes(p["piece"]) if isinstance(p["piece"], list) else p["piece"].encode()
                    for p in pieces) == "a🌲".encode()


def test_a_chat_is_counted_as_it_will_be(fake):
    body = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 1}
    used = fake.post("/v1/chat/completions", body).usage()["prompt_tokens"]
    counted = fake.post("/v1/chat/completions/input_tokens", body).json()
    assert counted["object"] == "response.input_tokens" and counted["input_tokens"] == used
    assert fake.post("/tokenize", body).json()["count"] == used


@pytest.mark.parametrize("path, body", [
    ("/tokenize", "{"), ("/tokenize", "[]"), ("/tokenize", {}), ("/tokenize", {"content": 5}),
    ("/detokenize", {}), ("/detokenize", {"tokens": "x"}), ("/detokenize", {"tokens": [-1]}),
    ("/detokenize", {"tokens": [10**9]}), ("/detokenize", {"tokens": [1.5]}),
    ("/detokenize", {"tokens": ["x"]})])
def test_the_tokenizer_refuses_nonsense(fake, path, body):
    answer = fake.post(path, body)
    assert answer.status == 400 and answer.error()["message"]
