"""Weights that make a random model babble in the words of its corpus.

Embeddings of the commonest tokens are rows of a Hadamard matrix, so they are exactly orthogonal;
the head then holds, for each pair of tokens that the corpus has in sequence, a score that grows
with the pair's count. The random layers in between are kept quieter than the embedding: they
choose among plausible continuations instead of drowning them."""
import collections
import math

import numpy as np

from . import numbers, weights

LAYER_GAIN = 0.3   # o_proj and down_proj, against those of the other tiny models
SEEN = 5.0          # score of a pair seen once; each doubling of its count adds
DOUBLING = 0.75
NOISE = 0.5


def hadamard(n):
    index = np.arange(n, dtype=np.uint32)
    both = index[:, None] & index[None, :]
    odd = np.zeros((n, n), dtype=np.uint32)
    for bit in range(n.bit_length()):
        odd ^= (both >> np.uint32(bit)) & np.uint32(1)
    return np.float32(1) - np.float32(2) * odd.astype(np.float32)


class Bigrams:
    def __init__(self, config, seed, tokenizer):
        vocab, hidden = config["vocab_size"], config["hidden_size"]
        ids = tokenizer.encode(tokenizer.text)
        counts = collections.Counter(ids)
        common = sorted(counts, key=lambda t: (-counts[t], t))[:hidden]

        self.embed = numbers.signs(numbers.stream(seed, "codes"), (vocab, hidden))
        mask = weights.common_direction(seed, hidden)
        self.embed[common] = hadamard(hidden)[:len(common)] * mask

        score = np.zeros((vocab, vocab), dtype=np.float32)  # [before, after], multiples of 1/4
        for (before, after), count in collections.Counter(zip(ids, ids[1:])).items():
            if before == after:
                continue  # "mm" would go on for ever
            score[before, after] = SEEN + DOUBLING * (count.bit_length() - 1)
        # Sums of small multiples of 1/4 are exact in double, whatever order a library adds them in.
        self.head = (score.T.astype(np.float64) @ self.embed.astype(np.float64)
                     / hidden).astype(np.float32)
        # Tokens seen once, after the same token, would otherwise have the same row.
        noise = numbers.normal(numbers.stream(seed, "head noise"), (tokenizer.n_plain, hidden),
                               NOISE / math.sqrt(hidden))
        self.head[:tokenizer.n_plain] += noise

    def values(self, config, seed, tensor, n_plain):
        if tensor.role == "embed":
            return self.embed
        if tensor.role == "head":
            return self.head
        floats = weights.values(config, seed, tensor, n_plain)
        if tensor.name.endswith(("o_proj.weight", "down_proj.weight")):
            floats *= np.float32(LAYER_GAIN)
        return floats
