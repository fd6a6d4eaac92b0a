"""From trained weights to a checkpoint directory in the family's released layout: block-FP8 where
the release has it, one scalar scale for the n-gram table, BF16 elsewhere."""
import json
import pathlib
import shutil
import sys

import numpy as np
import torch

SCRIPTS = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(SCRIPTS))
from checkpoint import layout, numbers, qwen4_layout, qwen4_variants, qwen4_weights  # noqa: E402
from checkpoint import safetensors, weights  # noqa: E402

import samples  # noqa: E402

TABLE = "ple.ple_embedding.ngram_embedding.weight"


# ---- what a stored matrix is worth, for training ----

def block_fp8(matrices):
    """Matrices [..., rows, columns] as 128x128 blocks of FP8 with a BF16 scale keep them."""
    *_, rows, columns = matrices.shape
    out = torch.empty_like(matrices)
    for r in range(0, rows, 128):
        for c in range(0, columns, 128):
            block = matrices[..., r:r + 128, c:c + 128]
            scale = (block.abs().amax((-1, -2), keepdim=True) / numbers.F8_MAX).bfloat16().float()
            scale = scale.clamp_min(1e-12)
            codes = (block / scale).clamp(-numbers.F8_MAX, numbers.F8_MAX)
            out[..., r:r + 128, c:c + 128] = codes.to(torch.float8_e4m3fn).float() * scale
    return out


def stored_form(family, name, weight):
    """The values of a weight that is stored in FP8, or None."""
    if name.endswith("experts.gate_up_proj"):  # gate and up are stored apart
        return torch.cat([block_fp8(half) for half in weight.chunk(2, dim=1)], dim=1)
    if name.endswith("experts.down_proj"):
        return block_fp8(weight)
    if family == "qwen3_moe" and ".self_attn." in name and name.endswith("_proj.weight"):
        return block_fp8(weight)
    if name.endswith(TABLE):
        scale = (weight.abs().max() / numbers.F8_MAX).bfloat16().float()
        return (weight / scale).clamp(-numbers.F8_MAX, numbers.F8_MAX).to(
            torch.float8_e4m3fn).float() * scale
    return None


@torch.no_grad()
def swap_in_stored(family, model):
    """Every weight that is stored in FP8 takes its stored values; the exact ones come back."""
    exact = []
    for name, weight in model.named_parameters():
        stored = stored_form(family, name, weight.data)
        if stored is not None:
            exact.append((weight, weight.data))
            weight.data = stored
    return exact


def swap_back(exact):
    for weight, data in exact:
        weight.data = data


# ---- the checkpoint ----

def floats_of(state, name):
    """The weight of a tensor of the checkpoint, from the state of the class: that keeps experts in
    one and the n-gram table whole."""
    if ".mlp.experts." in name:
        at, rest = name.split(".mlp.experts.")
        number, part, _ = rest.split(".")
        if part == "down_proj":
            return state[f"{at}.mlp.experts.down_proj"][int(number)].numpy()
        both = state[f"{at}.mlp.experts.gate_up_proj"][int(number)].numpy()
        half = both.shape[0] // 2
        return both[:half] if part == "gate_proj" else both[half:]
    return state[name].numpy()


def qwen3_moe_entries(config, state):
    for tensor in layout.tensors(config):
        floats = np.ascontiguousarray(floats_of(state, tensor.name))
        yield from weights.stored(tensor, floats, "FP8", "BF16")


def qwen4_exp_entries(config, state):
    table, parts = [], config["split_ngram_parts"]
    for tensor in qwen4_layout.tensors(config):
        name = tensor.name
        if tensor.role == "table":
            rows = tensor.shape[0]
            whole = state[name.rsplit("shard_", 1)[0] + "weight"].numpy()
            table.append((name, whole[tensor.expert * rows:(tensor.expert + 1) * rows]))
            if len(table) == parts:
                yield from qwen4_weights.fp8_table(name.rsplit("shard_", 1)[0], table)
        elif tensor.role == "constant":
            constants = qwen4_weights.constants(config, tensor)
            assert (constants == state[name].numpy()).all(), name
            yield name, "I64", tensor.shape, constants
        elif tensor.role == "expert":
            yield from qwen4_weights.fp8_expert(name, np.ascontiguousarray(floats_of(state, name)))
        else:
            floats = np.ascontiguousarray(state[name].numpy(), dtype=np.float32)
            yield qwen4_weights.bf16(name, floats.reshape(tensor.shape))


def config_of(family, config):
    """config.json. The release of Qwen4-Exp is the text model within one that also sees."""
    if family == "qwen3_moe":
        return {**config, "quantization_config": layout.quantization_config(config)}
    text = {key: value for key, value in config.items() if key != "architectures"}
    vision = {**qwen4_variants.VISION, "out_hidden_size": config["hidden_size"]}
    return {"architectures": ["Qwen4ExpForConditionalGeneration"], "model_type": "qwen4_exp",
            "text_config": text, "tie_word_embeddings": False,
            "transformers_version": "5.8.0.dev0", "vision_config": vision,
            **qwen4_variants.quantization("FP8", "FP8")}


def released_name(family, name):
    if family == "qwen4_exp" and name.startswith("model."):
        return "model.language_model." + name.removeprefix("model.")
    return name


def write(directory, family, config, tokenizer, state):
    """config.json, generation_config.json, tokenizer, chat template and weights."""
    directory = pathlib.Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    state = {name: value.float() if value.is_floating_point() else value
             for name, value in state.items()}
    entries = qwen3_moe_entries if family == "qwen3_moe" else qwen4_exp_entries
    end = tokenizer.id("<|endoftext|>")

    def dump(name, value):
        (directory / name).write_text(json.dumps(value, indent=2) + "\n")

    dump("config.json", dict(sorted(config_of(family, config).items())))
    dump("generation_config.json", {
        "bos_token_id": end, "do_sample": True, "eos_token_id": [tokenizer.end, end],
        "pad_token_id": end, "temperature": 0.6, "top_k": 20, "top_p": 0.95,
        "transformers_version": "4.51.0"})
    (directory / "tokenizer.json").write_text(tokenizer.text, encoding="utf-8")
    (directory / "tokenizer_config.json").write_text(tokenizer.config_text(), encoding="utf-8")
    shutil.copyfile(samples.TEMPLATES[family], directory / "chat_template.jinja")
    named = [(released_name(family, name), *rest) for name, *rest in entries(config, state)]
    safetensors.write_checkpoint(directory, named, 1 << 40, index=False)
    return sum(path.stat().st_size for path in directory.iterdir())


def main():
    import argparse

    import model as models
    import tokenizer as tokenizers
    parse = argparse.ArgumentParser(description=__doc__)
    parse.add_argument("family", choices=models.FAMILIES)
    parse.add_argument("--work", required=True, type=pathlib.Path)
    parse.add_argument("--out", required=True, type=pathlib.Path)
    args = parse.parse_args()
    text = (args.work / f"tokenizer-{args.family}.json").read_text(encoding="utf-8")
    tokenizer = tokenizers.TinyTokenizer(text)
    state = torch.load(args.work / f"{args.family}.pt", weights_only=False)
    config = models.FAMILIES[args.family](tokenizer)
    size = write(args.out, args.family, config, tokenizer, state["model"])
    print(f"{args.out}: {size:,} bytes after {state['step']} steps")


if __name__ == "__main__":
    main()
