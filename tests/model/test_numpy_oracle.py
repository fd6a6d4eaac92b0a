"""The NumPy forward and transformers say the same about the small checkpoints."""
import hashlib

import numpy as np
import pytest

import goldens  # first: it puts the oracle on the path
import numpy_forward

pytestmark = pytest.mark.slow  # nothing of ours in C runs here

# float32 sums in another order: transformers and NumPy were seen 7e-6 apart at most.
TOLERANCE = 2e-5


@pytest.mark.parametrize("name", goldens.OWN)
def test_checkpoint_is_the_one_the_golden_was_made_from(models, name):
    files = {path.name: hashlib.sha256(path.read_bytes()).hexdigest()
             for path in sorted((models / name).iterdir())}
    assert files == goldens.Golden(name).files


@pytest.mark.parametrize("name", sorted(goldens.SAME_AS))
def test_stored_otherwise_the_values_are_the_same(models, name):
    _, here = numpy_forward.load(models / name)
    _, there = numpy_forward.load(models / goldens.SAME_AS[name])
    assert here.keys() == there.keys()
    for tensor, values in here.items():
        assert np.array_equal(values, there[tensor]), tensor


@pytest.mark.parametrize("name", goldens.OWN)
def test_numpy_forward_agrees_with_transformers(models, name):
    golden = goldens.Golden(name)
    logits, tokens = numpy_forward.Model(models / name).greedy(golden.prompt, len(golden.tokens))
    assert tokens == golden.tokens
    assert golden.distance(logits) <= TOLERANCE


@pytest.mark.parametrize("name", goldens.OWN)
def test_greedy_tokens_do_not_hang_on_rounding(name):
    assert min(goldens.Golden(name).margins) >= 1e-3


def test_prompts_cross_page_borders_and_experts_see_none_or_all(models):
    """What the goldens are chosen to cover."""
    golden = goldens.Golden("tiny-fp8")
    assert len(golden.prompt) > 130
    model = numpy_forward.Model(models / "tiny-fp8")
    model.forward(golden.prompt)
    first = model.picks[0]
    seen = [int((first == expert).any(axis=1).sum()) for expert in range(8)]
    assert seen[1] == len(golden.prompt)
    assert seen[2] == 0
