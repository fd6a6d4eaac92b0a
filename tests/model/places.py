"""Where things are: binaries in $COLIZIG_BUILD (default build), small checkpoints in build/models."""
import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = pathlib.Path(os.environ.get("COLIZIG_BUILD", ROOT / "build"))
SANITIZED = BUILD.name != "build"
MODELS = ROOT / "build/models"
GOLDEN = ROOT / "tests/data/golden"

sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "scripts/oracle")]
