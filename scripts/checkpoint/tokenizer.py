"""A small byte-level BPE tokenizer in the form of Qwen3's tokenizer.json.

Normaliser, split pattern, decoder and the 26 added tokens with their flags are Qwen3's; the
vocabulary is the 256 byte symbols and some merges learned from corpus.txt (the Constitution of the
United States, in the public domain)."""
import collections
import json
import pathlib
import re

CORPUS = pathlib.Path(__file__).with_name("corpus.txt")

PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
           r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
# The same for ASCII text, in what Python's own re understands.
ASCII_PATTERN = re.compile(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\na-zA-Z0-9]?[a-zA-Z]+|[0-9]"
    r"| ?[^\sa-zA-Z0-9]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")

ADDED = [  # in the order of their ids; True: "special", left out of decoded text
    ("<|endoftext|>", True), ("<|im_start|>", True), ("<|im_end|>", True),
    ("<|object_ref_start|>", True), ("<|object_ref_end|>", True), ("<|box_start|>", True),
    ("<|box_end|>", True), ("<|quad_start|>", True), ("<|quad_end|>", True),
    ("<|vision_start|>", True), ("<|vision_end|>", True), ("<|vision_pad|>", True),
    ("<|image_pad|>", True), ("<|video_pad|>", True), ("<tool_call>", False),
    ("</tool_call>", False), ("<|fim_prefix|>", False), ("<|fim_middle|>", False),
    ("<|fim_suffix|>", False), ("<|fim_pad|>", False), ("<|repo_name|>", False),
    ("<|file_sep|>", False), ("<tool_response>", False), ("</tool_response>", False),
    ("<think>", False), ("</think>", False),
]


def byte_symbols():
    """GPT-2's printable stand-in for every byte, listed by byte value."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    symbols, spare = {}, 256
    for byte in range(256):
        if byte in printable:
            symbols[byte] = chr(byte)
        else:
            symbols[byte] = chr(spare)
            spare += 1
    return symbols


def merge_pair(symbols, pair):
    out, i = [], 0
    while i < len(symbols):
        if i + 1 < len(symbols) and (symbols[i], symbols[i + 1]) == pair:
            out.append(symbols[i] + symbols[i + 1])
            i += 2
        else:
            out.append(symbols[i])
            i += 1
    return tuple(out)


def learn_merges(text, n_merges):
    """The most frequent pair again and again; of equals, the one that sorts first."""
    to_symbol = byte_symbols()
    counts = collections.Counter(ASCII_PATTERN.findall(text))
    words = [(tuple(to_symbol[b] for b in word.encode()), n) for word, n in counts.items()]
    pairs = collections.Counter()
    for word, n in words:
        for pair in zip(word, word[1:]):
            pairs[pair] += n
    merges = []
    while len(merges) < n_merges:
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        merges.append(best)
        for i, (word, n) in enumerate(words):
            if best[0] not in word or best[1] not in word:
                continue
            merged = merge_pair(word, best)
            for pair in zip(word, word[1:]):
                pairs[pair] -= n
            for pair in zip(merged, merged[1:]):
                pairs[pair] += n
            words[i] = merged, n
    return merges


class Tokenizer:
    """The vocabulary, tokenizer.json's text, and enough of an encoder for ASCII text."""

    def __init__(self, n_merges=200):
        symbols = sorted(byte_symbols().values(), key=ord)
        self.text = CORPUS.read_text(encoding="ascii")
        self.merges = learn_merges(self.text, n_merges)
        self.vocab = {symbol: i for i, symbol in enumerate(symbols)}
        for left, right in self.merges:
            self.vocab[left + right] = len(self.vocab)
        self.n_plain = len(self.vocab)  # ids from here on are added tokens
        self.added = {text: self.n_plain + i for i, (text, _) in enumerate(ADDED)}
        self.size = self.n_plain + len(ADDED)

    def encode(self, text):
        to_symbol, out = byte_symbols(), []
        for word in ASCII_PATTERN.findall(text):
            parts = tuple(to_symbol[b] for b in word.encode("ascii"))
            for pair in self.merges:
                if len(parts) == 1:
                    break
                parts = merge_pair(parts, pair)
            out.extend(self.vocab[part] for part in parts)
        return out

    def decode(self, ids):
        pieces = {i: piece for piece, i in self.vocab.items()}
        to_byte = {symbol: byte for byte, symbol in byte_symbols().items()}
        added = {i: text for text, i in self.added.items()}
        return b"".join(
            added[i].encode() if i in added else bytes(to_byte[c] for c in pieces.get(i, ""))
            for i in ids).decode(errors="replace")

    def json(self):
        byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False,
                      "use_regex": False}
        split = {"type": "Split", "pattern": {"Regex": PATTERN}, "behavior": "Isolated",
                 "invert": False}
        return json.dumps({
            "version": "1.0", "truncation": None, "padding": None,
            "added_tokens": [
                {"id": self.added[text], "content": text, "single_word": False, "lstrip": False,
                 "rstrip": False, "normalized": False, "special": special}
                for text, special in ADDED],
            "normalizer": {"type": "NFC"},
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]},
            "post_processor": byte_level,
            "decoder": byte_level,
            "model": {"type": "BPE", "dropout": None, "unk_token": None,
                      "continuing_subword_prefix": "", "end_of_word_suffix": "",
                      "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                      "vocab": self.vocab, "merges": [list(pair) for pair in self.merges]},
        }, indent=1, ensure_ascii=False) + "\n"

    def config_json(self):
        """tokenizer_config.json, without a chat template: the daemon writes ChatML itself."""
        return json.dumps({
            "add_bos_token": False, "add_prefix_space": False,
            "added_tokens_decoder": {
                str(self.added[text]): {"content": text, "lstrip": False, "normalized": False,
                                        "rstrip": False, "single_word": False, "special": special}
                for text, special in ADDED},
            "bos_token": None, "clean_up_tokenization_spaces": False,
            "eos_token": "<|im_end|>", "errors": "replace", "model_max_length": 131072,
            "pad_token": "<|endoftext|>", "split_special_tokens": False,
            "tokenizer_class": "Qwen2Tokenizer", "unk_token": None,
        }, indent=1, ensure_ascii=False) + "\n"
