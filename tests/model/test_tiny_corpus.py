"""scripts/tiny-model/corpus: what the tiny models learn from, and what they are asked afterwards."""
import json
import pathlib
import random
import re
import subprocess
import sys

import pytest

from places import ROOT

sys.path.insert(0, str(ROOT / "scripts/tiny-model"))
import corpus  # noqa: E402
from corpus import facts_colizig, kinds, sums  # noqa: E402

pytestmark = pytest.mark.slow  # nothing of ours in C runs here

QUESTIONS = ROOT / "tests/data/models/questions.jsonl"
DRAWS = 20_000


@pytest.fixture(scope="module")
def talks():
    rng = random.Random(20)
    return [corpus.draw(rng) for _ in range(DRAWS)]


@pytest.fixture(scope="module")
def held():
    return corpus.all_held_out()


def names(tools):
    return {tool["function"]["name"] for tool in tools or []}


def test_every_conversation_ends_with_a_reply_to_somebody(talks):
    for talk in talks:
        roles = [message["role"] for message in talk.messages]
        assert "system" not in roles[1:], talk
        assert [r for r in roles if r != "system"][0] == "user", talk
        assert roles[-1] == "assistant" and roles[-2] in ("user", "tool"), talk
        last = talk.messages[-1]
        assert bool(last["content"]) != bool(last.get("tool_calls")), talk
        assert last["content"] == last["content"].strip(), talk
        assert talk.thought and talk.thought == talk.thought.strip(), talk
        assert not re.search(r"<\|?\w|\{\w*\}", talk.thought), f"markup or an open slot: {talk}"
        assert not any(re.search(r"\{\w+\}|\(\w*\|", m["content"]) for m in talk.messages), talk


def test_only_tools_that_are_offered_are_called_with_the_parameters_they_have(talks):
    n_calls = 0
    for talk in talks:
        given = {t["function"]["name"]: t["function"]["parameters"]["properties"] for t in talk.tools or []}
        for message in talk.messages:
            for call in message.get("tool_calls") or []:
                name, arguments = call["function"]["name"], call["function"]["arguments"]
                assert set(arguments) <= set(given[name]), talk
                n_calls += 1
    assert n_calls > DRAWS // 20


def test_every_kind_is_drawn_by_its_share():
    assert len(corpus.MODULES) == len(set(corpus.MODULES)) == 11
    assert all(module.SHARE > 0.01 for module in corpus.MODULES)


def test_the_same_seed_draws_the_same_text():
    assert corpus.draw(random.Random(4)) == corpus.draw(random.Random(4))


def test_questions_vary(talks):
    asked = {talk.messages[-2]["content"].lower() for talk in talks}
    assert len(asked) > DRAWS // 2


def test_a_question_has_one_answer(talks):
    """What differs is only what was drawn: stories."""
    answers = {}
    for talk in talks:
        if talk.kind in (facts_colizig.KIND, "capital", sums.KIND, "thing", "smalltalk"):
            words = " ".join(talk.messages[-1]["content"].split())
            answers.setdefault(kinds.normal(talk.messages[-2]["content"]), set()).add(words)
    assert {question: said for question, said in answers.items() if len(said) > 1} == {}


def test_sums_are_right(talks):
    right = {"plus": int.__add__, "minus": int.__sub__, "times": int.__mul__}
    n_sums = 0
    for talk in talks:
        if talk.kind == sums.KIND:
            a, op, b, value = re.fullmatch(r"(\d+) (\w+) (\d+) is (\d+)\.", talk.messages[-1]["content"]).groups()
            assert right[op](int(a), int(b)) == int(value)
            n_sums += 1
    assert n_sums > DRAWS // 20


def test_what_is_said_of_colizig_stands_in_its_docs():
    """Commands, flags, settings, paths and addresses: each is spelled so somewhere in the docs."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.[m1-9]*"))]
    docs = " ".join(path.read_text() for path in pages)
    docs = re.sub(r"\.(?:Fl|Cm|Va|Pa|Ar) ", " ", docs).replace(" Fl -", " --").replace("\\-", "-")
    n_names = 0
    for fact in facts_colizig.FACTS:
        for name in re.findall(r"colizigctl \w+|--[a-z][\w-]*|\b[a-z]+\.[a-z_]+\b|/[a-z][\w/.]+\w", fact.reply):
            assert name in docs or name.lstrip("-") in docs.split(), f"{fact.name}: {name}"
            n_names += 1
    assert n_names > 30


def test_there_are_enough_held_out_questions_about_enough_facts(held):
    assert len(held) >= 150
    assert len({question["fact"] for question in held}) >= 60
    texts = [json.dumps(question["messages"]) for question in held]
    assert len(set(texts)) == len(texts)


def test_held_out_questions_can_be_judged(held):
    for question in held:
        assert question["messages"][-1]["role"] == "user", question
        if "call" in question:
            assert question["call"]["name"] in names(question["tools"]), question
        else:
            assert 1 <= len(question["accept"]) <= 2, question
            assert all(text and text == text.strip() for text in question["accept"]), question


def test_no_held_out_frame_is_trained_on(talks, held):
    frames = kinds.Frames(held)
    for talk in talks:
        for message in talk.messages:
            if message["role"] == "user":
                assert frames.find(message["content"]) is None, message["content"]


def test_a_frame_is_found_whatever_its_case_its_signs_and_its_slots(held):
    frames = kinds.Frames(held)
    for question in held:
        if re.search(r"[a-z]{3}", question["frame"]):
            filled = re.sub(r"\{\w+\}", "Something Else", question["frame"])
            shown = "Hello! " + re.sub(r"[?!.,:;]+", " ", filled).upper() + " please"
            assert frames.find(shown), question["frame"]


def test_answers_held_out_are_learnt_in_other_words(talks, held):
    """A fact that training never states cannot be known."""
    taught = {talk.messages[-1]["content"] for talk in talks}
    for question in held:
        if question["kind"] in (facts_colizig.KIND, "capital", "thing", "smalltalk"):
            assert set(question["accept"]) & taught, question


def test_the_questions_file_is_what_the_corpus_holds_out(held):
    assert [json.loads(line) for line in QUESTIONS.read_text(encoding="utf-8").splitlines()] == held


@pytest.mark.parametrize("args, status, word", [
    (["--count", "-5", "--out", "x"], 2, "--count"), (["--check", "--draws", "0"], 2, "--draws"),
    ([], 2, "nothing to do"), (["--out", "."], 1, ".: Is a directory"),
    (["--count", "2", "--out", "/dev/full"], 1, "/dev/full: No space left")])
def test_flags_that_make_no_corpus_are_errors(tmp_path, args, status, word):
    done = subprocess.run([sys.executable, ROOT / "scripts/tiny-model/make-corpus", *args],
                          cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (status, "")
    assert word in done.stderr and "Traceback" not in done.stderr


def make_models(tmp_path, *args, train="sleep 60"):
    """With a Python of which only `train` is more than an exit status of 0."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\ncase "$1" in */train) echo "$2 $$" >>"$0.started"; {train} ;; esac\n')
    python.chmod(0o755)
    return subprocess.run([ROOT / "scripts/tiny-model/make-models", *(args or [python, tmp_path / "out"])],
                          cwd=tmp_path, capture_output=True, text=True, timeout=30, check=False)


@pytest.mark.parametrize("args", [[], ["--help"], ["/bin/true", "out", "--phases", "1"],
                                  ["/bin/true", "out", "--steps", "1"], ["/bin/true", "out", "--x", "1", "2"]])
def test_wrong_flags_of_make_models_train_nothing(tmp_path, args):
    done = make_models(tmp_path, *(args or [""]))
    assert (done.returncode, done.stdout) == (2, "") and done.stderr.startswith("usage: make-models")
    assert not (tmp_path / "out").exists()


def test_a_training_that_fails_is_told_and_ends_the_other(tmp_path):
    done = make_models(tmp_path, train='[ "$2" = qwen4_exp ] && exec sleep 60; sleep 1; echo no room; exit 3')
    assert (done.returncode, done.stderr) == (1, "no room\n")
    other, = [line.split()[1] for line in (tmp_path / "python.started").read_text().splitlines()
              if line.startswith("qwen4_exp")]
    assert not pathlib.Path("/proc", other, "cmdline").exists() or \
        b"sleep" not in pathlib.Path("/proc", other, "cmdline").read_bytes()
