"""Qwen4-Exp checkpoints: every layout is described alike, and damage is named."""
import json
import os
import re
import shutil

import numpy as np
import pytest

import ctl
import goldens4
from recount_qwen4 import Count
from test_checkpoints import assert_refused, read, write

AT = "model.language_model.layers.1.ple.ple_embedding."


def inspect(directory):
    said = ctl.run("inspect", directory, "--json")
    assert said.status == 0, said.err
    return json.loads(said.out)


@pytest.mark.parametrize("name", goldens4.NAMES)
def test_every_layout_is_described_as_its_config_says(models, name):
    info = inspect(models / name)
    config = json.loads((models / name / "config.json").read_text())
    want = Count(config).facts()
    same = ["dense_bytes", "table_bytes", "constants_bytes", "embedding_bytes", "n_dense_tensors",
            "n_table_tensors", "fixed_state_bytes", "state_bytes_per_token_f32", "table_rows"]
    assert {key: info[key] for key in same} == {key: want[key] for key in same}
    assert info["derived"] is False and info["model_type"] == "qwen4_exp"
    if name != "tiny4-apart":  # BF16 experts one by one, where a release fuses them
        assert info["n_routed_tensors"] == want["n_routed_tensors"]
    assert info["routed_bytes"] == want["routed_bytes"]


def test_storage_does_not_change_what_a_token_reads(models):
    for name, same in goldens4.SAME_AS.items():
        here, there = inspect(models / name), inspect(models / same)
        for key in ("dense_bytes", "routed_bytes", "table_bytes", "expert_bytes"):
            assert here[key] == there[key], (name, key)


def test_what_is_not_of_the_text_model_is_counted_and_left_alone(models):
    info, plain = inspect(models / "tiny4-unused"), inspect(models / "tiny4-fp8")
    assert (info["n_mtp_tensors"], info["n_vision_tensors"]) == (3, 2)
    assert info["mtp_bytes"] == 2 * (256 * 256 + 256 * 128 + 64)
    assert info["total_bytes"] == plain["total_bytes"] + info["mtp_bytes"] + info["vision_bytes"]
    assert info["n_params"] == plain["n_params"]


@pytest.mark.parametrize("name", goldens4.OWN)
def test_every_layout_can_be_planned(models, name):
    said = ctl.run("plan", models / name, "--no-probe", "--json", "--ram", "1GiB")
    assert said.status == 0, said.err
    lines = {line["name"] for line in json.loads(said.out)["lines"]}
    assert {"recurrent state", "indexer keys", "block keys", "n-gram rows", "row buffers"} <= lines


def test_a_table_of_many_parts_is_put_together_by_their_numbers(models, scratch):
    """Of sixteen, which sort otherwise by name: 0, 1, 10, 11, ..."""
    model = shutil.copytree(models / "tiny4-text", scratch / "m")
    config = json.loads((model / "config.json").read_text())
    config["split_ngram_parts"] = 16
    (model / "config.json").write_text(json.dumps(config))
    beginning = "model.layers.1.ple.ple_embedding.ngram_embedding.shard_"

    def split(header):
        parts = [header.pop(f"{beginning}{i}.weight") for i in range(4)]
        rows, width = parts[0]["shape"]
        for i in range(16):
            at = parts[i // 4]["data_offsets"][0] + i % 4 * (rows // 4) * width
            header[f"{beginning}{i}.weight"] = {
                "dtype": "F8_E4M3", "shape": [rows // 4, width],
                "data_offsets": [at, at + rows // 4 * width]}
    change(model, split)
    prompt = goldens4.Golden("tiny4-text").prompt[:60]
    many, few = (ctl.forward(path, prompt, 4) for path in (model, models / "tiny4-text"))
    assert many.tokens == few.tokens
    assert np.array_equal(many.logits.view(np.uint32), few.logits.view(np.uint32))


# ---- damage ----

@pytest.fixture
def model(models, scratch):
    return shutil.copytree(models / "tiny4-unused", scratch / "m")


def change(model, edit):
    """edit gets the header of the one shard; what it drops is cut out of the data."""
    path = model / "model.safetensors"
    header, data = read(path)
    meta = header.pop("__metadata__")
    edit(header)
    out, at, kept = {"__metadata__": meta}, 0, []
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        begin, end = entry["data_offsets"]
        kept.append(data[begin:end])
        out[name] = {**entry, "data_offsets": [at, at + end - begin]}
        at += end - begin
    write(path, out, b"".join(kept))


def change_config(model, **changes):
    path = model / "config.json"
    config = json.loads(path.read_text())
    config["text_config"].update(changes)
    path.write_text(json.dumps(config))


def write_headers(path, header):
    """The file as its header says, but all data a hole: whoever only looks does not read it."""
    end = max(entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__")
    write(path, header, b"")
    os.truncate(path, path.stat().st_size + end)


def kinds(header):
    """One tensor of each kind: names that differ in numbers only are one."""
    return {re.sub(r"\d+", "N", name): name for name in header
            if not name.startswith(("__metadata__", "mtp.", "model.visual."))}.values()


@pytest.mark.parametrize("name", ["tiny4-unused", "tiny4-fused"])
def test_any_tensor_of_another_shape_or_type_is_refused_by_name(models, scratch, name):
    model = shutil.copytree(models / name, scratch / "m")
    path = model / "model.safetensors"
    header, _ = read(path)
    same_size = {"BF16": "I16", "F8_E4M3": "U8", "I64": "F64"}
    names = list(kinds(header))
    assert len(names) > 40
    for tensor in names:
        shape, dtype = header[tensor]["shape"], header[tensor]["dtype"]
        other = [1, *shape] if len(set(shape)) < 2 else shape[::-1]
        for changes in ({"shape": other}, {"dtype": same_size[dtype]}):
            if "shape" in changes and tensor.endswith(".weight_scale"):
                continue  # one value, of whatever rank
            write_headers(path, {**header, tensor: {**header[tensor], **changes}})
            assert_refused(ctl.run("inspect", model), tensor)


def test_a_part_of_the_table_is_missing(model):
    name = AT + "ngram_embedding.shard_3.weight"
    change(model, lambda header: header.pop(name))
    assert_refused(ctl.run("inspect", model), name, "missing")


def test_the_tables_scale_is_missing(model):
    change(model, lambda header: header.pop(AT + "ngram_embedding.weight_scale"))
    assert_refused(ctl.run("inspect", model), AT + "ngram_embedding.weight_scale", "missing")


def test_a_part_too_many(model):
    def copy(header):
        header[AT + "ngram_embedding.shard_4.weight"] = header.pop("mtp.fc_hidden.weight")
    change(model, copy)
    assert_refused(ctl.run("inspect", model), "shard_4")


def test_fp8_table_that_the_config_does_not_list(model):
    path = model / "config.json"
    config = json.loads(path.read_text())
    del config["quantization_config"]["modules_to_convert"]
    path.write_text(json.dumps(config))
    assert_refused(ctl.run("inspect", model), "ngram_embedding", "modules_to_convert")


def test_constants_of_another_type(model):
    def retype(header):
        entry = header[AT + "layer_multipliers"]
        entry.update(dtype="F64")
    change(model, retype)
    assert_refused(ctl.run("inspect", model), AT + "layer_multipliers", "I64")


def test_scales_of_experts_are_missing(model):
    name = "model.language_model.layers.2.mlp.experts.7.up_proj.weight_scale_inv"
    change(model, lambda header: header.pop(name))
    assert_refused(ctl.run("inspect", model), name)


@pytest.mark.parametrize("changes, says", [
    ({"ngram_vocab_size_base": 60}, "shard_0"),
    ({"hc_lowrank": 17}, "input_mix_weight_down"),
    ({"num_experts": 15}, "mlp.gate.weight"),
    ({"layer_types": ["linear_attention"] * 8}, "linear_attn"),
    ({"ple_layer_ids": []}, "ple."),
])
def test_config_of_another_model(model, changes, says):
    change_config(model, **changes)
    assert_refused(ctl.run("inspect", model), says)


@pytest.fixture
def fused(models, scratch):
    return shutil.copytree(models / "tiny4-fused", scratch / "m")


def test_fused_experts_of_another_shape(fused):
    name = "model.language_model.layers.0.mlp.experts.gate_up_proj"

    def reshape(header):
        header[name]["shape"] = [8, 256, 128]
    change(fused, reshape)
    assert_refused(ctl.run("inspect", fused), name, "128", "256")


def test_fused_and_single_experts_together(fused):
    name = "model.language_model.layers.0.mlp.experts."

    def split(header):
        begin, end = header.pop(name + "down_proj")["data_offsets"]
        size = (end - begin) // 8
        for e in range(8):
            header[f"{name}{e}.down_proj.weight"] = {
                "dtype": "BF16", "shape": [256, 64],
                "data_offsets": [begin + e * size, begin + (e + 1) * size]}
    change(fused, split)
    assert_refused(ctl.run("inspect", fused), "experts", "mixed")
