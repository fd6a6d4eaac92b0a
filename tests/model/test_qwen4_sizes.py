"""Sizes of Qwen4-Exp models from their config alone: published totals, and a second count."""
import json
import random

import pytest

import ctl
from places import ROOT
from recount_qwen4 import Count

CONFIGS = ROOT / "tests/data/configs"
FP8 = CONFIGS / "Qwen3.8-Flash-Next-FP8"
BF16 = CONFIGS / "Qwen3.8-Flash-Next"


def inspect(directory):
    said = ctl.run("inspect", directory, "--json")
    assert said.status == 0, said.err
    return json.loads(said.out)


def plan(directory, *args):
    said = ctl.run("plan", directory, "--no-probe", "--json", *args)
    assert said.status == 0, said.err
    return json.loads(said.out)


def assert_same(info, want):
    assert {key: info[key] for key in want} == want


def test_released_totals_to_the_byte():
    assert_same(inspect(FP8), {
        "n_tensors": 152089, "total_bytes": 185502232570, "dense_bytes": 9895397120,
        "embedding_bytes": 1271398400, "routed_bytes": 120810700800, "table_bytes": 51200245762,
        "constants_bytes": 280, "mtp_bytes": 2698026496, "n_mtp_tensors": 3101,
        "vision_bytes": 897862112, "n_vision_tensors": 333, "n_dense_tensors": 1067,
        "fixed_state_bytes": 118038528, "state_bytes_per_token_f32": 55296,
        "table_rows": 320001536, "table_rows_per_token": 16})
    assert_same(inspect(BF16), {"n_tensors": 1658, "total_bytes": 359999963128})


@pytest.mark.parametrize("directory", [FP8, BF16])
def test_second_count_of_the_released_configs(directory):
    config = json.loads((directory / "config.json").read_text())
    assert_same(inspect(directory), Count(config).facts())


def test_plan_keeps_table_and_token_embedding_on_the_drive():
    info, planned = inspect(FP8), plan(FP8, "--ram", "24GiB")
    lines = {line["name"]: line for line in planned["lines"]}
    resident = ["attention", "linear attention", "residual mixing", "n-gram projections", "router",
                "shared expert", "norms", "head"]
    # Vectors are held as float32, twice their size on disk.
    held = sum(lines[name]["bytes"] for name in resident) - lines["norms"]["bytes"] // 2
    assert held == info["dense_bytes"] - info["embedding_bytes"]
    assert "token embedding" not in lines
    assert "read by row" in lines["row buffers"]["detail"]
    assert "47.68 GiB stays on the drive" in lines["n-gram rows"]["detail"]
    assert lines["n-gram rows"]["bytes"] < 64 << 20


def test_plan_has_lines_for_what_a_sequence_keeps():
    mib = 1 << 20
    planned = plan(FP8, "--ram", "24GiB", "--context", "4096", "--set", "engine.sequences=2",
                   "--set", "memory.kv_dtype=f32")
    lines = {line["name"]: line["bytes"] for line in planned["lines"]}

    def huge(size):
        return -(-size // (2 * mib)) * 2 * mib

    tokens = planned["kv_pages"] * planned["kv_page_tokens"]
    assert tokens >= 4096
    assert lines["recurrent state"] == 2 * huge(2 * 118038528)
    assert lines["KV pool"] == huge(49152 * tokens)
    assert lines["indexer keys"] == huge(6144 * tokens)
    assert lines["block keys"] == huge(1536 * tokens)
    more = plan(FP8, "--ram", "24GiB", "--context", "4096", "--set", "engine.sequences=5")
    assert {l["name"]: l["bytes"] for l in more["lines"]}["recurrent state"] == 5 * huge(
        2 * 118038528)


def test_positions_that_no_sequence_may_hold_cost_nothing(scratch):
    config = json.loads((FP8 / "config.json").read_text())
    config["text_config"]["max_position_embeddings"] = 1 << 30
    (scratch / "config.json").write_text(json.dumps(config))
    fixed = ["--ram", "24GiB", "--context", "4096"]
    assert plan(scratch, *fixed)["minimum"] == plan(FP8, *fixed)["minimum"]


def mutated(rng):
    """A config with sizes that no release has."""
    config = json.loads((rng.choice([FP8, BF16]) / "config.json").read_text())
    text = config["text_config"]
    layers = rng.randint(2, 9)
    kinds = ["linear_attention", rng.choice(["full_attention", "indexed_attention",
                                             "qwen_sparse_attention"])]
    if rng.random() < 0.5:
        text["layer_types"] = [rng.choice(kinds) for _ in range(layers)]
    else:
        del text["layer_types"]
        text["full_attention_interval"] = rng.randint(1, 5)
    linear = [kind == "linear_attention" for kind in text.get("layer_types", [])] or [
        (i + 1) % text["full_attention_interval"] != 0 for i in range(layers)]
    kv, key_heads, heads = rng.randint(1, 4), rng.randint(1, 5), rng.randint(1, 6)
    order, ratio, parts = rng.randint(2, 5), rng.randint(1, 7), 1 << rng.randint(0, 6)
    text.update(
        num_hidden_layers=layers, vocab_size=rng.randint(300000, 400000),
        hidden_size=rng.randint(1, 500), hc_count=rng.randint(2, 6), hc_lowrank=rng.randint(1, 99),
        num_key_value_heads=kv, num_attention_heads=kv * rng.randint(1, 8),
        head_dim=8 * rng.randint(1, 32), indexer_n_heads=rng.randint(1, 5),
        indexer_head_dim=rng.randint(64, 200), indexer_compress_ratio=ratio,
        indexer_budget=ratio * rng.randint(1, 300), linear_num_key_heads=key_heads,
        linear_num_value_heads=key_heads * rng.randint(1, 4),
        linear_key_head_dim=rng.randint(1, 200), linear_value_head_dim=rng.randint(1, 200),
        linear_conv_kernel_dim=rng.randint(2, 6), num_experts=rng.randint(3, 40),
        num_experts_per_tok=rng.randint(1, 3), moe_intermediate_size=rng.randint(1, 300),
        shared_expert_intermediate_size=rng.randint(1, 300), ngram_size=order,
        heads_per_ngram=heads, ple_embed_dim=(order - 1) * heads * rng.randint(1, 30),
        ple_conv_kernel_size=rng.randint(1, 5), ngram_vocab_size_base=rng.randint(1, 3000),
        make_ngram_vocab_size_divisible_by=parts * rng.randint(1, 20), split_ngram_parts=parts,
        ple_layer_ids=[i + 1 for i in range(layers) if linear[i] and rng.random() < 0.5],
        mtp_num_hidden_layers=rng.randint(0, 2))
    for key in ("hc_lowrank", "linear_conv_kernel_dim", "ple_conv_kernel_size",
                "shared_expert_intermediate_size", "mtp_num_hidden_layers"):
        if rng.random() < 0.15:
            del text[key]
    config["vision_config"].update(
        depth=rng.randint(1, 5), hidden_size=rng.randint(1, 99), intermediate_size=rng.randint(1, 99),
        out_hidden_size=rng.randint(1, 99), num_position_embeddings=rng.randint(1, 999),
        patch_size=rng.randint(1, 20), spatial_merge_size=rng.randint(1, 3))
    if rng.random() < 0.3 and "quantization_config" in config:
        del config["quantization_config"]["modules_to_convert"]
    if rng.random() < 0.3:  # saved by the text class
        quantization = config.get("quantization_config")
        config = text
        if quantization:
            config["quantization_config"] = quantization
    return config


def test_thirty_mutated_configs_are_counted_alike(scratch):
    rng = random.Random(4)
    for number in range(30):
        config = mutated(rng)
        (scratch / "config.json").write_text(json.dumps(config))
        info = inspect(scratch)
        assert info["derived"] is True
        want = Count(config).facts()
        assert {key: info[key] for key in want} == want, (number, config)
        assert info["model_type"] == "qwen4_exp"
