"""memory.dense: fp8. The engine rounds dense weights to E4M3 with block scales as it loads them: here
they are rounded a second time in NumPy, and what that model says is what it must say."""
import json
import re
import shutil
import struct

import numpy as np
import pytest

import ctl
import goldens
import goldens4
from places import ROOT

# Not rounded: what is read by row, the routers, and the experts, which have a place of their own.
KEPT = re.compile(r"embed_tokens\.|\bmlp\.gate\.|\.experts\.|ngram_embedding")
CONFIGS = ROOT / "tests/data/configs"
RELEASED_FP8 = 4414504960  # all that is resident of Qwen3.8-Flash-Next-FP8; docs/memory.md says so


def golden_of(name):
    return goldens4.Golden(name) if name.startswith("tiny4") else goldens.Golden(name)


def forward(models, name, steps=0, **options):
    return ctl.forward(models / name, golden_of(name).prompt, steps, kv_dtype="f32", **options)


def relative(a, b):
    return np.linalg.norm(a.astype(float) - b) / np.linalg.norm(b.astype(float))


# ---- a second rounding ----

def e4m3(x):
    """The nearest value of E4M3 to each, ties to the even mantissa."""
    steps = 2.0 ** (np.maximum(np.frexp(np.abs(x))[1] - 1, -6) - 3)
    return np.clip(np.rint(x / steps) * steps, -448, 448)


def rounded(w):
    out = np.empty(w.shape)
    for row in range(0, w.shape[0], 128):
        for col in range(0, w.shape[1], 128):
            block = w[row:row + 128, col:col + 128]
            scale = np.float32(np.abs(block).max()) / np.float32(448) or np.float32(1)
            out[row:row + 128, col:col + 128] = e4m3((block / scale).astype(float)) * float(scale)
    return out.astype(np.float32)


def round_checkpoint(source, target):
    """The same model with its dense matrices rounded, as F32. Returns how many they are."""
    shutil.copytree(source, target)
    file = target / "model.safetensors"
    raw = file.read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    header, data, n = json.loads(raw[8:8 + size]), bytearray(), 0
    for name, tensor in header.items():
        if name == "__metadata__":
            continue
        begin, end = tensor["data_offsets"]
        bytes_ = raw[8 + size + begin:8 + size + end]
        if len(tensor["shape"]) == 2 and not KEPT.search(name):
            assert tensor["dtype"] == "BF16", name
            values = (np.frombuffer(bytes_, "<u2").astype("<u4") << 16).view("<f4")
            bytes_ = rounded(values.reshape(tensor["shape"])).astype("<f4").tobytes()
            tensor["dtype"] = "F32"
            n += 1
        tensor["data_offsets"] = [len(data), len(data) + len(bytes_)]
        data += bytes_
    head = json.dumps(header).encode()
    file.unlink()
    file.write_bytes(struct.pack("<Q", len(head)) + head + data)
    return n


@pytest.mark.parametrize("name", ["tiny-bf16", "tiny4-odd"])
def test_it_is_the_model_whose_weights_were_rounded_beforehand(models, scratch, name):
    n = round_checkpoint(models / name, scratch / "rounded")
    assert n > 12
    prompt = golden_of(name).prompt
    expected = ctl.forward(scratch / "rounded", prompt, kv_dtype="f32").logits
    got = forward(models, name, dense="fp8").logits
    assert relative(got, expected) < 1e-5
    assert relative(got, forward(models, name).logits) > 1e-2


# ---- how far it is from the exact one ----

# Of random weights, where many routers are near ties: another expert is another answer.
@pytest.mark.slow
@pytest.mark.parametrize("name,bound", [("tiny-bf16", 0.15), ("tiny-fp8", 0.05), ("tiny4-fp8", 0.17),
                                        ("tiny4-odd", 0.12)])
def test_the_distance_of_the_logits_is_bounded(models, name, bound):
    exact, smaller = forward(models, name), forward(models, name, dense="fp8")
    distance = relative(smaller.logits, exact.logits)
    print(f"{name}: {distance:.4f}")
    assert 1e-3 < distance < bound


def test_what_is_fp8_already_stays_as_it_is(models):
    """All of it, for the head is the token embedding."""
    exact, same = forward(models, "tiny-tied"), forward(models, "tiny-tied", dense="fp8")
    assert np.array_equal(exact.logits.view("<u4"), same.logits.view("<u4"))


@pytest.mark.slow
def test_bf16_is_the_default(models):
    said, silent = forward(models, "tiny4-odd", dense="bf16"), forward(models, "tiny4-odd")
    assert np.array_equal(said.logits.view("<u4"), silent.logits.view("<u4"))


# ---- bits ----

@pytest.mark.slow
@pytest.mark.parametrize("name", ["tiny-bf16", "tiny4-odd"])
def test_bits_depend_on_the_request_alone(models, name):
    base = forward(models, name, 8, dense="fp8", threads=1, expert_slots="all")
    for options in ({"threads": 3, "prefill_rows": 1, "expert_slots": "min"},
                    {"threads": 2, "prefill_rows": 7, "expert_slots": "half"},
                    {"threads": 4, "prefill_rows": 64, "sequences": 1},
                    {"threads": 2, "ram": "128MiB", "context": 256}):
        other = forward(models, name, 8, dense="fp8", **options)
        assert other.tokens == base.tokens, options
        assert np.array_equal(other.logits.view("<u4"), base.logits.view("<u4")), options


# ---- bytes ----

def plan(directory, *args):
    said = ctl.run("plan", directory, "--no-probe", "--json", "--ram", "24GiB", *args)
    assert said.status == 0, said.err
    planned = json.loads(said.out)
    return planned, {line["name"]: line["bytes"] for line in planned["lines"]}


RESIDENT = ["attention", "linear attention", "residual mixing", "n-gram projections", "router",
            "shared expert", "dense MLP", "norms", "head", "token embedding", "expert scales",
            "resident rounding"]


def test_the_plan_shows_both_and_each_is_what_it_is_when_chosen():
    for directory in (CONFIGS / "Qwen3.8-Flash-Next-FP8", CONFIGS / "Qwen3.8-Flash-Next"):
        exact, exact_lines = plan(directory)
        smaller, lines = plan(directory, "--dense", "fp8")
        assert (exact["dense"], smaller["dense"]) == ("bf16", "fp8")
        for planned, of in ((exact, exact_lines), (smaller, lines)):
            assert planned["resident_bytes"] == sum(of.get(name, 0) for name in RESIDENT)
        assert exact["other_resident_bytes"] == smaller["resident_bytes"]
        assert smaller["other_resident_bytes"] == exact["resident_bytes"]
        assert smaller["expert_slots"] > exact["expert_slots"]


def blocks(rows, cols):
    return rows * cols + 4 * -(-rows // 128) * -(-cols // 128)


def test_the_released_model_takes_so_much_to_the_byte():
    _, lines = plan(CONFIGS / "Qwen3.8-Flash-Next-FP8", "--dense", "fp8")
    hidden, wide = 2560, 4 * 2560
    queries, values = 24 * 256, 48 * 128
    assert lines["head"] == blocks(248320, hidden)
    assert lines["shared expert"] == 48 * (2 * blocks(640, hidden) + blocks(hidden, 640) +
                                           blocks(1, hidden))
    mixer = blocks(320, wide) + blocks(wide, 320)
    assert lines["residual mixing"] == 96 * (mixer + blocks(4, wide)) + mixer
    assert lines["n-gram projections"] == blocks(wide, hidden) + blocks(hidden, hidden)
    assert lines["attention"] == 12 * (
        blocks(2 * queries, hidden) + 2 * blocks(2 * 256, hidden) + blocks(hidden, queries) +
        blocks(5 * 128, hidden))
    assert lines["linear attention"] == 36 * (
        blocks(2 * 16 * 128 + values, hidden) + blocks(values, hidden) + blocks(hidden, values) +
        2 * blocks(48, hidden))
    assert lines["router"] == 48 * 512 * hidden * 2
    assert sum(lines[name] for name in RESIDENT if name in lines) == RELEASED_FP8

