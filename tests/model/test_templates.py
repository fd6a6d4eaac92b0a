"""Chat templates against Jinja2: the released ones byte for byte, broken and made-up ones alike."""
import json
import random
import re
import subprocess
import warnings

import pytest

import reference_jinja
from places import BUILD, ROOT, SANITIZED
from template_grammar import Grammar, TOKEN, VARIABLES, mutated

CHAT = ROOT / "tests/data/chat"
# What has no spelling but Python's own, often with an address in it: refused here.
PYTHON_OBJECT = re.compile(r" at 0x[0-9a-f]+>|dict_\w+\(")
# Templates of chance to try; what a sanitizer watches starts a third as many processes.
N_MUTATED, N_MADE = (70, 100) if SANITIZED else (200, 300)
RELEASED = sorted(path.stem for path in CHAT.glob("*.jinja"))


def records(name):
    return [json.loads(line) for line in (CHAT / f"{name}.jsonl").read_text().split("\n") if line]


def render(path, lines, strict=True):
    """What colizigctl answers to each line; a template that does not open is one error for all."""
    feed = "".join(json.dumps(line) + "\n" for line in lines).encode()
    flags = ["--strict"] if strict else []
    done = subprocess.run([BUILD / "colizigctl", "render", "--template", path, "--jsonl", *flags],
                          input=feed, capture_output=True, timeout=60, check=False)
    assert done.returncode >= 0 and b"Sanitizer" not in done.stderr, done.stderr
    if done.returncode:
        return [{"error": done.stderr.decode()}] * len(lines)
    answers = [json.loads(line) for line in done.stdout.decode().split("\n")[:-1]]
    assert len(answers) == len(lines)
    return answers


def same(want, got):
    return ("error" in want) == ("error" in got) and want.get("rendered") == got.get("rendered")


@pytest.mark.parametrize("name", RELEASED)
def test_released_templates_render_as_transformers_renders_them(name):
    wanted = records(name)
    for want, got in zip(wanted, render(CHAT / f"{name}.jinja", wanted), strict=True):
        assert same(want, got), (want["name"], want, got)


def test_mutated_templates_render_or_fail_as_jinja2_does(tmp_path):
    rng, env = random.Random(20), reference_jinja.environment()
    sources = {name: (CHAT / f"{name}.jinja").read_text() for name in RELEASED}
    pool = sorted({token for source in sources.values() for token in TOKEN.findall(source)}
                  | {"~", "//", "%", "<=", "loop.index", "none", "-1", "[1,2]", "{}", "()", "|list",
                     "|first", "|int", "|sort", "[::2]", "[1:]", "|reverse", "{% break %}",
                     "{# c #}", "{%- endif %}", "{%- else %}", "{% set x = 1 %}", "+}"})
    everything = [record for name in RELEASED for record in records(name)]
    rendered = 0
    for _ in range(N_MUTATED):
        path = tmp_path / "mutated.jinja"
        path.write_text(mutated(sources[rng.choice(RELEASED)], rng, pool))
        lines = [{key: record.get(key) for key in ("messages", "tools", "kwargs")}
                 for record in rng.sample(everything, 4)]
        wanted = reference_jinja.render(env, path.read_text(), lines)
        for line, want, got in zip(lines, wanted, render(path, lines), strict=True):
            assert same(want, got), (path.read_text(), line, want, got)
            rendered += "rendered" in want
    assert rendered > N_MUTATED / 2


@pytest.mark.parametrize("seed", [1, 2])
def test_made_up_templates_render_or_fail_as_jinja2_does(tmp_path, seed):
    warnings.simplefilter("ignore", SyntaxWarning)
    grammar, env = Grammar(seed), reference_jinja.environment()
    rendered = refused = 0
    for _ in range(N_MADE):
        path = tmp_path / "made.jinja"
        path.write_text(grammar.template())
        line = {"kwargs": VARIABLES}
        want = reference_jinja.render(env, path.read_text(), [line])[0]
        got = render(path, [line])[0]
        if PYTHON_OBJECT.search(want.get("rendered", "")) or "is not built" in got.get("error", ""):
            assert "error" in got, (path.read_text(), want, got)
            refused += 1
            continue
        assert same(want, got), (path.read_text(), want, got)
        rendered += "rendered" in want
    assert rendered > N_MADE / 6 and refused < N_MADE / 20


# ---- as the daemon takes messages ----

BUILTIN = {"qwen3-hybrid": "builtin:qwen3", "qwen3-hybrid-2025-04": "builtin:qwen3",
           "qwen3-coder": "builtin:qwen3-coder", "qwen3.8": "builtin:qwen3.8"}
# What the API refuses or understands otherwise than the template alone: roles that nobody has, a
# result before any call, null for a switch.
NOT_CLEAN = {"unknown_role", "tool_first", "think_null"}


def with_ids(record):
    """The API wants each result to name its call; recorded ones are in order and name none."""
    messages, waiting = [], []
    for i, message in enumerate(record["messages"]):
        message = dict(message)
        if message.get("tool_calls"):
            message["tool_calls"] = [dict(call, id=f"call_{i}_{k}")
                                     for k, call in enumerate(message["tool_calls"])]
            waiting = [call["id"] for call in message["tool_calls"]]
        if message.get("role") == "tool":
            message["tool_call_id"] = waiting.pop(0) if waiting else "call_none"
        messages.append(message)
    return dict(record, messages=messages)


def is_clean(record):
    """Whether the record is what the API's clients should send, and the template takes it."""
    if "rendered" not in record or record["name"] in NOT_CLEAN:
        return False
    messages = record["messages"]
    arguments = [call.get("function", call).get("arguments") for message in messages
                 for call in message.get("tool_calls") or []]
    # The API joins parts, and reads arguments; a template may do either in a way of its own.
    return (all(isinstance(message.get("content"), str) or message["role"] == "assistant" and
                not isinstance(message.get("content"), list) for message in messages) and
            all(isinstance(one, dict) for one in arguments) and
            not any("</think>" in (message.get("content") or "") and
                    record["template"] == "qwen3.8" for message in messages))


@pytest.mark.parametrize("name", RELEASED)
def test_clean_conversations_are_rendered_as_without_mending(name):
    wanted = [with_ids(record) for record in records(name) if is_clean(record)]
    assert len(wanted) >= 50
    renderers = [CHAT / f"{name}.jinja", *([BUILTIN[name]] if name in BUILTIN else [])]
    for renderer in renderers:
        for want, got in zip(wanted, render(renderer, wanted, strict=False), strict=True):
            assert got == {"rendered": want["rendered"]}, (renderer, want["name"])


def said(role, content, **more):
    return {"role": role, "content": content, **more}


def call(arguments="{}", name="get_temp", **more):
    function = {"name": name} if arguments is None else {"name": name, "arguments": arguments}
    return {"type": "function", "function": function, **more}


def caller(*calls, **more):
    return said("assistant", "", tool_calls=list(calls), **more)


TOOLS = [{"type": "function", "function": {
    "name": "get_temp", "description": "Read a sensor", "parameters": {
        "type": "object", "properties": {"room": {"type": "string", "default": None,
                                                  "maximum": 123456789012345678901}}}}}]
ASK = said("user", "How warm is it?")
A, B = call({"room": "a"}, id="A"), call({"room": "b"}, id="B")

# (what clients send, what it means)
DIRTY = {
    "parts": ([said("user", [{"type": "text", "text": "How "}, {"type": "text", "text": "warm?"}])],
              [said("user", "How warm?")]),
    "one part": ([said("user", [{"type": "text", "text": "hi"}])], [said("user", "hi")]),
    "null content": ([ASK, {"role": "assistant", "content": None}, ASK],
                     [ASK, said("assistant", ""), ASK]),
    "no content": ([ASK, {"role": "assistant"}, ASK], [ASK, said("assistant", ""), ASK]),
    "refusal": ([ASK, said("assistant", [{"type": "refusal", "refusal": "no"}])],
                [ASK, said("assistant", "no")]),
    "developer": ([said("developer", "Be short."), ASK], [said("system", "Be short."), ASK]),
    "arguments as text": ([ASK, caller(call('{"room":"attic","n":1.50}'))],
                          [ASK, caller(call({"room": "attic", "n": 1.5}))]),
    "no arguments": ([ASK, caller(call(None), call(""), call("null"))],
                     [ASK, caller(call({}), call({}), call({}))]),
    "broken arguments": ([ASK, caller(call('{"room": '))],
                         [ASK, caller(call({"_raw": '{"room": '}))]),
    "long numbers": ([ASK, caller(call('{"n": 123456789012345678901234567890}'))],
                     [ASK, caller(call({"n": 123456789012345678901234567890}))]),
    "a call without its wrapping": ([ASK, caller({"name": "f", "arguments": "{}"})],
                                    [ASK, caller(call({}, "f"))]),
    "function": ([ASK, {"role": "assistant", "content": None,
                        "function_call": {"name": "f", "arguments": "{}"}},
                  said("function", "21", name="f")],
                 [ASK, caller(call({}, "f")), said("tool", "21")]),
    "results out of order": ([ASK, caller(A, B), said("tool", "2", tool_call_id="B"),
                              said("tool", "1", tool_call_id="A")],
                             [ASK, caller(A, B), said("tool", "1"), said("tool", "2")]),
    "an unknown result": ([ASK, caller(A, B), said("tool", "2", tool_call_id="B"),
                           said("tool", "?", tool_call_id="C"),
                           said("tool", "1", tool_call_id="A")],
                          [ASK, caller(A, B), said("tool", "1"), said("tool", "?"),
                           said("tool", "2")]),
    "reasoning": ([ASK, said("assistant", "a", reasoning="why")],
                  [ASK, said("assistant", "a", reasoning_content="why")]),
    "thinking parts": ([ASK, said("assistant", [{"type": "thinking", "thinking": "w"},
                                                {"type": "reasoning", "text": "hy"},
                                                {"type": "text", "text": "a"}])],
                       [ASK, said("assistant", "a", reasoning_content="why")]),
}


@pytest.mark.parametrize("name", RELEASED)
def test_what_clients_send_is_rendered_as_what_it_means(name):
    template = CHAT / f"{name}.jinja"
    kwargs = {"add_generation_prompt": True}
    sent = [{"messages": a, "tools": TOOLS, "kwargs": kwargs} for a, _ in DIRTY.values()]
    meant = [{"messages": b, "tools": TOOLS, "kwargs": kwargs} for _, b in DIRTY.values()]
    wanted = render(template, meant)
    for renderer in [template, *([BUILTIN[name]] if name in BUILTIN else [])]:
        for case, want, got in zip(DIRTY, wanted, render(renderer, sent, strict=False),
                                   strict=True):
            assert "rendered" in want and got == want, (case, renderer)


@pytest.mark.parametrize("name", RELEASED)
def test_system_messages_stand_where_they_can(name):
    template = CHAT / f"{name}.jinja"
    rules, more = said("system", "Rules."), said("system", "More.")
    two, late = render(template, [{"messages": m} for m in
                                  ([rules, more, ASK], [rules, ASK, more, ASK])], strict=False)
    if name == "qwen3.8":
        [want] = render(template, [{"messages": [said("system", "Rules.\n\nMore."), ASK]}])
        assert two == want
    else:
        [want] = render(template, [{"messages": [rules, more, ASK]}])
        assert two == want
    turn = "<|im_start|>user\nHow warm is it?<|im_end|>\n"
    assert late["rendered"].endswith(turn + "<|im_start|>system\nMore.<|im_end|>\n" + turn)


@pytest.mark.parametrize("name", RELEASED)
def test_reasoning_inside_the_text_is_split_where_the_template_shows_reasoning(name):
    template = CHAT / f"{name}.jinja"
    inside = [ASK, said("assistant", "<think>\nwhy\n</think>\n\nbecause")]
    apart = [ASK, said("assistant", "because", reasoning_content="why")]
    [got] = render(template, [{"messages": inside}], strict=False)
    shows = not ("coder" in name or "instruct" in name)
    [want] = render(template, [{"messages": apart if shows else inside}])
    assert got == want


def test_a_conversation_that_cannot_be_taken_says_why():
    lines = [{"messages": [said("user", [{"type": "image_url", "image_url": {}}])]},
             {"messages": [said("tool", "x", tool_call_id="a")]},
             {"messages": [ASK], "kwargs": {"messages": []}}, {"messages": []}, {}]
    words = ["image_url", "tool_calls", "chat_template_kwargs.messages", "empty", "missing"]
    for word, got in zip(words, render("builtin:qwen3", lines, strict=False), strict=True):
        assert word in got["error"]
