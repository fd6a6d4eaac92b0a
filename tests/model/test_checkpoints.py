"""Damaged and foreign checkpoints: exit status 3 and a message that names the file or tensor and
says what to do. Sound ones of every kind open."""
import json
import shutil

import pytest

import ctl
import goldens

BAD_CHECKPOINT = 3


@pytest.fixture
def model(models, scratch):
    """A copy of tiny-fp8 to break."""
    return shutil.copytree(models / "tiny-fp8", scratch / "m")


def assert_refused(said, *names):
    text = said.err
    assert said.status == BAD_CHECKPOINT, f"status {said.status}: {said.err or said.out}"
    for name in names:
        assert name in text, f"{name!r} is not in: {text}"
    assert "runtime error" not in text and "AddressSanitizer" not in text


def read(path):
    """(header without padding, data)"""
    raw = path.read_bytes()
    start = 8 + int.from_bytes(raw[:8], "little")
    return json.loads(raw[8:start]), raw[start:]


def write(path, header, data):
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def shard_of(model, tensor):
    index = json.loads((model / "model.safetensors.index.json").read_text())
    return model / index["weight_map"][tensor]


def change_config(model, **changes):
    path = model / "config.json"
    config = json.loads(path.read_text())
    for key, value in changes.items():
        if value is None:
            del config[key]
        else:
            config[key] = value
    path.write_text(json.dumps(config))


def change_entry(model, tensor, **changes):
    path = shard_of(model, tensor)
    header, data = read(path)
    header[tensor].update(changes)
    write(path, header, data)
    return path


def put_byte(model, tensor, at, value):
    path = shard_of(model, tensor)
    header, data = read(path)
    begin = header[tensor]["data_offsets"][0]
    data = bytearray(data)
    data[begin + at] = value
    write(path, header, bytes(data))
    return path


K_PROJ = "model.layers.0.self_attn.k_proj.weight"
EXPERT = "model.layers.2.mlp.experts.5.down_proj.weight"
ROUTER = "model.layers.2.mlp.gate.weight"


@pytest.mark.parametrize("name", goldens.NAMES)
def test_every_sound_checkpoint_is_described(models, name):
    said = ctl.run("inspect", models / name, "--json")
    assert said.status == 0, said.err
    assert json.loads(said.out)["model_type"] == "qwen3_moe"


# ---- files ----

def test_missing_shard(model):
    shard = shard_of(model, EXPERT)
    shard.unlink()
    assert_refused(ctl.run("inspect", model), shard.name, "download")


def test_truncated_shard(model):
    shard = shard_of(model, EXPERT)
    with open(shard, "r+b") as file:
        file.truncate(shard.stat().st_size - 1000)
    assert_refused(ctl.run("inspect", model), shard.name, "truncated", "download")


def test_shard_cut_within_its_header(model):
    shard = shard_of(model, EXPERT)
    with open(shard, "r+b") as file:
        file.truncate(100)
    assert_refused(ctl.run("inspect", model), shard.name, "truncated", "download")


def test_empty_shard(model):
    shard = shard_of(model, EXPERT)
    shard.write_bytes(b"")
    assert_refused(ctl.run("inspect", model), shard.name, "download")


def test_git_lfs_pointer_in_place_of_a_shard(model):
    shard = shard_of(model, EXPERT)
    shard.write_text("version https://git-lfs.github.com/spec/v1\n"
                     "oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\n"
                     "size 2000000\n")
    assert_refused(ctl.run("inspect", model), shard.name, "git lfs pull")


def test_bytes_behind_the_last_tensor(model):
    shard = shard_of(model, EXPERT)
    with open(shard, "ab") as file:
        file.write(b"more")
    assert_refused(ctl.run("inspect", model), shard.name, "4 bytes")


def test_dangling_symlink_of_a_cache(model):
    shard = shard_of(model, EXPERT)
    shard.unlink()
    shard.symlink_to("../blobs/gone")
    assert_refused(ctl.run("inspect", model), shard.name, "download")


def test_links_that_lead_in_circles(model):
    shard = shard_of(model, EXPERT)
    shard.unlink()
    shard.symlink_to(shard.name)
    assert_refused(ctl.run("inspect", model), shard.name, "symbolic links")
    (model / "config.json").unlink()
    (model / "config.json").symlink_to("config.json")
    assert_refused(ctl.run("inspect", model), "config.json", "symbolic links")
    circle = model.parent / "circle"
    circle.symlink_to(circle.name)
    assert_refused(ctl.run("inspect", circle), "circle", "symbolic links")


@pytest.mark.parametrize("size", [300, 5000])
def test_a_shard_with_a_name_that_no_file_can_have(model, size):
    index = model / "model.safetensors.index.json"
    text = json.loads(index.read_text())
    text["weight_map"][EXPERT] = "s" * size + ".safetensors"
    index.write_text(json.dumps(text))
    assert_refused(ctl.run("inspect", model), "sss")


def test_stray_shard(model):
    shard = shard_of(model, EXPERT)
    shutil.copy(shard, model / "model-00009-of-00009.safetensors")
    assert_refused(ctl.run("inspect", model), "model-00009-of-00009.safetensors")


def test_no_weights_at_all_when_they_are_needed(model):
    for shard in model.glob("*.safetensors*"):
        shard.unlink()
    assert_refused(ctl.run("forward", model, "--tokens", "1,2"), "weights")


def test_config_without_weights_is_described_from_the_config(model):
    for shard in model.glob("*.safetensors*"):
        shard.unlink()
    said = ctl.run("inspect", model, "--json")
    assert said.status == 0, said.err
    assert json.loads(said.out)["derived"] is True


def test_missing_config(model):
    (model / "config.json").unlink()
    assert_refused(ctl.run("inspect", model), "config.json")


def test_config_that_is_no_json(model):
    (model / "config.json").write_text('{"model_type": "qwen3_moe",')
    assert_refused(ctl.run("inspect", model), "config.json")


# ---- index against headers ----

def test_index_lists_a_tensor_that_no_shard_has(model):
    path = model / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    index["weight_map"]["model.layers.0.ghost.weight"] = shard_of(model, EXPERT).name
    path.write_text(json.dumps(index))
    assert_refused(ctl.run("inspect", model), "model.layers.0.ghost.weight", "download")


def test_index_forgets_a_tensor(model):
    path = model / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    del index["weight_map"][EXPERT]
    path.write_text(json.dumps(index))
    assert_refused(ctl.run("inspect", model), EXPERT, "download")


# ---- tensors against the config ----

def test_wrong_shape(model):
    path = change_entry(model, K_PROJ, shape=[128, 512])
    assert_refused(ctl.run("inspect", model), K_PROJ, path.name, "128", "512", "256")


def test_wrong_shape_of_an_expert(model):
    path = change_entry(model, EXPERT, shape=[128, 256])
    assert_refused(ctl.run("inspect", model), EXPERT, path.name)


def test_wrong_shape_of_scales(model):
    change_entry(model, K_PROJ + "_scale_inv", shape=[4, 1])
    assert_refused(ctl.run("inspect", model), K_PROJ + "_scale_inv")


def test_shape_that_does_not_fit_its_bytes(model):
    path = change_entry(model, K_PROJ, shape=[256, 255])
    assert_refused(ctl.run("inspect", model), K_PROJ, path.name)


def test_integers_for_weights(model):
    change_entry(model, K_PROJ, dtype="I8")
    assert_refused(ctl.run("inspect", model), K_PROJ, "I8")


def rename(model, tensor, to):
    path = shard_of(model, tensor)
    header, data = read(path)
    header[to] = header.pop(tensor)
    write(path, header, data)
    index_path = model / "model.safetensors.index.json"
    index = json.loads(index_path.read_text())
    index["weight_map"][to] = index["weight_map"].pop(tensor)
    index_path.write_text(json.dumps(index))


@pytest.mark.parametrize("tensor", [K_PROJ, EXPERT, ROUTER, "lm_head.weight"])
def test_missing_tensor(model, tensor):
    rename(model, tensor, "another." + tensor)
    assert_refused(ctl.run("inspect", model), f"'{tensor}'", "missing")


def test_tensor_that_this_model_does_not_have(model):
    rename(model, K_PROJ + "_scale_inv", "model.layers.0.self_attn.k_proj.bias")
    said = ctl.run("inspect", model)
    assert said.status == BAD_CHECKPOINT
    assert K_PROJ in said.err or "model.layers.0.self_attn.k_proj.bias" in said.err


def test_fp8_without_scales(model):
    rename(model, EXPERT + "_scale_inv", "another")
    assert_refused(ctl.run("inspect", model), EXPERT, "scales")


def test_fewer_layers_in_the_config_than_in_the_shards(model):
    change_config(model, num_hidden_layers=3)
    assert_refused(ctl.run("inspect", model), "model.layers.3.")


def test_more_experts_in_the_config_than_in_the_shards(model):
    change_config(model, num_experts=9)
    assert ctl.run("inspect", model).status == BAD_CHECKPOINT


# ---- NaN codes, found when weights are read ----

@pytest.mark.parametrize("tensor", [K_PROJ, EXPERT])
@pytest.mark.parametrize("code", [0x7F, 0xFF])
def test_nan_codes_in_fp8_weights(model, tensor, code):
    put_byte(model, tensor, 12345, code)
    said = ctl.run("forward", model, "--tokens", ",".join(map(str, range(64))), "--steps", "8")
    assert_refused(said, tensor, "NaN")


# ---- config.json ----

@pytest.mark.parametrize("changes, says", [
    ({"attn_output_gate": True}, "attn_output_gate"),
    ({"shared_expert_intermediate_size": 512}, "shared_expert_intermediate_size"),
    ({"attention_bias": True}, "attention_bias"),
    ({"hidden_act": "gelu"}, "hidden_act"),
    ({"use_sliding_window": True}, "use_sliding_window"),
    ({"rope_scaling": {"rope_type": "linear", "factor": 2.0}}, "linear"),
    ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "original_max_position_embeddings"),
    ({"model_type": "llama"}, "llama"),
    ({"hidden_size": -256}, "hidden_size"),
    ({"hidden_size": 255.5}, "hidden_size"),
    ({"hidden_size": "256"}, "hidden_size"),
    ({"hidden_size": 1 << 40}, "hidden_size"),
    ({"hidden_size": None}, "hidden_size"),
    ({"num_hidden_layers": 0}, "num_hidden_layers"),
    ({"num_experts_per_tok": 9}, "num_experts_per_tok"),
    ({"num_key_value_heads": 3}, "num_key_value_heads"),
    ({"decoder_sparse_step": 0}, "decoder_sparse_step"),
    ({"mlp_only_layers": [7]}, "mlp_only_layers"),
    ({"rms_norm_eps": "small"}, "rms_norm_eps"),
    ({"quantization_config": {"quant_method": "gptq", "bits": 4}}, "gptq"),
    ({"quantization_config": {"quant_method": "fp8", "weight_block_size": [64, 64],
                              "activation_scheme": "dynamic"}}, "weight_block_size"),
    ({"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128],
                              "activation_scheme": "static"}}, "activation_scheme"),
], ids=lambda value: value if isinstance(value, str) else None)
def test_config_that_is_refused_by_name(model, changes, says):
    change_config(model, **changes)
    assert_refused(ctl.run("inspect", model), says)


def test_keys_that_the_reference_ignores_are_accepted(model):
    change_config(model, qkv_bias=False, use_qk_norm=True, shared_expert_intermediate_size=0,
                  _name_or_path="somewhere", pad_token_id=456)
    said = ctl.run("inspect", model)
    assert said.status == 0, said.err


@pytest.mark.parametrize("tokens", ["512", "4294967296", "-1", "x", ""])
def test_token_ids_that_cannot_be_are_refused(model, tokens):
    said = ctl.run("forward", model, "--tokens", tokens)
    assert said.status == 2, said.err
    assert said.out == ""
