"""scripts/make-checkpoint: number formats, storage, and models from a config."""
import json
import subprocess
import sys

import numpy as np
import pytest

from places import ROOT  # first: it puts scripts/ on the path
import ctl
import numpy_forward
import numpy_qwen4
from recount_qwen4 import Count
from checkpoint import numbers, tokenizer

pytestmark = pytest.mark.slow  # nothing of ours in C runs here

SCRIPT = ROOT / "scripts/make-checkpoint"


def make(*args):
    return subprocess.run([sys.executable, SCRIPT, *map(str, args)], capture_output=True,
                          text=True, timeout=100, check=False)


def data_start(path):
    return 8 + int.from_bytes(path.read_bytes()[:8], "little")


def test_random_numbers_are_splitmix64():
    # The reference generator's first outputs for the seed 1234567.
    assert [int(x) for x in numbers.bits(1234567, 3)] == [
        6457827717110365317, 3203168211198807973, 9817491932198370423]


def test_e4m3_codes_are_the_nearest_with_ties_to_even():
    table = numbers.e4m3_table().astype(np.float64)
    positive = table[:0x7F]
    between = (positive[1:] + positive[:-1]) / 2  # ties, exact in double and in float32
    values = np.concatenate([positive, between, np.nextafter(between.astype(np.float32), 0),
                             numbers.normal(7, (5000,), 60.0), [500.0, 1e9, -1e9]])
    values = values.astype(np.float32)
    codes = numbers.to_e4m3(values)
    assert not np.any((codes & 0x7F) == numbers.F8_NAN)
    size = np.minimum(np.abs(values.astype(np.float64)), 448.0)
    gap = np.abs(positive[None, :] - size[:, None])
    nearest = gap.min(axis=1)
    assert np.array_equal(np.abs(np.abs(table[codes]) - size), nearest)
    tied = (gap == nearest[:, None]).sum(axis=1) == 2
    assert tied.sum() >= len(between)
    assert not np.any(codes[tied] & 1)
    assert np.array_equal(np.signbit(table[codes]), np.signbit(values))


def test_bf16_rounds_to_nearest_even():
    cases = {1.0: 0x3F80, -2.0: 0xC000, 1.0 + 2.0 ** -8: 0x3F80, 1.0 + 3 * 2.0 ** -8: 0x3F82,
             1.0 + 2.0 ** -8 + 2.0 ** -20: 0x3F81}
    got = numbers.to_bf16(np.array(list(cases), dtype=np.float32))
    assert got.tolist() == list(cases.values())


def test_partial_blocks_keep_their_values():
    matrix = numbers.normal(3, (192, 320), 1.0)
    codes, scale = numbers.quantise(matrix)
    assert codes.shape == (192, 320) and scale.shape == (2, 3)
    back = numbers.dequantise(codes, scale)
    # Half a step of three mantissa bits, or half of the smallest step.
    assert np.all(np.abs(back - matrix) <= np.maximum(np.abs(matrix) / 16, scale.max() / 1024)
                  * 1.01)


def test_odd_checkpoint_starts_its_data_at_odd_addresses(models):
    shards = sorted((models / "tiny-odd").glob("*.safetensors"))
    assert len(shards) > 1
    assert all(data_start(path) % 2 == 1 for path in shards)


def test_many_shards_tear_an_expert_apart(models):
    index = json.loads((models / "tiny-many-shards/model.safetensors.index.json").read_text())
    where = {}
    for name, shard in index["weight_map"].items():
        if ".experts." in name:
            where.setdefault(name.rsplit(".", 2)[0], set()).add(shard)
    assert any(len(shards) > 1 for shards in where.values())


def test_cache_layout_is_made_of_symlinks(models):
    for file in (models / "tiny-symlinks").iterdir():
        assert file.is_symlink() and file.resolve().parent.name == "blobs"


def test_tokenizer_encodes_its_corpus_and_decodes_it_again(models):
    tiny = tokenizer.Tokenizer()
    ids = tiny.encode(tiny.text)
    assert tiny.decode(ids) == tiny.text
    assert len(ids) < len(tiny.text) / 2
    written = json.loads((models / "tiny-fp8/tokenizer.json").read_text())
    assert written["model"]["vocab"] == tiny.vocab
    config = json.loads((models / "tiny-fp8/config.json").read_text())
    assert config["eos_token_id"] == tiny.added["<|im_end|>"]
    assert config["bos_token_id"] == tiny.added["<|endoftext|>"]


def small_config(folder, **change):
    config = json.loads((ROOT / "tests/data/configs/Qwen3-30B-A3B-FP8/config.json").read_text())
    config.update(hidden_size=256, num_attention_heads=4, num_key_value_heads=2, head_dim=64,
                  moe_intermediate_size=128, num_hidden_layers=4, num_experts=32,
                  num_experts_per_tok=4, vocab_size=1024)
    config.update(change)
    path = folder / "config-in.json"
    path.write_text(json.dumps(config))
    return path


def spread_of_picks(folder):
    """Share of the picks that went to the most wanted quarter of the experts, last layer."""
    tiny = tokenizer.Tokenizer()
    model = numpy_forward.Model(folder)
    logits = model.forward(tiny.encode(tiny.text)[:200])
    assert np.isfinite(logits).all()
    assert 0.5 < logits.std() < 10
    wanted = np.sort(np.bincount(model.picks[-1].ravel(), minlength=32))
    return wanted[-8:].sum() / wanted.sum()


def test_config_gives_a_model_whose_router_is_skewed_or_not(scratch):
    config = small_config(scratch)
    share = {}
    for router in ("uniform", "skewed"):
        done = make("--config", config, "--out", scratch / router, "--router", router,
                    "--shard-size", 0.004)
        assert done.returncode == 0, done.stderr
        assert len(list((scratch / router).glob("*.safetensors"))) > 1
        share[router] = spread_of_picks(scratch / router)
    assert share["uniform"] < 0.5 < share["skewed"]


def test_layers_can_be_left_out(scratch):
    done = make("--config", small_config(scratch), "--out", scratch / "out", "--layers", 2)
    assert done.returncode == 0, done.stderr
    config, weights = numpy_forward.load(scratch / "out")
    assert config["num_hidden_layers"] == 2
    assert "model.layers.1.mlp.experts.31.down_proj.weight" in weights
    assert not any(name.startswith("model.layers.2.") for name in weights)
    assert not any(np.isnan(values).any() for values in weights.values())


def small_qwen4(folder, **change):
    config = json.loads(
        (ROOT / "tests/data/configs/Qwen3.8-Flash-Next-FP8/config.json").read_text())
    config["text_config"].update(
        hidden_size=256, num_attention_heads=4, head_dim=64, linear_num_key_heads=2,
        linear_num_value_heads=4, linear_key_head_dim=32, linear_value_head_dim=32, hc_lowrank=16,
        moe_intermediate_size=128, shared_expert_intermediate_size=64, num_experts=32,
        num_experts_per_tok=4, vocab_size=1024, indexer_head_dim=32, indexer_budget=64,
        ple_embed_dim=64, **change)
    path = folder / "config-in.json"
    path.write_text(json.dumps(config))
    return path


def test_a_qwen4_config_gives_a_model_that_runs_and_is_accepted(scratch):
    done = make("--config", small_qwen4(scratch), "--out", scratch / "out", "--layers", 5,
                "--ngram-base", 500, "--shard-size", 0.004)
    assert done.returncode == 0, done.stderr
    said = ctl.run("inspect", scratch / "out", "--json")
    assert said.status == 0, said.err
    info = json.loads(said.out)
    config = json.loads((scratch / "out/config.json").read_text())
    assert info["n_tensors"] == Count(config).facts()["n_tensors"]
    assert (info["n_mtp_tensors"], info["n_vision_tensors"]) == (0, 0)
    assert info["n_layers"] == 5 and 16 * 500 < info["table_rows"] < 16 * 700
    tiny = tokenizer.Tokenizer()
    logits = numpy_qwen4.Model(scratch / "out").forward(tiny.encode(tiny.text)[:90])
    assert np.isfinite(logits).all()
    assert 0.3 < logits.std() < 10


def test_a_disk_without_room_is_refused_before_anything_is_written(scratch):
    config = small_config(scratch, vocab_size=1 << 40)
    done = make("--config", config, "--out", scratch / "out")
    assert done.returncode == 1
    assert "GB free" in done.stderr
    assert list((scratch / "out").iterdir()) == []


@pytest.mark.parametrize("change, says", [
    ({"model_type": "llama"}, "model_type"),
    ({"hidden_size": 1 << 20}, "larger than the pool"),
])
def test_a_config_that_cannot_be_made_is_refused_by_name(scratch, change, says):
    done = make("--config", small_config(scratch, **change), "--out", scratch / "out")
    assert done.returncode == 1
    assert says in done.stderr and "Traceback" not in done.stderr
