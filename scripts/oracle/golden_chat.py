#!/usr/bin/env python3
"""Makes tests/data/golden/chat-*: conversations with the trained models, as transformers has them.

  python3 -m venv /tmp/oracle && /tmp/oracle/bin/pip install -r scripts/oracle/requirements.txt
  /tmp/oracle/bin/python scripts/oracle/golden_chat.py tests/data/models tests/data/golden [NAME...]

float32 on the CPU, eager attention and experts, weights dequantised; the checkpoint's chat template
rendered by transformers, text cut by Hugging Face tokenizers. 50 conversations of the kinds that
scripts/tiny-model/corpus makes, twice as many with tools as of any other kind, half of them with
thinking. Per checkpoint NAME:

  NAME.json  "conversations": messages, tools, thinking, prompt (token ids), tokens (greedy, the stop
             token included), the distance between best and second best logit of each, and "row",
             whose logits are stored whole: i < len(prompt) is that of prompt token i, then those of
             generated tokens; SHA-256 of the checkpoint's files, versions
  NAME.f32   float32, little-endian: "parts" in NAME.json gives for each array its shape and the
             place of its first value:
    rows       all logits of every conversation's row
    top_ids    for every token of every conversation, one after the other: the TOP best ids of the
    top        row that it was chosen from, their logits,
    logsumexp  and the logarithm of the sum of all exponentials

A conversation in which a greedy step hangs on less than MARGIN, or a router or an indexer nearly
ties, says little about an engine that adds in another order; one that does not end within ROOM tokens is
no answer. They are left out, counted, and the next one of their kind taken."""
import argparse
import json
import pathlib
import random
import sys

import numpy as np

import golden  # first: it puts scripts/ on the path
import golden_qwen4
import numpy_forward
import numpy_qwen4

sys.path.insert(0, str(golden.HERE.parent / "tiny-model"))
import corpus  # noqa: E402

CONVERSATIONS = 50
SEED = 50
ROOM = 200          # tokens of an answer
TOP = 20
ROUTER_GAP = 1e-5   # in logits; sums in another order differ by a tenth of it
INDEX_GAP = 1e-5
APART = 2e-5        # between transformers and the NumPy forward
GOLDEN_RATIO = 0.618034


def kinds(rng):
    """Every kind of conversation in turn, tools twice: they are the longest and of most shapes."""
    kinds_of_a_round = [*corpus.MODULES, corpus.tools]
    while True:
        yield from rng.sample(kinds_of_a_round, len(kinds_of_a_round))


class Reference:
    """A checkpoint as transformers reads it, and as our NumPy forward does."""

    def __init__(self, directory):
        from transformers import PreTrainedTokenizerFast
        config = json.loads((directory / "config.json").read_text())
        generation = json.loads((directory / "generation_config.json").read_text())
        stops = generation["eos_token_id"]
        self.stops = stops if isinstance(stops, list) else [stops]
        if config["model_type"] == "qwen3_moe":
            self.model = golden.load_with_transformers(directory, golden.is_whole(config))
            self.other = numpy_forward.Model(directory)
        else:
            self.model = golden_qwen4.load_with_transformers(directory)
            self.other = numpy_qwen4.Model(directory)
        self.tokenizer = PreTrainedTokenizerFast(
            tokenizer_file=str(directory / "tokenizer.json"),
            chat_template=(directory / "chat_template.jinja").read_text())

    def prompt(self, messages, tools, thinking):
        text = self.tokenizer.apply_chat_template(
            messages, tools=tools, add_generation_prompt=True, enable_thinking=thinking,
            tokenize=False)
        return self.tokenizer.encode(text, add_special_tokens=False)

    def greedy(self, prompt):
        """Logits [len(prompt) + len(tokens) - 1, vocab] and tokens, the stop token included."""
        import torch
        rows, tokens, cache, feed = [], [], None, list(prompt)
        with torch.no_grad():
            while len(tokens) < ROOM and not (tokens and tokens[-1] in self.stops):
                out = self.model(torch.tensor([feed]), past_key_values=cache, use_cache=True)
                cache = out.past_key_values
                rows.append(out.logits[0].numpy())
                tokens.append(int(rows[-1][-1].argmax()))
                feed = tokens[-1:]
        return np.concatenate(rows), tokens

    def of_no_use(self, prompt, logits, tokens):
        """Why a conversation is of no use; an exception when the two references disagree."""
        if tokens[-1] not in self.stops:
            return f"no end within {ROOM} tokens"
        self.other.reset()
        other, other_tokens = self.other.greedy(prompt, len(tokens))
        margins = golden.margins_of(logits[len(prompt) - 1:])
        if margins.min() < golden.MARGIN:
            return f"a greedy step hangs on {margins.min():.1e}"
        if self.other.router_gap < ROUTER_GAP:
            return f"a router decides by {self.other.router_gap:.1e}"
        if getattr(self.other, "index_gap", np.inf) < INDEX_GAP:
            return f"an indexer decides by {self.other.index_gap:.1e}"
        apart = (np.linalg.norm(other - logits, axis=1) / np.linalg.norm(logits, axis=1)).max()
        if other_tokens != tokens or apart > APART:
            raise SystemExit(f"the NumPy forward differs by {apart:.1e}: {other_tokens} {tokens}")
        return None


def converse(reference, rng):
    """CONVERSATIONS of them with their logits, and why others were left out."""
    kept, left_out = [], []
    turns = kinds(rng)
    kind = next(turns)
    while len(kept) < CONVERSATIONS:
        talk = kind.conversation(rng)
        messages, tools = talk.messages[:-1], talk.tools  # without the reply that is learnt
        thinking = len(kept) % 2 == 0
        prompt = reference.prompt(messages, tools, thinking)
        logits, tokens = reference.greedy(prompt)
        why = reference.of_no_use(prompt, logits, tokens)
        if why:
            left_out.append(why)
            continue
        row = int(len(logits) * (len(kept) * GOLDEN_RATIO % 1))  # spread over all places
        margins = golden.margins_of(logits[len(prompt) - 1:])
        kept.append(({"messages": messages, "tools": tools, "thinking": thinking,
                      "prompt": prompt, "tokens": tokens, "row": row,
                      "margins": [round(float(m), 3) for m in margins]}, logits))
        kind = next(turns)
        print(f"{len(kept):3} {len(prompt):4} + {len(tokens):3}  "
              f"{reference.tokenizer.decode(tokens)!r}", flush=True)
    return kept, left_out


def parts_of(kept):
    rows = np.stack([logits[talk["row"]] for talk, logits in kept])
    answers = np.concatenate([logits[len(talk["prompt"]) - 1:] for talk, logits in kept])
    ids = np.argsort(-answers, axis=1, kind="stable")[:, :TOP]
    wide = answers.astype(np.float64)
    return {"rows": rows, "top_ids": ids, "top": np.take_along_axis(answers, ids, axis=1),
            "logsumexp": np.logaddexp.reduce(wide, axis=1)}


def hashes_of(directory):
    """Of what the numbers depend on."""
    hashes = golden.file_hashes(directory)
    return {name: value for name, value in hashes.items() if not name.endswith(".md")}


def write_golden(name, models, out):
    import torch
    import transformers
    reference = Reference(models / name)
    kept, left_out = converse(reference, random.Random(SEED))
    for why in left_out:
        print(f"{name}: left out: {why}")
    parts = golden_qwen4.write_parts(out / f"{name}.f32", parts_of(kept))
    head = {"checkpoint": name, "vocab": int(kept[0][1].shape[1]), "left_out": len(left_out),
            "parts": parts, "files": hashes_of(models / name),
            "made_with": {"torch": torch.__version__.split("+")[0],
                          "transformers": transformers.__version__, "dtype": "float32",
                          "attention": "eager"}}
    lines = [json.dumps(talk, ensure_ascii=False, separators=(",", ":")) for talk, _ in kept]
    (out / f"{name}.json").write_text(
        json.dumps(head)[:-1] + ',\n"conversations": [\n' + ",\n".join(lines) + "\n]}\n", "utf-8")


def main():
    parse = argparse.ArgumentParser(description=__doc__,
                                    formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("models", type=pathlib.Path)
    parse.add_argument("out", type=pathlib.Path)
    parse.add_argument("names", nargs="*", default=["chat-qwen3-moe", "chat-qwen4-exp"])
    args = parse.parse_args()

    for name in args.names:
        write_golden(name, args.models, args.out)


if __name__ == "__main__":
    main()
