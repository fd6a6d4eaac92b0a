"""Qwen4-Exp: the NumPy forward and transformers say the same about the small checkpoints, whole and
sub-layer by sub-layer, and between them they take every branch."""
import hashlib

import numpy as np
import pytest

import goldens4  # first: it puts the oracle on the path
import numpy_qwen4
from checkpoint.tokenizer import Tokenizer
from places import ROOT

pytestmark = pytest.mark.slow  # nothing of ours in C runs here

# float32 sums in another order: transformers and NumPy were seen 3e-6 apart at most.
TOLERANCE = 2e-5

RELEASED = {"vocab_size": 248320, "ngram_size": 3, "heads_per_ngram": 8, "eos_token_id": 248044,
            "ngram_vocab_size_base": 20000000}


def far(ours, theirs):
    """Largest distance of a row, by the size of the row."""
    return float((np.linalg.norm(ours - theirs, axis=-1)
                  / np.maximum(np.linalg.norm(theirs, axis=-1), 1e-6)).max())


@pytest.fixture(scope="module", params=goldens4.OWN)
def run(request, models):
    """(golden, model after all of prompt and answer at once, its logits)"""
    golden = goldens4.Golden(request.param)
    model = numpy_qwen4.Model(models / request.param)
    logits = model.forward(golden.prompt + golden.tokens[:-1])
    return golden, model, logits


@pytest.mark.parametrize("name", goldens4.OWN)
def test_checkpoint_is_the_one_the_golden_was_made_from(models, name):
    files = {path.name: hashlib.sha256(path.read_bytes()).hexdigest()
             for path in sorted((models / name).iterdir())}
    assert files == goldens4.Golden(name).files


@pytest.mark.parametrize("name", sorted(goldens4.SAME_AS))
def test_stored_otherwise_the_values_are_the_same(models, name):
    text, here = numpy_qwen4.load(models / name)
    _, there = numpy_qwen4.load(models / goldens4.SAME_AS[name])
    assert here.keys() == there.keys()
    for tensor, values in here.items():
        assert np.array_equal(values, there[tensor]), tensor


def test_logits_and_greedy_tokens_are_those_of_transformers(run):
    golden, _, logits = run
    assert golden.distance(logits) <= TOLERANCE
    assert logits[len(golden.prompt) - 1:].argmax(axis=1).tolist() == golden.tokens
    assert len(golden.tokens) == 64 and len(golden.prompt) >= 130


def test_streams_after_each_layer_are_those_of_transformers(run):
    golden, model, _ = run
    for layer, streams in enumerate(model.streams):
        assert far(streams[golden.stream_rows], golden.streams[layer]) <= TOLERANCE, layer


def test_token_by_token_is_the_same_as_all_at_once(models):
    """What is kept between calls is all that matters."""
    model = numpy_qwen4.Model(models / "tiny4-odd")
    prompt = goldens4.Golden("tiny4-odd").prompt[:40]
    whole = model.forward(prompt)
    model.reset()
    pieces = [prompt[:7], prompt[7:8], prompt[8:9], prompt[9:31], *([t] for t in prompt[31:])]
    assert far(np.concatenate([model.forward(piece) for piece in pieces]), whole) <= TOLERANCE


@pytest.mark.parametrize("name", ["tiny4-fp8", "tiny4-odd"])
def test_sub_layers_are_those_of_transformers(models, name):
    golden, model = goldens4.Golden(name), numpy_qwen4.Model(models / name)
    model.dumps = {}
    model.forward(golden.prompt[:40])
    kinds = {part.rstrip("0123456789") for part, _ in
             (name.split(".") for name in golden.parts)}
    assert kinds == {"residual", "gdn", "ple", "qsa", "index", "moe"}
    for part, theirs in golden.parts.items():
        ours = model.dumps[part].reshape(theirs.shape)
        if part.endswith((".visible", ".chosen", ".embedded")):
            assert np.array_equal(ours, theirs), part
        else:
            assert far(ours, theirs) <= TOLERANCE, part


@pytest.mark.parametrize("name", goldens4.OWN)
def test_no_choice_hangs_on_rounding(name):
    golden = goldens4.Golden(name)
    assert min(golden.margins) >= 1e-3
    assert golden.index_gap >= 2e-5


def test_every_branch_is_taken(run):
    golden, model, _ = run
    config, seen = model.config, model.seen
    ratio = config["indexer_compress_ratio"]
    sparse_layers = config["layer_types"].count("full_attention") or 2
    assert seen["dense"] == sparse_layers * (config["indexer_budget"] + ratio - 1)
    assert seen["sparse"] > 300
    assert seen["tails"] == set(range(ratio))
    assert seen["self_refused"] > 50  # the token's own block was not among the best
    assert seen["table"] == set(range(config["split_ngram_parts"]))
    ends = [at for at, token in enumerate(golden.prompt) if token == config["eos_token_id"]]
    assert 0 in ends and {77, 78} <= set(ends)
    assert config["linear_num_value_heads"] > config["linear_num_key_heads"]
    assert config["linear_key_head_dim"] != config["linear_value_head_dim"]
    assert config["moe_intermediate_size"] != config["shared_expert_intermediate_size"] or \
        config["num_experts"] == 8
    assert config["ple_embed_dim"] != config["hidden_size"]


def test_both_ways_to_weigh_and_both_gates_are_there(models):
    configs = [numpy_qwen4.load(models / name)[0] for name in goldens4.OWN]
    assert {config.get("norm_topk_prob", True) for config in configs} == {True, False}
    assert {config.get("output_gate_type") for config in configs} == {"sigmoid", "silu", None}
    assert {config.get("seed") for config in configs} == {None}


def test_demo_says_words_and_does_not_go_in_circles(models):
    words = Tokenizer(442)
    model = numpy_qwen4.Model(models / "demo4")
    assert (models / "demo4/chat_template.jinja").read_text() == (
        ROOT / "tests/data/chat/qwen3.8.jinja").read_text()
    for text in ("Hello! Who are you?", "x"):
        model.reset()
        _, tokens = model.greedy(words.encode(text), 64)
        runs = {tuple(tokens[i:i + 5]) for i in range(60)}
        assert len(runs) > 50 and max(tokens) < words.n_plain, words.decode(tokens)
        assert model.seen["sparse"] == 0  # its budget is 256 tokens


# ---- which rows n-grams ask for ----

def test_hash_constants_are_those_of_the_release():
    table = numpy_qwen4.Table(RELEASED, None, "", 0)
    assert table.multipliers == [23703573157769, 20109073645365, 8052911324071]
    assert [size - 20000000 for size in table.sizes] == [
        3, 23, 33, 47, 59, 63, 69, 77, 81, 93, 107, 147, 153, 159, 161, 171]
    assert table.offsets[-1] == 300001275 and sum(table.sizes) == 320001446
    small = numpy_qwen4.Table({**RELEASED, "vocab_size": 512, "heads_per_ngram": 4,
                               "ngram_vocab_size_base": 50}, None, "", 0)
    assert small.multipliers == [4295158889763781, 17440218147737327, 1270917961434445]
    assert small.sizes == [53, 59, 61, 67, 71, 73, 79, 83]


@pytest.mark.parametrize("tokens, first, last", [
    ([1000], 1876085, 304819575),
    ([1000, 2000], 19790471, 315915558),
    ([1000, 2000, 3000], 17238551, 302034413),
    ([1000, 248044, 3000], 19767871, 309053089),
    ([1000, 2000, 248044], 12363941, 312608470),
])
def test_rows_are_those_of_the_reference(tokens, first, last):
    ids = numpy_qwen4.Table(RELEASED, None, "", 0).ids(tokens, len(tokens) - 1)
    assert (ids[0], ids[-1], len(ids)) == (first, last, 16)
