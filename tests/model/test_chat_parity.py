"""The trained models against transformers in float32, over 50 conversations each: the same prompt,
the same answer to its end, the same logits."""
import hashlib
import itertools
import json
import math
import subprocess

import numpy as np
import pytest

import ctl
from places import BUILD, GOLDEN, ROOT

MODELS = ROOT / "tests/data/models"
NAMES = ["chat-qwen3-moe", "chat-qwen4-exp"]
TOLERANCE = 1e-4
AT_ONCE = 10  # conversations in one test
# They go round: none of them may change an answer.
WAYS = itertools.cycle([
    {"threads": 1}, {"threads": 2, "prefill_rows": 16}, {"threads": 2, "expert_slots": "min"},
    {"threads": 1, "prefill_rows": 64, "expert_slots": "half"},
    {"threads": 3, "prefill_rows": 5, "expert_slots": "min"}])


class Golden:
    """scripts/oracle/golden_chat.py says what is in there."""

    def __init__(self, name):
        facts = json.loads((GOLDEN / f"{name}.json").read_text("utf-8"))
        self.talks, self.files, self.vocab = facts["conversations"], facts["files"], facts["vocab"]
        raw = np.fromfile(GOLDEN / f"{name}.f32", "<f4")
        parts = {part: raw[at["at"]:at["at"] + math.prod(at["shape"])].reshape(at["shape"])
                 for part, at in facts["parts"].items()}
        first = np.cumsum([0, *(len(talk["tokens"]) for talk in self.talks)])
        for i, talk in enumerate(self.talks):
            mine = slice(first[i], first[i + 1])
            talk["whole"], talk["logsumexp"] = parts["rows"][i], parts["logsumexp"][mine]
            talk["top_ids"], talk["top"] = parts["top_ids"][mine].astype(int), parts["top"][mine]


@pytest.fixture(scope="module")
def golden():
    read = {}

    def of(name):
        if name not in read:
            read[name] = Golden(name)
        return read[name]

    return of


@pytest.mark.parametrize("name", NAMES)
def test_the_goldens_are_of_this_checkpoint_and_of_every_sort_of_talk(golden, name):
    talks = golden(name).talks
    for file, digest in golden(name).files.items():
        assert hashlib.sha256((MODELS / name / file).read_bytes()).hexdigest() == digest, file
    assert len(talks) == 50 and sum(talk["thinking"] for talk in talks) == 25
    assert sum(bool(talk["tools"]) for talk in talks) >= 5
    assert sum(len(talk["messages"]) > 2 for talk in talks) >= 5
    assert min(min(talk["margins"]) for talk in talks) >= 1e-3


def lines_through(command, lines):
    feed = "".join(json.dumps(line) + "\n" for line in lines).encode()
    done = subprocess.run([BUILD / "colizigctl", *map(str, command)], input=feed,
                          capture_output=True, timeout=60, check=True)
    return [json.loads(line) for line in done.stdout.decode().split("\n")[:-1]]


@pytest.mark.parametrize("strict", [True, False], ids=["as it is", "as the daemon takes it"])
@pytest.mark.parametrize("name", NAMES)
def test_prompts_are_those_of_transformers(golden, name, strict):
    talks = golden(name).talks
    rendered = lines_through(
        ["render", MODELS / name, "--jsonl", *(["--strict"] if strict else [])],
        [{"messages": talk["messages"], "tools": talk["tools"],
          "kwargs": {"add_generation_prompt": True, "enable_thinking": talk["thinking"]}}
         for talk in talks])
    ids = lines_through(["tokenize", MODELS / name, "--jsonl"],
                        [{"text": line["rendered"], "special": True} for line in rendered])
    for talk, line in zip(talks, ids, strict=True):
        assert line["ids"] == talk["prompt"], talk["messages"][-1]


def relative(ours, theirs):
    """The largest distance of a row, as a share of the row's length."""
    return float((np.linalg.norm(ours - theirs, axis=-1)
                  / np.linalg.norm(theirs, axis=-1)).max())


def distances(talk, logits):
    """Of the row that is stored whole, and of what is stored of all rows that chose a token."""
    answer = logits[len(talk["prompt"]) - 1:][:len(talk["tokens"])]
    logsumexp = np.logaddexp.reduce(answer.astype(np.float64), axis=1)
    return {"row": relative(logits[talk["row"]], talk["whole"]),
            "top": relative(np.take_along_axis(answer, talk["top_ids"], axis=1), talk["top"]),
            "logsumexp": float(np.abs(logsumexp / talk["logsumexp"] - 1).max())}


@pytest.mark.parametrize("name, first, way", [
    pytest.param(name, first, next(WAYS), id=f"{name}-{first}",
                 marks=[pytest.mark.slow] if first else [])
    for name in NAMES for first in range(0, 50, AT_ONCE)])
def test_answers_and_logits_are_those_of_transformers(golden, name, first, way):
    for talk in golden(name).talks[first:first + AT_ONCE]:
        run = ctl.forward(MODELS / name, talk["prompt"], len(talk["tokens"]), kv_dtype="f32", **way)
        assert run.tokens == talk["tokens"], talk["messages"][-1]
        apart = distances(talk, run.logits)
        assert max(apart.values()) <= TOLERANCE, (apart, talk["messages"][-1])
