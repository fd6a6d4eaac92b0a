"""Runs colizigctl."""
import collections
import json
import pathlib
import subprocess
import tempfile

import numpy as np

from places import BUILD

Said = collections.namedtuple("Said", "status out err")
Run = collections.namedtuple("Run", "tokens logits facts")


def run(*args, timeout=100):
    done = subprocess.run([BUILD / "colizigctl", *map(str, args)], capture_output=True, text=True,
                          errors="replace", timeout=timeout, stdin=subprocess.DEVNULL, check=False)
    return Said(done.returncode, done.stdout, done.stderr)


def forward(model, prompt, steps=0, **options):
    """colizigctl forward, which must succeed: tokens, logits [rows, vocab], and what it said.
    Options become flags: prefill_rows=7 is --prefill-rows 7."""
    with tempfile.TemporaryDirectory(prefix="cz") as folder:
        file = pathlib.Path(folder) / "logits"
        args = ["forward", model, "--tokens", ",".join(map(str, prompt)), "--steps", steps,
                "--logits", file, "--json"]
        for name, value in options.items():
            args += ["--" + name.replace("_", "-"), value]
        said = run(*args)
        assert said.status == 0, f"{args[0]} {model.name} {options}: {said.err or said.out}"
        facts = json.loads(said.out)
        logits = np.fromfile(file, "<f4").reshape(facts["rows"], facts["vocab"])
        return Run(facts["tokens"], logits, facts)
