"""The checkpoint's chat template in the worker: which is run, what it is given, what it refuses."""
import json
import pathlib
import shutil
import subprocess

import pytest

import server

CHAT = pathlib.Path(__file__).resolve().parent.parent / "data/chat"
ASK = {"role": "user", "content": "Ping?"}
TOOL = {"type": "function", "function": {"name": "look", "parameters": {
    "type": "object", "properties": {"at": {"type": "integer",
                                            "maximum": 123456789012345678901234567890}}}}}
XHIGH, LOW = "Reasoning effort is set to xhigh.", "Reasoning effort is set to low."


def template(name):
    return str(CHAT / f"{name}.jinja")


@pytest.fixture(scope="module")
def qwen38(start_fake):
    return start_fake(model__chat_template=template("qwen3.8"), http__workers=1)


def rendered(daemon, messages=(ASK,), **fields):
    answer = daemon.post("/apply-template", {"messages": list(messages), **fields})
    assert answer.status == 200, answer.text()
    return answer.json()["prompt"]


def refused(daemon, code, messages=(ASK,), **fields):
    answer = daemon.post("/v1/chat/completions", {"messages": list(messages), "max_tokens": 1,
                                                  **fields})
    assert answer.status == 400 and answer.error()["code"] == code, answer.text()
    return answer.error()


def test_a_chat_is_rendered_by_the_template_and_counted(qwen38):
    answer = qwen38.post("/apply-template", {"messages": [ASK], "reasoning_effort": "medium"})
    said = answer.json()
    assert said["prompt"] == "<|im_start|>user\nPing?<|im_end|>\n<|im_start|>assistant\n<think>\n"
    body = {"messages": [ASK], "reasoning_effort": "medium"}
    tokens = qwen38.post("/tokenize", body).json()
    assert said["n_tokens"] == tokens["count"] == len(tokens["tokens"])
    back = qwen38.post("/detokenize", {"tokens": tokens["tokens"]}).json()
    assert back["content"] == said["prompt"]
    usage = qwen38.post("/v1/chat/completions", {**body, "max_tokens": 1}).usage()
    assert usage["prompt_tokens"] == said["n_tokens"]
    counted = qwen38.post("/v1/chat/completions/input_tokens", body).json()
    assert counted["input_tokens"] == said["n_tokens"] and counted["cached_tokens"] == 0
    seconds = counted["estimated_prefill_seconds"]
    assert seconds is None or seconds >= 0


def test_tools_are_shown_as_they_came(qwen38):
    text = rendered(qwen38, tools=[TOOL])
    spelled = json.dumps(TOOL, ensure_ascii=False)
    assert f"<tools>\n{spelled}\n</tools>" in text
    assert "# Tools" not in rendered(qwen38) and "# Tools" not in rendered(qwen38, tools=[])
    count = qwen38.post("/tokenize", {"messages": [ASK], "tools": [TOOL]}).json()["count"]
    assert count == qwen38.post("/apply-template",
                                {"messages": [ASK], "tools": [TOOL]}).json()["n_tokens"]
    assert count > qwen38.post("/tokenize", {"messages": [ASK]}).json()["count"] + 50


@pytest.mark.parametrize("fields, shows", [
    ({}, XHIGH), ({"reasoning_effort": "minimal"}, LOW), ({"reasoning_effort": "low"}, LOW),
    ({"reasoning_effort": "high"}, XHIGH), ({"reasoning_effort": "max"}, XHIGH),
    ({"reasoning": {"effort": "low"}}, LOW),
    ({"chat_template_kwargs": {"reasoning_effort": "minimal"}}, LOW),
    ({"chat_template_kwargs": {"reasoning_effort": None, "enable_thinking": None}}, XHIGH),
    ({"reasoning_effort": "low", "chat_template_kwargs": {"reasoning_effort": "high"}}, XHIGH),
    ({"reasoning_effort": "none", "chat_template_kwargs": {"reasoning_effort": "low"}}, LOW),
    ({"reasoning_effort": "none", "enable_thinking": True}, XHIGH),
    ({"enable_thinking": False, "chat_template_kwargs": {"enable_thinking": True}}, XHIGH),
])
def test_the_most_explicit_word_about_effort_wins(qwen38, fields, shows):
    text = rendered(qwen38, **fields)
    assert shows in text and text.endswith("assistant\n<think>\n")


@pytest.mark.parametrize("fields", [
    {"reasoning_effort": "none"}, {"enable_thinking": False}, {"thinking": {"type": "disabled"}},
    {"reasoning": {"enabled": False, "effort": "high"}},
    {"reasoning_effort": "high", "enable_thinking": False},
    {"enable_thinking": True, "chat_template_kwargs": {"enable_thinking": False}},
    {"reasoning_effort": "low", "chat_template_kwargs": {"reasoning_effort": "none"}},
])
def test_thinking_switched_off_is_a_closed_block(qwen38, fields):
    text = rendered(qwen38, **fields)
    assert "effort" not in text and text.endswith("assistant\n<think>\n\n</think>\n\n")


def test_earlier_reasoning_is_kept_or_dropped_as_asked(qwen38):
    messages = [ASK, {"role": "assistant", "content": "Pong", "reasoning_content": "tennis"}, ASK]
    assert "tennis" in rendered(qwen38, messages)
    for fields in ({"preserve_thinking": False},
                   {"chat_template_kwargs": {"preserve_thinking": False}},
                   {"preserve_thinking": True,
                    "chat_template_kwargs": {"preserve_thinking": False}}):
        assert "tennis" not in rendered(qwen38, messages, **fields)


def test_wrong_words_for_the_template_are_refused_by_their_field(qwen38):
    assert refused(qwen38, "invalid_value", reasoning_effort="much")["param"] == "reasoning_effort"
    refused(qwen38, "invalid_value", chat_template_kwargs={"reasoning_effort": "ultra"})
    refused(qwen38, "invalid_type", chat_template_kwargs={"enable_thinking": "false"})
    refused(qwen38, "invalid_type", enable_thinking="false")
    for name in ("messages", "tools", "add_generation_prompt", "bos_token", "eos_token"):
        error = refused(qwen38, "invalid_value", chat_template_kwargs={name: 1})
        assert error["param"] == f"chat_template_kwargs.{name}"


def test_what_the_template_needs_and_has_not_is_said(qwen38):
    error = refused(qwen38, "missing_user_message", [{"role": "assistant", "content": "a"}])
    assert error["param"] == "messages"
    wrapped = {"role": "user", "content": "<tool_response>x</tool_response>"}
    assert "No user query" in refused(qwen38, "chat_template_error", [wrapped])["message"]


def test_a_message_is_left_open_when_it_is_continued(qwen38):
    messages = [ASK, {"role": "assistant", "content": "Pong, and then "}]
    text = rendered(qwen38, messages, continue_final_message=True, enable_thinking=False)
    assert text.endswith("<think>\n\n</think>\n\nPong, and then ")


def test_mended_messages_are_named_in_a_header(qwen38):
    call = {"id": "a", "type": "function", "function": {"name": "look", "arguments": "{oops"}}
    messages = [ASK, {"role": "assistant", "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "b", "content": "1"}]
    for path, stream in (("/v1/chat/completions", False), ("/v1/chat/completions", True),
                         ("/apply-template", False)):
        answer = qwen38.post(path, {"messages": messages, "max_tokens": 1, "stream": stream})
        assert answer.status == 200
        assert answer.headers["x-mended"] == "tool_call_arguments,tool_call_id", path
    fine = dict(call, function={"name": "look", "arguments": "{}"})
    messages = [ASK, {"role": "assistant", "tool_calls": [fine]},
                {"role": "tool", "tool_call_id": "a", "content": "1"}]
    answer = qwen38.post("/v1/chat/completions", {"messages": messages, "max_tokens": 1})
    assert answer.status == 200 and "x-mended" not in answer.headers
    refused(qwen38, "invalid_tool_message",
            [ASK, {"role": "tool", "tool_call_id": "a", "content": "1"}])


def test_what_rendering_takes_is_paid_for_and_given_back(start_fake):
    tight = start_fake(model__chat_template=template("qwen3-coder"), http__workers=1,
                  http__buffer="1MiB", http__body="1MiB")
    many = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}] * 700
    for _ in range(5):
        answer = tight.post("/v1/chat/completions", {"messages": many, "max_tokens": 1})
        assert answer.status == 413 and answer.error()["code"] == "request_too_large"
        assert tight.chat(max_tokens=1).status == 200


def test_the_settings_choose_template_effort_and_late_messages(start_fake):
    daemon = start_fake(model__chat_template="builtin:qwen3.8", model__reasoning_effort="low",
                   model__late_system="reject", http__workers=1)
    assert LOW in rendered(daemon) and XHIGH in rendered(daemon, reasoning_effort="high")
    late = [ASK, {"role": "system", "content": "late"}, ASK]
    assert "messages[1]" in refused(daemon, "chat_template_error", late)["message"]
    other = start_fake(model__chat_template=template("qwen3.8"), model__reasoning_effort="none",
                       http__workers=1)
    assert rendered(other, late).count("<|im_start|>system\nlate<|im_end|>") == 1
    assert rendered(other).endswith("<think>\n\n</think>\n\n")
    prints = [one.chat(max_tokens=1).json()["system_fingerprint"] for one in (daemon, other)]
    assert prints[0] != prints[1]


def test_a_checkpoint_brings_its_template_or_gets_one(start_fake, tmp_path_factory):
    plain = start_fake(http__workers=1)
    assert "builtin:qwen3 (the checkpoint has no chat template)" in plain.log()
    model = server.MODELS / "demo"
    for name, files in {
            "own": {"chat_template.jinja": "OWN {{ messages[0].content }}"},
            "config": {"tokenizer_config.json": json.dumps(
                {"eos_token": {"content": "<|im_end|>"},
                 "chat_template": "OWN {{ messages[0].content }}{{ eos_token }}"})},
    }.items():
        folder = tmp_path_factory.mktemp("template") / name
        shutil.copytree(model, folder)
        for file, text in files.items():
            (folder / file).write_text(text)
        said = render_with(folder)
        assert said == "OWN Ping?" + ("<|im_end|>" if name == "config" else "")


def render_with(folder):
    line = json.dumps({"messages": [ASK]})
    done = subprocess.run([server.BUILD / "colizigctl", "render", folder], input=line, text=True,
                          capture_output=True, timeout=30, check=True)
    return json.loads(done.stdout)["rendered"]


def run(*args):
    return subprocess.run([server.BUILD / "colizigd", *map(str, args)], capture_output=True,
                          text=True, timeout=60, check=False)


@pytest.mark.parametrize("text, says", [
    ("a\n{% for %}", "line 2"), ("{% include 'x' %}", "include"),
    ("{{ messages[0].content.nothing() }}", "single question"),
    ("a\n\n{{ '\udcff' }}", "line 3: no valid UTF-8"), ("", "does not show what the user says"),
    ("<!DOCTYPE html><p>not found", "does not show what the user says")])
def test_a_template_that_cannot_run_stops_the_start(tmp_path, text, says):
    model = tmp_path / "model"
    shutil.copytree(server.MODELS / "demo", model)
    (model / "chat_template.jinja").write_bytes(text.encode(errors="surrogateescape"))
    for more in [], ["--check-config"]:
        done = run("--model", model, "--ram", "512MiB", "--set", f"state.dir={tmp_path}/state",
                   "--set", "admin.socket=", "--set", "http.listen=127.0.0.1:0", *more)
        assert done.returncode == 3, done.stderr
        assert says in done.stderr and "chat_template" in done.stderr


def test_a_template_that_is_not_there_is_named(tmp_path):
    for choice, says in ((tmp_path / "no.jinja", "no.jinja"), ("builtin:qwen9", "builtin:qwen3")):
        done = run("--model", server.MODELS / "demo", "--check-config", "--set",
                   f"model.chat_template={choice}")
        assert done.returncode != 0 and says in done.stderr, done.stderr
