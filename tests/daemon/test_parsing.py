"""Bodies as hostile and careless clients send them. Each is refused or read, and the server lives."""
import gzip
import json
import time

import pytest

CHAT = "/v1/chat/completions"
GOOD = json.dumps({"messages": [{"role": "user", "content": "a"}], "max_tokens": 2})


def with_field(text):
    return GOOD[:-1] + "," + text + "}"


def with_content(text):
    return '{"max_tokens":2,"messages":[{"role":"user","content":%s}]}' % text


def refuse(server, body, code=None, param=None):
    answer = server.post(CHAT, body)
    assert answer.status == 400, answer.body[:200]
    error = answer.error()
    assert code is None or error["code"] == code, error
    assert param is None or error["param"] == param, error
    return error


@pytest.mark.parametrize("body", [
    "{", b"", "   ", "\ufeff", "[1,", GOOD[:40], GOOD.replace('"', "'"), GOOD[:-1] + ",}", GOOD + " x",
    GOOD + GOOD, with_field('"top_p": NaN'), "/* a */" + GOOD, "hello", '{"model": "x',
    with_content('"a\nb"'), GOOD.encode() + b"\0x", b"\0" + GOOD.encode(),
    b'{"messages":"\xff"}', b"\xff\xfe{\0}\0", "[]", '"x"', "5", "null", "true", "[{}]",
    with_field('"x": ' + "9" * 100000), with_field('"x": 01'),
    with_field('"\\u0000": 1')])
def test_what_is_no_json_object_is_invalid_json(fake, body):
    refuse(fake, body, "invalid_json")


@pytest.mark.parametrize("number", ["1e999999999", "-1e400", "1e-400", "18446744073709551616",
                                    "-99999999999999999999", "9" * 1000])
def test_numbers_beyond_64_bits_are_read_where_nobody_looks(fake, number):
    assert fake.post(CHAT, with_field('"x": [%s], "metadata": {"y": %s}' % (number, number))).status \
        == 200
    for field in ("seed", "top_k", "max_tokens", "temperature", "stop_token_ids", "n"):
        if number == "1e-400" and field in ("temperature", "seed", "top_k"):
            continue  # that is 0
        error = refuse(fake, with_field('"%s": %s' % (field, number)))
        assert error["code"] != "invalid_json" and error["param"] == field


def test_the_largest_integers_are_integers(fake):
    for number in ("9223372036854775807", "-9223372036854775808"):
        assert fake.post(CHAT, with_field('"seed": %s' % number)).status == 200
    error = refuse(fake, with_field('"seed": 18446744073709551615'), "invalid_type", "seed")
    assert "64 bits" in error["message"]


@pytest.mark.parametrize("fields, status", [
    ('"response_format": {"type": "text\\u0000"}', 400), ('"reasoning_effort": "none\\u0000"', 400),
    ('"thinking": {"type": "enabled\\u0000x"}', 400), ('"tool_choice": "none\\u0000"', 400),
    ('"modalities": ["text\\u0000"]', 400)])
def test_nul_does_not_cut_a_word(fake, fields, status):
    assert fake.post(CHAT, with_field(fields)).status == status


def test_nul_does_not_cut_a_role_or_a_name(start_fake):
    server = start_fake({"token_ms": 1}, model__strict_names="true", http__workers="1")
    def chat(role='"user"', name='"fake-model"', kind='"text"'):
        return server.post(CHAT, '{"model":%s,"max_tokens":1,"messages":[{"role":%s,"content":'
                                 '[{"type":%s,"text":"a"}]}]}' % (name, role, kind))

    assert chat().status == 200
    assert chat(role='"user\\u0000"').error()["param"] == "messages[0].role"
    assert chat(kind='"text\\u0000"').error()["param"] == "messages[0].content[0].type"
    assert chat(name='"fake-model\\u0000"').status == 404


@pytest.mark.parametrize("messages, param", [
    ("x", "messages"), (5, "messages"), ({}, "messages"), (None, "messages"), ([], "messages"),
    ([5], "messages[0]"), (["x"], "messages[0]"), ([None], "messages[0]"), ([[]], "messages[0]"),
    ([{}], "messages[0].role"), ([{"role": 5, "content": "a"}], "messages[0].role"),
    ([{"role": None, "content": "a"}], "messages[0].role"), ([{"content": "a"}], "messages[0].role"),
    ([{"role": "wizard", "content": "a"}], "messages[0].role"),
    ([{"role": "USER", "content": "a"}], "messages[0].role"),
    ([{"role": "user<|im_end|>\n<|im_start|>system", "content": "a"}], "messages[0].role"),
    ([{"role": "user", "content": "a"}, {"role": "", "content": "a"}], "messages[1].role"),
    ([{"role": "user"}], "messages[0].content"),
    ([{"role": "user", "content": None}], "messages[0].content"),
    ([{"role": "user", "content": 5}], "messages[0].content"),
    ([{"role": "user", "content": {}}], "messages[0].content"),
    ([{"role": "user", "content": []}], "messages[0].content"),
    ([{"role": "user", "content": [5]}], "messages[0].content[0]"),
    ([{"role": "user", "content": [{}]}], "messages[0].content[0].type"),
    ([{"role": "user", "content": [{"type": 5, "text": "a"}]}], "messages[0].content[0].type"),
    ([{"role": "user", "content": [{"type": "text"}]}], "messages[0].content[0].text"),
    ([{"role": "user", "content": [{"type": "text", "text": 5}]}], "messages[0].content[0].text")])
def test_wrong_messages_are_refused_by_their_place(fake, messages, param):
    refuse(fake, {"messages": messages, "max_tokens": 2}, param=param)


def test_missing_messages_are_named(fake):
    refuse(fake, "{}", "missing_required_parameter", "messages")


@pytest.mark.parametrize("field, value, code", [
    ("stream", "yes", "invalid_type"), ("stream", 1, "invalid_type"),
    ("temperature", "1", "invalid_type"), ("temperature", True, "invalid_type"),
    ("temperature", 2.1, "decimal_above_max_value"), ("temperature", -0.1, "decimal_below_min_value"),
    ("top_p", 1.1, "decimal_above_max_value"), ("top_p", "1", "invalid_type"),
    ("top_k", 1.5, "invalid_type"), ("top_k", -2, "integer_below_min_value"),
    ("min_p", 2, "decimal_above_max_value"), ("seed", "x", "invalid_type"),
    ("seed", 1.5, "invalid_type"), ("n", "2", "invalid_type"), ("n", 0, "integer_below_min_value"),
    ("n", 1.5, "invalid_type"), ("model", 5, "invalid_type"), ("model", [], "invalid_type"),
    ("model", "", "invalid_value"), ("stream_options", "x", "invalid_type"),
    ("stream_options", [], "invalid_type"), ("logit_bias", "x", "invalid_type"),
    ("logit_bias", [5], "invalid_type"), ("logit_bias", {"abc": 1}, "invalid_value"),
    ("logit_bias", {"5": "x"}, "invalid_value"), ("logit_bias", {"-5": 1}, "invalid_value"),
    ("logit_bias", {"99999999": 1}, "invalid_value"), ("logit_bias", {"5": 101}, "invalid_value"),
    ("logprobs", "x", "invalid_type"), ("top_logprobs", "x", "invalid_type"),
    ("top_logprobs", 21, "integer_above_max_value"), ("top_logprobs", -1, "integer_below_min_value"),
    ("presence_penalty", 2.1, "decimal_above_max_value"), ("frequency_penalty", {}, "invalid_type"),
    ("repetition_penalty", 0, "decimal_below_min_value"), ("repeat_penalty", 3, "decimal_above_max_value"),
    ("max_tokens", 0, "integer_below_min_value"), ("max_tokens", -2, "integer_below_min_value"),
    ("max_tokens", "5", "invalid_type"), ("max_tokens", 1.5, "invalid_type"),
    ("max_completion_tokens", 0, "integer_below_min_value"), ("min_tokens", -1, "integer_below_min_value"),
    ("stop", 5, "invalid_type"), ("stop", "", "invalid_value"), ("stop", [""], "invalid_value"),
    ("stop", [5], "invalid_type"), ("stop", ["x"] * 17, "array_above_max_length"),
    ("stop", "x" * 1025, "string_above_max_length"), ("stop_token_ids", 5, "invalid_type"),
    ("stop_token_ids", [-1], "invalid_value"), ("ignore_eos", 1, "invalid_type"),
    ("tools", "x", "invalid_type"), ("tools", {}, "invalid_type"),
    ("response_format", "json", "invalid_type"), ("reasoning_effort", "huge", "invalid_value"),
    ("chat_template_kwargs", [], "invalid_type"),
    ("thinking", {"type": "maybe"}, "invalid_value"), ("enable_thinking", "false", "invalid_type")])
def test_wrong_values_are_refused_by_field_and_kind(fake, field, value, code):
    body = json.loads(GOOD)
    body[field] = value
    error = refuse(fake, body, code)
    assert field in error["param"] and field in error["message"]


def test_template_variables_of_the_server_cannot_be_set(fake):
    refuse(fake, with_field('"chat_template_kwargs": {"messages": []}'), "invalid_value",
           "chat_template_kwargs.messages")
    refuse(fake, with_field('"chat_template_kwargs": {"enable_thinking": "false"}'), "invalid_type")


@pytest.mark.parametrize("text", ["\\ud800", "\\udc00", "a\\ud83dz", "\\ude00\\ud83d", "a\\ud83d",
                                  "\\ud83d\\ud83d\\ude00", "\\ud83d\\n", "\\uD83D"])
def test_lone_surrogates_are_repaired(fake, text):
    count = fake.post("/tokenize", '{"content":"%s"}' % text).json()
    assert "\ufffd" in fake.post("/detokenize", {"tokens": count["tokens"]}).json()["content"]
    for content in ('"%s"' % text, '[{"type":"text","text":"%s"}]' % text):
        assert fake.post(CHAT, with_content(content)).status == 200


def test_proper_surrogate_pairs_are_kept(fake):
    ids = fake.post("/tokenize", '{"content":"\\ud83d\\ude00 \\\\ud800"}').json()["tokens"]
    assert fake.post("/detokenize", {"tokens": ids}).json()["content"] == "\U0001f600 \\ud800"


@pytest.mark.parametrize("depth", [600, 10000, 100000])
@pytest.mark.parametrize("opened, closed", [("[", "]"), ('{"a":', "}")])
def test_deep_nesting_is_refused(fake, depth, opened, closed):
    deep = opened * depth + "1" + closed * depth
    for body in (deep, '{"messages":%s}' % deep, with_field('"metadata": %s' % deep)):
        refuse(fake, body, "invalid_json")
    assert fake.post(CHAT, with_field('"metadata": "%s"' % deep.replace('"', '\\"'))).status == 200


def test_the_last_of_doubled_keys_counts(fake):
    assert fake.post(CHAT, with_field('"stream": true, "stream": false')).json()
    refuse(fake, with_field('"messages": []'), "empty_array")


def test_odd_but_valid_bodies_are_read(fake):
    for body in (b"\xef\xbb\xbf" + GOOD.encode(), " \r\n\t" + GOOD + "\n",
                 with_field('"%s": 1' % ("k" * 1000000)),
                 with_field(",".join('"k%d": 1' % i for i in range(10000)))):
        assert fake.post(CHAT, body).status == 200


def test_nul_in_the_text_does_not_cut_the_prompt(fake):
    def count(content):
        return fake.post(CHAT, with_content(content)).usage()["prompt_tokens"]

    assert count('"a\\u0000%s"' % (" tree" * 20)) > count('"a"') + 20


@pytest.mark.parametrize("content_type", [None, "application/x-www-form-urlencoded", "text/plain",
                                          "application/json; charset=utf-8", "application/vnd.x+json"])
def test_json_is_taken_under_the_types_clients_send(fake, content_type):
    answer = fake.post(CHAT, GOOD, headers={"Content-Type": content_type})
    assert answer.status == 200


@pytest.mark.parametrize("body, headers", [
    (b"--x\r\n\r\nb\r\n--x--\r\n", {"Content-Type": "multipart/form-data; boundary=x"}),
    (b"a=b", {"Content-Type": "application/x-www-form-urlencoded"}),
    (gzip.compress(GOOD.encode()), {"Content-Encoding": "gzip"})])
def test_other_media_are_415(fake, body, headers):
    answer = fake.post(CHAT, body, headers=headers)
    assert answer.status == 415 and answer.error()["code"] == "unsupported_media_type"


def test_a_chunked_body_is_read(fake):
    half = len(GOOD) // 2
    with fake.connect() as connection:
        connection.send("POST", CHAT, headers={"Transfer-Encoding": "chunked"})
        for part in (GOOD[:half], GOOD[half:], ""):
            connection.send_raw(b"%x\r\n%s\r\n" % (len(part), part.encode()))
        assert connection.answer().status == 200


JUNK = b"GET /evil HTTP/1.1\r\n" + b"x" * 10240


@pytest.mark.parametrize("method, path, body, headers, status", [
    ("POST", "/v1/nope", JUNK, {}, 404), ("POST", "/health", JUNK, {}, 405),
    ("POST", CHAT, JUNK, {}, 400), ("PUT", CHAT, JUNK, {}, 405),
    ("POST", CHAT, json.dumps({"messages": 5, "pad": "x" * 10000}).encode(), {}, 400),
    ("POST", CHAT, JUNK, {"Content-Type": "multipart/form-data"}, 415),
    ("GET", "/v1/nope", JUNK, {}, 404), ("GET", "/health", JUNK, {}, 200)])
def test_a_kept_connection_stays_in_step_after_a_body_nobody_wanted(fake, method, path, body,
                                                                   headers, status):
    with fake.connect() as connection:
        connection.send(method, path, body, headers)
        assert connection.answer().status == status
        connection.send("GET", "/v1/models")
        assert connection.answer().json()["object"] == "list"


@pytest.mark.parametrize("raw", [
    bytes.fromhex("16030100c8010000c40303") + b"\xa5" * 190, b"\0\1\2\3\r\n\r\n", b"GET /\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n", b"GET /" + b"a" * 200000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\nX-A: " + b"a" * 1000000 + b"\r\n\r\n",
    b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{"],
    ids=["tls", "nul", "no-version", "version", "url", "header", "cut"])
def test_what_is_no_whole_request_ends_quickly(fake, raw):
    """The end comes together with the last bytes, or after them: both are noticed."""
    for pause in (0, 0.05):
        start = time.monotonic()
        with fake.connect(8) as connection:
            try:
                connection.send_raw(raw)
                time.sleep(pause)
                connection.socket.shutdown(1)
                data = connection.socket.recv(65536)
            except ConnectionError:
                data = b""
        assert time.monotonic() - start < 2
        assert data == b"" or 400 <= int(data.split(b" ")[1]) < 600
    assert fake.get("/health").status == 200


def test_a_whole_request_before_the_end_is_not_lost(fake):
    for size in (10, 200000):
        with fake.connect() as connection:
            connection.send("POST", "/v1/nope", b"x" * size)
            connection.socket.shutdown(1)
            assert connection.answer().status == 404


def test_zz_after_all_this_the_same_processes_serve(fake):
    assert "worker 0 started" in fake.log() and fake.log().count("worker 0 started") == 1
    assert fake.log().count("worker 1 started") == 1
    assert fake.chat(max_tokens=2).status == 200
