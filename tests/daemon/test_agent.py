"""A coding agent edits a file, headless. Only in `make check-clients`: it brings half a gigabyte."""
import os
import pathlib
import subprocess
import sys

import pytest

pytestmark = pytest.mark.clients
EDIT = """<think>
The greeting is too short.
</think>

greet.py
```
<<<<<<< SEARCH
    return "hello"
=======
    return "hello, world"
>>>>>>> REPLACE
```
"""


def test_aider_edits_a_file(start_fake, tmp_path):
    server = start_fake({"token_ms": 0.2, "context": 32768,
                         "replies": [{"on": None, "text": EDIT}]},
                        model__chat_template="builtin:qwen3")
    file = tmp_path / "greet.py"
    file.write_text('def greet():\n    return "hello"\n')
    aider = pathlib.Path(sys.executable).parent / "aider"
    done = subprocess.run(
        [aider, "--model", "openai/fake-model", "--openai-api-base", server.base + "/v1",
         "--openai-api-key", "none", "--edit-format", "diff", "--no-git", "--yes-always",
         "--no-auto-lint", "--no-check-update", "--no-show-model-warnings", "--analytics-disable",
         "--no-show-release-notes", "--no-detect-urls", "--map-tokens", "0", "--message",
         "Greet the world.", file.name],
        cwd=tmp_path, capture_output=True, text=True, timeout=100, stdin=subprocess.DEVNULL,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path),
             "LITELLM_LOCAL_MODEL_COST_MAP": "True"})
    assert done.returncode == 0, done.stdout + done.stderr
    assert file.read_text() == 'def greet():\n    return "hello, world"\n', done.stdout
