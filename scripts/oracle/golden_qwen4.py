#!/usr/bin/env python3
"""Makes the goldens of Qwen4-Exp in tests/data/golden: what transformers computes.

  python3 -m venv /tmp/oracle && /tmp/oracle/bin/pip install -r scripts/oracle/requirements.txt
  make models
  /tmp/oracle/bin/python scripts/oracle/golden_qwen4.py build/models tests/data/golden [NAME...]
  build/venv/bin/python scripts/oracle/golden_qwen4.py --find-seed NAME

float32 on the CPU, eager attention and experts, read and dequantised by transformers itself. The
prompt goes in at once, then token by token. Per checkpoint NAME, beside what golden.py writes
(NAME.json and NAME.f32, logits):

  NAME-parts.f32  arrays of float32, little-endian, one after the other; "parts" in NAME.json gives
                  for each name its shape and the place of its first value:
    streams       after each layer, of "stream_rows": [layers, rows, streams * hidden]
    PART.WHAT     inputs and outputs of sub-layers for the first DUMP_ROWS rows of the prompt:
                  residualN (h, m, inject) a read of the streams, gdnN, qsaN and moeN (m, out; moe
                  also chosen, weight), pleN (embedded, h, out), indexN (m, visible: which tokens a
                  row attends to). N is the layer

A checkpoint whose greedy tokens, routers or indexers nearly tie is refused: --find-seed names a
seed for scripts/checkpoint/qwen4_variants.py that does better."""
import argparse
import json
import pathlib
import sys
import tempfile

import numpy as np

import golden  # first: it puts scripts/ on the path
import numpy_qwen4
from checkpoint import build, numbers, qwen4_variants
from checkpoint.tokenizer import Tokenizer

PROMPT = 140
DUMP_ROWS = 40      # past the indexers' budgets
INDEX_GAP = 2e-5    # between the last chosen and the first refused block; scores are of size one
# A layer of each kind, and the second of its kind where the model is small.
PARTS = {
    "tiny4-fp8": ["residual1", "gdn0", "ple1", "qsa3", "index3", "moe0"],
    "tiny4-odd": ["residual1", "gdn2", "ple1", "ple3", "qsa4", "index4", "moe1"],
}
# The end of a text within the prompt, twice in a row, and as its first token.
ENDS = (0, 30, 77, 78, 120)


def prompt_of(variant, tokenizer):
    odd = numbers.bits(numbers.stream(variant.name, "prompt"), PROMPT // 2) % np.uint64(
        tokenizer.size)
    text = tokenizer.encode(tokenizer.text[:4 * PROMPT])
    prompt = ([int(i) for i in odd] + text)[:PROMPT]
    for at in ENDS:
        prompt[at] = qwen4_variants.BASE["eos_token_id"]
    return prompt


def stored_rows(total):
    return sorted({*range(0, total, 9), 1, 2, 3, 18, 19, 20, *range(PROMPT - 2, PROMPT + 8),
                   total - 2, total - 1})


def stream_rows(total):
    return [0, 1, 20, 78, PROMPT - 1, PROMPT, total - 1]


class Hooks:
    """Collects what sub-layers of transformers see and say."""

    def __init__(self, model):
        self.streams, self.dumps = [[] for _ in model.model.layers], None
        for i, layer in enumerate(model.model.layers):
            layer.register_forward_hook(self.keep_streams(i))
            self.hook(layer.attn_hyper_connection, f"residual{i}", self.residual)
            self.hook(layer.mlp, f"moe{i}", self.plain)
            self.hook(layer.mlp.gate, f"moe{i}", self.router)
            if hasattr(layer, "linear_attn"):
                self.hook(layer.linear_attn, f"gdn{i}", self.plain)
            else:
                self.hook(layer.self_attn, f"qsa{i}", self.plain)
                self.hook(layer.self_attn.indexer, f"index{i}", self.index)
            if layer.ple is not None:
                self.hook(layer.ple, f"ple{i}", self.ngrams)
                self.hook(layer.ple.ple_embedding, f"ple{i}", self.embedded)

    def keep_streams(self, i):
        def take(_module, _args, out):
            self.streams[i].append((out if not isinstance(out, tuple) else out[0])[0].numpy())
        return take

    def hook(self, module, name, say):
        def take(_module, args, kwargs, out):
            if self.dumps is None:
                return
            seen = args[0] if args else kwargs["hidden_states"]
            for key, values in say(seen, out).items():
                array = values.detach().numpy().astype("<f4")
                self.dumps[f"{name}.{key}"] = array.reshape(-1, *array.shape[-1:])
        module.register_forward_hook(take, with_kwargs=True)

    @staticmethod
    def residual(seen, out):
        return {"h": seen, "m": out[0], "inject": out[2]}

    @staticmethod
    def plain(seen, out):
        return {"m": seen, "out": out[0] if isinstance(out, tuple) else out}

    @staticmethod
    def router(_seen, out):
        return {"weight": out[1], "chosen": out[2]}

    @staticmethod
    def index(seen, out):
        return {"m": seen, "visible": out}

    @staticmethod
    def ngrams(seen, out):
        return {"h": seen, "out": out}

    @staticmethod
    def embedded(_seen, out):
        return {"embedded": out}


def load_with_transformers(directory):
    import torch
    from transformers import AutoModelForCausalLM
    torch.set_num_threads(1)  # one order of sums, whatever the machine
    model = AutoModelForCausalLM.from_pretrained(
        directory, dtype=torch.float32, attn_implementation="eager",
        experts_implementation="eager").eval()
    for layer in model.model.layers:  # beside FP8 experts a BF16 table stays what it is
        if layer.ple is not None:
            table = layer.ple.ple_embedding.ngram_embedding
            if table.weight.dtype == torch.bfloat16:
                table.float()
    return model


def write_parts(path, arrays):
    """Where each array lies."""
    at, where = 0, {}
    with open(path, "wb") as out:
        for name, array in arrays.items():
            where[name] = {"at": at, "shape": list(array.shape)}
            out.write(np.ascontiguousarray(array, dtype="<f4").tobytes())
            at += array.size
    return where


def far(ours, theirs):
    return float(np.abs(ours - theirs).max() / np.abs(theirs).max())


def compare_parts(model, prompt, dumps):
    model.reset()
    model.dumps = {}
    model.forward(prompt[:DUMP_ROWS])
    return {name: far(model.dumps[name].reshape(values.shape), values)
            for name, values in dumps.items()}


def make_golden(variant, models, out):
    import torch
    import transformers
    directory, tokenizer = models / variant.name, Tokenizer(variant.n_merges)
    prompt = prompt_of(variant, tokenizer)
    theirs = load_with_transformers(directory)
    hooks = Hooks(theirs)
    logits, tokens = golden.greedy_with_transformers(theirs, prompt)
    streams = np.stack([np.concatenate(rows) for rows in hooks.streams])
    margins = golden.margins_of(logits[len(prompt) - 1:])

    mine = numpy_qwen4.Model(directory)
    other, other_tokens = mine.greedy(prompt, golden.STEPS)
    error = float((np.linalg.norm(other - logits, axis=1) / np.linalg.norm(logits, axis=1)).max())
    faults = faults_of(tokenizer, margins, mine, tokens)
    if other_tokens != tokens or error > 2e-5:
        faults.append(f"the NumPy forward differs by {error:.1e}")
    print(f"{variant.name:14} margin {margins.min():.4f}  router gap {mine.router_gap:.1e}  "
          f"index gap {mine.index_gap:.1e}  NumPy differs by {error:.1e}  "
          f"{len(set(tokens))} distinct tokens", flush=True)

    hooks.dumps = {}
    with torch.no_grad():
        theirs(torch.tensor([prompt[:DUMP_ROWS]]), use_cache=True)
    dumps = {name: values for name, values in hooks.dumps.items()
             if name.split(".")[0] in PARTS.get(variant.name, [])}
    apart = compare_parts(mine, prompt, dumps)
    print("   " + "  ".join(f"{name} {error:.0e}" for name, error in apart.items()))
    faults += [f"{name} differs by {error:.1e}" for name, error in apart.items() if error > 2e-5]
    if faults:
        return [f"{variant.name}: {fault}" for fault in faults]

    rows, few = stored_rows(len(logits)), stream_rows(len(logits))
    (out / f"{variant.name}.f32").write_bytes(logits[rows].astype("<f4").tobytes())
    parts = write_parts(out / f"{variant.name}-parts.f32", {"streams": streams[:, few], **dumps})
    (out / f"{variant.name}.json").write_text(json.dumps({
        "checkpoint": variant.name, "about": variant.about, "seed": variant.seed,
        "vocab": int(logits.shape[1]), "prompt": prompt, "tokens": tokens,
        "margins": [round(float(m), 4) for m in margins], "rows": rows, "stream_rows": few,
        "index_gap": mine.index_gap, "parts": parts, "files": golden.file_hashes(directory),
        "made_with": {"torch": torch.__version__.split("+")[0],
                      "transformers": transformers.__version__, "dtype": "float32",
                      "attention": "eager", "dequantised_by": "transformers"},
    }, indent=None, separators=(",", ":")).replace(',"', ',\n"') + "\n")
    return []


def faults_of(tokenizer, margins, model, tokens):
    faults = []
    if margins.min() < golden.MARGIN:
        faults.append(f"a greedy step hangs on {margins.min():.1e}")
    if model.router_gap < golden.ROUTER_GAP:
        faults.append(f"a router decides by {model.router_gap:.1e}")
    if model.index_gap < INDEX_GAP:
        faults.append(f"an indexer decides by {model.index_gap:.1e}")
    if max(tokens) >= tokenizer.n_plain:
        faults.append("an added token or a padding id was generated")
    if len(set(tokens)) < 20:
        faults.append("the text repeats itself")
    return [fault + "; find another seed" for fault in faults]


def find_seed(variant):
    """The first seed that has no fault, by the NumPy forward."""
    tokenizer = Tokenizer(variant.n_merges)
    prompt = prompt_of(variant, tokenizer)
    for seed in range(1, 200):
        variant.seed = seed
        with tempfile.TemporaryDirectory() as scratch:
            build.write_variant(variant, pathlib.Path(scratch), tokenizer)
            model = numpy_qwen4.Model(scratch)
        logits, tokens = model.greedy(prompt, golden.STEPS)
        model.router_gap, model.index_gap = model.router_gap / 2, model.index_gap / 2  # some room
        faults = faults_of(tokenizer, golden.margins_of(logits[len(prompt) - 1:]) / 2, model,
                           tokens)
        if not faults:
            return seed
        print(f"{variant.name}: seed {seed}: {'; '.join(faults)}", flush=True)
    raise SystemExit(f"{variant.name}: no seed below 200 will do")


def main():
    parse = argparse.ArgumentParser(description=__doc__,
                                    formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("--find-seed", metavar="NAME", action="append")
    parse.add_argument("models", nargs="?", type=pathlib.Path)
    parse.add_argument("out", nargs="?", type=pathlib.Path)
    parse.add_argument("names", nargs="*")
    args = parse.parse_args()

    for name in args.find_seed or []:
        print(f"{name}: seed {find_seed(qwen4_variants.BY_NAME[name])}")
    if args.find_seed:
        return
    if not args.out:
        parse.error("models and out are needed")
    args.out.mkdir(parents=True, exist_ok=True)
    faults = []
    for variant in qwen4_variants.VARIANTS:
        own = not variant.same_as and not variant.bigrams
        if own and (not args.names or variant.name in args.names):
            faults += make_golden(variant, args.models, args.out)
    sys.exit("\n".join(faults) if faults else 0)


if __name__ == "__main__":
    main()
