"""Reads the goldens of Qwen4-Exp; scripts/oracle/golden_qwen4.py says what is in there."""
import json
import math

import numpy as np

import goldens  # first: it puts scripts/ on the path
from checkpoint.qwen4_variants import VARIANTS
from places import GOLDEN

NAMES = [variant.name for variant in VARIANTS]
OWN = [variant.name for variant in VARIANTS if not variant.same_as and not variant.bigrams]
SAME_AS = {variant.name: variant.same_as for variant in VARIANTS if variant.same_as}


class Golden(goldens.Golden):
    """Also streams [layers, rows, streams * hidden] of stream_rows, and what sub-layers say:
    parts["gdn0.out"] [rows, hidden], ..."""

    def __init__(self, name):
        name = SAME_AS.get(name, name)
        super().__init__(name)
        facts = json.loads((GOLDEN / f"{name}.json").read_text())
        raw = np.fromfile(GOLDEN / f"{name}-parts.f32", "<f4")
        self.parts = {part: raw[at["at"]:at["at"] + math.prod(at["shape"])].reshape(at["shape"])
                      for part, at in facts["parts"].items()}
        self.streams, self.stream_rows = self.parts.pop("streams"), facts["stream_rows"]
        self.index_gap = facts["index_gap"]
