"""Model directories for the scripted engine; see tests/fakes/fake_engine.c."""
import json
import shutil

import server


DEMO_TOKENIZER = server.MODELS / "demo/tokenizer.json"


def make_model(directory, script, tokenizer=DEMO_TOKENIZER):
    """A directory with a tokenizer and what the fake engine is to do."""
    directory.mkdir(parents=True, exist_ok=True)
    shutil.copy(tokenizer, directory / "tokenizer.json")
    (directory / "fake.json").write_text(json.dumps(script))
    return directory
