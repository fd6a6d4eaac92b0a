"""Chat templates against Jinja2: the released ones byte for byte, broken and made-up ones alike."""
import json
import random
import re
import subprocess
import warnings

import pytest

import reference_jinja
from places import BUILD, ROOT
from template_grammar import Grammar, TOKEN, VARIABLES, mutated

CHAT = ROOT / "tests/data/chat"
# What has no spelling but Python's own, often with an address in it: refused here.
PYTHON_OBJECT = re.compile(r" at 0x[0-9a-f]+>|dict_\w+\(")
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
    for _ in range(200):
        path = tmp_path / "mutated.jinja"
        path.write_text(mutated(sources[rng.choice(RELEASED)], rng, pool))
        lines = [{key: record.get(key) for key in ("messages", "tools", "kwargs")}
                 for record in rng.sample(everything, 4)]
        wanted = reference_jinja.render(env, path.read_text(), lines)
        for line, want, got in zip(lines, wanted, render(path, lines), strict=True):
            assert same(want, got), (path.read_text(), line, want, got)
            rendered += "rendered" in want
    assert rendered > 100


@pytest.mark.parametrize("seed", [1, 2])
def test_made_up_templates_render_or_fail_as_jinja2_does(tmp_path, seed):
    warnings.simplefilter("ignore", SyntaxWarning)
    grammar, env = Grammar(seed), reference_jinja.environment()
    rendered = refused = 0
    for _ in range(300):
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
    assert rendered > 50 and refused < 15
