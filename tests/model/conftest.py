"""Fixtures of the suites that run colizigctl: the small checkpoints, and an empty folder."""
import pathlib
import subprocess
import sys
import tempfile

import pytest

from places import MODELS, ROOT


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
