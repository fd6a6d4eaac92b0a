"""Model directories for the scripted engine; see tests/fakes/fake_engine.c."""
import json
import shutil

import server


def make_model(directory, script):
    """A directory with the demo model's tokenizer and what the fake engine is to do."""
    directory.mkdir(parents=True, exist_ok=True)
    shutil.copy(server.MODELS / "demo/tokenizer.json", directory / "tokenizer.json")
    (directory / "fake.json").write_text(json.dumps(script))
    return directory
