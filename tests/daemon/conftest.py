"""Fixtures of the daemon tests: servers with a scripted or the real engine, ended with their
test file."""
import pytest

import server
from fake_model import DEMO_TOKENIZER, make_model


@pytest.fixture(scope="module")
def start_fake(tmp_path_factory):
    """start_fake(script, **settings) -> Server around the scripted engine. Dots in settings are
    written as two underscores."""
    started = []

    def start(script=None, wait="readyz", arguments=(), tokenizer=DEMO_TOKENIZER, **settings):
        workdir = tmp_path_factory.mktemp("fake")
        model = make_model(workdir / "fake-model", script or {}, tokenizer)
        settings = {key.replace("__", "."): value for key, value in settings.items()}
        started.append(server.Server(server.BUILD / "colizigd-fake", model, workdir, settings,
                                     arguments, wait))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.stop()


@pytest.fixture(scope="module")
def fake(start_fake):
    """One server per test file: varied text, quick, two workers."""
    return start_fake({"token_ms": 0.5, "prefill_ms": 0.01, "context": 2048})


@pytest.fixture(scope="module")
def start_real(tmp_path_factory):
    """start_real(model_name, **settings) -> Server around the real engine."""
    started = []

    def start(name="demo", ram="512MiB", wait="readyz", **settings):
        workdir = tmp_path_factory.mktemp("real")
        settings = {key.replace("__", "."): value for key, value in settings.items()}
        started.append(server.Server(server.BUILD / "colizigd", server.MODELS / name, workdir,
                                     settings, ("--ram", ram), wait))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.stop()
