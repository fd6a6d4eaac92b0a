"""Where things are: binaries in $COLIZIG_BUILD (default build), small checkpoints in build/models."""
import os
import pathlib
import subprocess
import sys
import tempfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = pathlib.Path(os.environ.get("COLIZIG_BUILD", ROOT / "build"))
MODELS = ROOT / "build/models"
GOLDEN = ROOT / "tests/data/golden"

sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "scripts/oracle")]


@pytest.fixture(scope="session")
def models():
    """The folder of small checkpoints, up to date."""
    subprocess.run([sys.executable, ROOT / "scripts/make-checkpoint", "--all-tiny", MODELS],
                   check=True, timeout=110)
    return MODELS


@pytest.fixture
def scratch():
    """An empty folder with a short name: messages are cut at 252 bytes and hold its path."""
    with tempfile.TemporaryDirectory(prefix="cz") as folder:
        yield pathlib.Path(folder)
