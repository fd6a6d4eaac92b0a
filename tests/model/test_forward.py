"""The engine against transformers in float32, and against itself: an answer depends on the
request alone, not on threads, chunks or cache."""
import itertools

import numpy as np
import pytest

import ctl
import goldens

# float32 sums in another order leave 4e-6 at most (seen with every class of kernels); an error of
# form, such as a wrong epsilon, leaves 1e-3 and more.
TOLERANCE = 1e-4

NEEDS = {
    "scalar": set(),
    "avx2": {"avx2", "fma", "f16c"},
    "avx512": {"avx512f", "avx512bw", "avx512vl", "avx512dq"},
}


def cpu_flags():
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as cpuinfo:
        for line in cpuinfo:
            if line.startswith("flags"):
                return set(line.split(":", 1)[1].split())
    return set()


CLASSES = [name for name, flags in NEEDS.items() if flags <= cpu_flags()]


def needs(name):
    missing = NEEDS[name] - cpu_flags()
    if missing:
        pytest.skip(f"this CPU lacks {', '.join(sorted(missing))}: {name} kernels are not tested")


def test_this_cpu_has_avx2():
    needs("avx2")
    assert "avx2" in CLASSES


def test_this_cpu_has_avx512():
    needs("avx512")
    assert "avx512" in CLASSES


def golden_run(models, name, **options):
    golden = goldens.Golden(name)
    return golden, ctl.forward(models / name, golden.prompt, len(golden.tokens), kv_dtype="f32",
                               **options)


def assert_agrees(golden, run):
    assert run.tokens == golden.tokens
    distance = golden.distance(run.logits)
    assert distance <= TOLERANCE, f"logits are {distance:.2e} from the reference"


# Every model with every class of kernels; chunks, threads and slots go round, so that each is
# also met by models that the tests below do not visit.
ROUND = itertools.cycle([
    {"threads": 1}, {"threads": 2, "prefill_rows": 16}, {"threads": 2, "expert_slots": "min"},
    {"threads": 1, "prefill_rows": 64, "expert_slots": "half"},
    {"threads": 3, "prefill_rows": 5, "expert_slots": "min"},
])
# What scalar kernels do to memory is seen with this one alone when a sanitizer slows everything.
UNDER_SANITIZERS = {"tiny-i192"}


def case(kernels, name):
    slow = (kernels == "scalar" and name not in UNDER_SANITIZERS
            or (kernels, name) == ("avx2", "demo"))
    return pytest.param(kernels, name, next(ROUND), id=f"{kernels}-{name}",
                        marks=[pytest.mark.slow] if slow else [])


@pytest.mark.parametrize("kernels, name, options", [
    case(kernels, name) for kernels in CLASSES for name in goldens.OWN])
def test_logits_and_greedy_tokens_are_those_of_transformers(models, kernels, name, options):
    golden, run = golden_run(models, name, kernels=kernels, **options)
    assert run.facts["stats"]["kernels"] == kernels
    assert_agrees(golden, run)


def test_log_probabilities_are_those_of_transformers(models):
    golden, run = golden_run(models, "tiny-fp8", logprobs=5)
    assert run.tokens == golden.tokens and len(run.facts["logprobs"]) == len(golden.tokens)
    first, seen = len(golden.prompt) - 1, 0
    for row, logits in zip(golden.rows, golden.logits.astype(np.float64)):
        if row < first or row - first >= len(golden.tokens):
            continue
        seen += 1
        told = run.facts["logprobs"][row - first]
        # One logit is off by the distance of its row at most, and the sum's logarithm likewise.
        tolerance = 2 * TOLERANCE * np.linalg.norm(logits) + 1e-6
        logprobs = logits - np.logaddexp.reduce(logits)
        assert abs(told["logprob"] - logprobs[golden.tokens[row - first]]) <= tolerance
        assert len(told["top"]) == 5
        assert told["top"][0] == [golden.tokens[row - first], told["logprob"]]
        best = np.sort(logprobs)[::-1][:5]
        for (token, logprob), other in zip(told["top"], best):
            assert abs(logprob - logprobs[token]) <= tolerance
            assert abs(logprob - other) <= tolerance
    assert seen >= 3


@pytest.mark.parametrize("name", sorted(goldens.SAME_AS))
def test_storage_does_not_change_the_answer(models, name):
    assert_agrees(*golden_run(models, name))


# ---- the same bits ----

# Together they visit threads 1 to 5, chunks of 1, 7, 64 and all, and slots at the minimum, half
# and all; each differs from the first in every respect, so one difference anywhere is seen.
SAME_BITS = [
    {"threads": 2, "prefill_rows": 7, "expert_slots": "min"},
    {"threads": 3, "prefill_rows": 64, "expert_slots": "half"},
    {"threads": 4, "prefill_rows": 1, "expert_slots": "min"},
    {"threads": 5, "prefill_rows": 7, "expert_slots": "half"},
]
PLAIN = {"threads": 1, "prefill_rows": 512, "expert_slots": "all"}
STEPS = 12


def assert_same_bits(models, name, kv_dtype, kernels, variations):
    prompt = goldens.Golden(name).prompt
    plain = ctl.forward(models / name, prompt, STEPS, kernels=kernels, kv_dtype=kv_dtype, **PLAIN)
    assert np.isfinite(plain.logits).all()
    assert plain.facts["stats"]["expert_evictions"] == 0
    for options in variations:
        run = ctl.forward(models / name, prompt, STEPS, kernels=kernels, kv_dtype=kv_dtype,
                          **options)
        assert run.tokens == plain.tokens, options
        differ = np.flatnonzero((run.logits.view("<u4") != plain.logits.view("<u4")).any(axis=1))
        assert differ.size == 0, f"{options}: rows {differ[:8]} differ"
        assert_paths_ran(run.facts["stats"], options)


def assert_paths_ran(stats, options):
    """The equality would prove nothing if the other way had not been taken."""
    assert stats["threads"] == options["threads"]
    assert stats["pool_jobs"] > 0
    if options["expert_slots"] == "min":
        assert stats["expert_evictions"] > 0
    if options["prefill_rows"] > 1:
        assert stats["multi_row_products"] > 0
    else:
        assert stats["multi_row_products"] == 0
    assert stats["expert_misses"] > 0


@pytest.mark.parametrize("kernels", [
    pytest.param(name, marks=[] if name == CLASSES[-1] else [pytest.mark.slow])
    for name in CLASSES])
def test_threads_chunks_and_slots_do_not_change_a_bit(models, kernels):
    assert_same_bits(models, "tiny-fp8", "f32", kernels, SAME_BITS)


@pytest.mark.parametrize("name", ["tiny-i192", "tiny-bf16", "tiny-yarn", "demo"])
def test_nor_do_they_in_other_models(models, name):
    assert_same_bits(models, name, "bf16", "auto", SAME_BITS[:2])


def test_bf16_cache_stays_near_the_reference(models):
    """Keys and values keep 8 bits of mantissa: 2^-9 relative each, amplified by four layers."""
    golden = goldens.Golden("tiny-fp8")
    run = ctl.forward(models / "tiny-fp8", golden.prompt, 0, kv_dtype="bf16")
    rows = [i for i, row in enumerate(golden.rows) if row < len(golden.prompt)]
    ours, theirs = run.logits[[golden.rows[i] for i in rows]], golden.logits[rows]
    distance = np.linalg.norm(ours - theirs, axis=1) / np.linalg.norm(theirs, axis=1)
    assert 1e-4 < np.median(distance) < 2e-2


def test_a_prefix_has_the_same_logits_as_the_whole(models):
    """Causality: what follows cannot change a row."""
    prompt = goldens.Golden("tiny-fp8").prompt
    whole = ctl.forward(models / "tiny-fp8", prompt, kv_dtype="f32")
    part = ctl.forward(models / "tiny-fp8", prompt[:65], kv_dtype="f32")
    assert np.array_equal(whole.logits[:65].view("<u4"), part.logits[:65].view("<u4"))


def test_a_full_prefill_reads_each_expert_once_per_layer(models):
    prompt = (goldens.Golden("tiny-fp8").prompt * 4)[:512]
    run = ctl.forward(models / "tiny-fp8", prompt, prefill_rows=512, expert_slots="min")
    routed_layers, experts = 3, 8
    assert run.facts["stats"]["expert_misses"] <= routed_layers * experts
    assert run.facts["stats"]["expert_orders"] == routed_layers
