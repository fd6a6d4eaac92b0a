"""The engine's Qwen4-Exp against transformers in float32, and against itself: an answer depends on
the request alone, not on threads, chunks, caches or how the checkpoint was saved."""
import numpy as np
import pytest

import ctl
import goldens4
import test_forward

TOLERANCE = 1e-4
# Of a prompt of 140 tokens: in one piece, one by one, across blocks and across convolutions.
CHUNKS = [1, 3, 5, 64, 65, 512]


@pytest.fixture(scope="module")
def first(models):
    """name -> (golden, run), each once."""
    runs = {}

    def of(name):
        if name not in runs:
            golden = goldens4.Golden(name)
            runs[name] = golden, ctl.forward(models / name, golden.prompt, len(golden.tokens),
                                             kv_dtype="f32")
        return runs[name]

    return of


@pytest.mark.parametrize("name", [
    name if name == "tiny4-odd" else pytest.param(name, marks=pytest.mark.slow)
    for name in [*goldens4.OWN, *goldens4.SAME_AS]])
def test_logits_and_greedy_tokens_are_those_of_transformers(first, name):
    golden, run = first(name)
    assert run.tokens == golden.tokens
    distance = golden.distance(run.logits)
    assert distance <= TOLERANCE, f"logits are {distance:.2e} from the reference"


@pytest.mark.slow
@pytest.mark.parametrize("kernels", test_forward.CLASSES)
def test_every_class_of_kernels_agrees(models, kernels):
    golden = goldens4.Golden("tiny4-fp8")
    run = ctl.forward(models / "tiny4-fp8", golden.prompt, len(golden.tokens), kv_dtype="f32",
                      kernels=kernels)
    assert run.tokens == golden.tokens
    assert golden.distance(run.logits) <= TOLERANCE


@pytest.mark.slow
@pytest.mark.parametrize("options", [
    *({"prefill_rows": rows} for rows in CHUNKS), {"threads": 1}, {"threads": 3},
    {"expert_slots": "min"}, {"expert_slots": "half"}, {"sequences": 1},
    {"prefill_rows": 7, "threads": 2, "expert_slots": "min"}],
    ids=lambda options: ",".join(f"{key}={value}" for key, value in options.items()))
@pytest.mark.parametrize("name", ["tiny4-fp8", "tiny4-odd"])
def test_bits_depend_on_the_request_alone(models, first, name, options):
    golden, run = first(name)
    other = ctl.forward(models / name, golden.prompt, len(golden.tokens), kv_dtype="f32", **options)
    assert other.tokens == run.tokens
    assert np.array_equal(other.logits.view(np.uint32), run.logits.view(np.uint32))


def test_keys_and_values_may_be_bfloat16(models, first):
    golden, run = first("tiny4-fp8")
    rounded = ctl.forward(models / "tiny4-fp8", golden.prompt, len(golden.tokens))
    n = len(golden.prompt)
    distance = np.linalg.norm(rounded.logits[:n] - run.logits[:n]) / np.linalg.norm(run.logits[:n])
    assert 0 < distance < 0.1


def test_time_is_told_by_what_it_went_into(first):
    _, run = first("tiny4-fp8")
    stats = run.facts["stats"]
    for kind in ("prefill", "decode"):
        phases = stats[f"{kind}_phase_ns"]
        assert phases.pop("attention") == 0  # of another family
        assert set(phases) == {"embed", "gdn", "qsa", "residual", "ple", "moe", "head"}
        assert all(phases.values()), phases
        assert stats[f"{kind}_ns"] / 2 < sum(phases.values()) <= stats[f"{kind}_ns"]
