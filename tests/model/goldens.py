"""Reads tests/data/golden; scripts/oracle/golden.py says what is in there."""
import json

import numpy as np

from places import GOLDEN
from checkpoint.variants import VARIANTS  # places puts scripts/ on the path

# Every small checkpoint, and the ones with values of their own.
NAMES = [variant.name for variant in VARIANTS]
OWN = [variant.name for variant in VARIANTS if not variant.same_as]
SAME_AS = {variant.name: variant.same_as for variant in VARIANTS if variant.same_as}


class Golden:
    def __init__(self, name):
        name = SAME_AS.get(name, name)
        facts = json.loads((GOLDEN / f"{name}.json").read_text())
        self.prompt, self.tokens = facts["prompt"], facts["tokens"]
        self.margins, self.rows = facts["margins"], facts["rows"]
        self.files, self.vocab = facts["files"], facts["vocab"]
        self.logits = np.fromfile(GOLDEN / f"{name}.f32", "<f4").reshape(
            len(self.rows), self.vocab)

    def distance(self, logits):
        """The largest relative distance of a stored row from the same row of logits."""
        ours = logits[self.rows]
        return float((np.linalg.norm(ours - self.logits, axis=1)
                      / np.linalg.norm(self.logits, axis=1)).max())
