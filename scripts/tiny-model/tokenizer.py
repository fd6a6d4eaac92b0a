"""The two small tokenizers, in the form of the released tokenizer.json.

Normaliser, split pattern, decoder and added tokens with their flags are those of the family; the
vocabulary is the 256 byte symbols and the merges that the `tokenizers` library learns from the
corpus. Added tokens follow the plain vocabulary in the released order, and none of their text is
seen while merges are learnt."""
import json
import lzma
import pathlib
import re
import sys

SCRIPTS = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(SCRIPTS))
from checkpoint import tokenizer as qwen3  # noqa: E402

DATA = SCRIPTS.parent / "tests/data"
N_MERGES = 4000
PADDING = 64  # the vocabulary of the model is a multiple of it
# Qwen3.8 counts marks among letters.
PATTERN_38 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
              r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
PATTERNS = {"qwen3_moe": qwen3.PATTERN, "qwen4_exp": PATTERN_38}


def added_tokens(family):
    """(text, special) in the released order."""
    if family == "qwen3_moe":
        return list(qwen3.ADDED)
    with lzma.open(DATA / "tokenizers/qwen3.8/tokenizer.json.xz") as released:
        listed = json.load(released)["added_tokens"]
    return [(token["content"], token["special"])
            for token in sorted(listed, key=lambda token: token["id"])]


def byte_level():
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False,
            "use_regex": False}


def file_text(family, vocab, merges):
    """tokenizer.json."""
    split = {"type": "Split", "pattern": {"Regex": PATTERNS[family]}, "behavior": "Isolated",
             "invert": False}
    return json.dumps({
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [
            {"id": len(vocab) + i, "content": text, "single_word": False, "lstrip": False,
             "rstrip": False, "normalized": False, "special": special}
            for i, (text, special) in enumerate(added_tokens(family))],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level()]},
        "post_processor": byte_level(),
        "decoder": byte_level(),
        "model": {"type": "BPE", "dropout": None, "unk_token": None,
                  "continuing_subword_prefix": "", "end_of_word_suffix": "",
                  "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": vocab, "merges": merges},
    }, indent=1, ensure_ascii=False) + "\n"


def learn(family, texts):
    """tokenizer.json of a new tokenizer. texts: rendered conversations."""
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers
    symbols = sorted(qwen3.byte_symbols().values(), key=ord)
    learner = Tokenizer(models.BPE())
    learner.normalizer = normalizers.NFC()
    learner.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(PATTERNS[family]), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)])
    trainer = trainers.BpeTrainer(vocab_size=256 + N_MERGES, initial_alphabet=symbols,
                                  min_frequency=2, show_progress=False)
    marks = re.compile("|".join(re.escape(text) for text, _ in added_tokens(family)))
    learner.train_from_iterator((part for text in texts for part in marks.split(text)), trainer)
    model = json.loads(learner.to_str())["model"]
    merges = [pair if isinstance(pair, list) else pair.split(" ") for pair in model["merges"]]
    vocab = {symbol: i for i, symbol in enumerate(symbols)}
    for left, right in merges:
        vocab.setdefault(left + right, len(vocab))
    return file_text(family, vocab, merges)


class TinyTokenizer:
    """Reads a tokenizer.json of ours."""

    def __init__(self, text):
        from tokenizers import Tokenizer
        self.text = text
        self.inner = Tokenizer.from_str(text)
        self.size = self.inner.get_vocab_size(with_added_tokens=True)
        self.n_plain = self.inner.get_vocab_size(with_added_tokens=False)
        self.padded_size = -(-self.size // PADDING) * PADDING
        self.end = self.id("<|im_end|>")

    def id(self, text):
        return self.inner.token_to_id(text)

    def encode(self, text):
        return self.inner.encode(text, add_special_tokens=False).ids

    def decode(self, ids):
        return self.inner.decode(ids, skip_special_tokens=False)

    def config_text(self):
        """tokenizer_config.json; the chat template is a file of its own."""
        added = json.loads(self.text)["added_tokens"]
        return json.dumps({
            "add_bos_token": False, "add_prefix_space": False,
            "added_tokens_decoder": {
                str(token["id"]): {key: token[key] for key in (
                    "content", "lstrip", "normalized", "rstrip", "single_word", "special")}
                for token in added},
            "bos_token": None, "clean_up_tokenization_spaces": False,
            "eos_token": "<|im_end|>", "errors": "replace", "model_max_length": 131072,
            "pad_token": "<|endoftext|>", "split_special_tokens": False,
            "tokenizer_class": "Qwen2Tokenizer", "unk_token": None,
        }, indent=1, ensure_ascii=False) + "\n"
