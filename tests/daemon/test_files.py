"""Model files that change or shrink while the daemon runs: errors, never garbage, never a crash."""
import os
import shutil
import time

import pytest

import server


@pytest.fixture
def copied(tmp_path):
    """A daemon on a copy of a small checkpoint, and the copy."""
    model = tmp_path / "model"
    shutil.copytree(server.MODELS / "tiny-fp8", model)
    workdir = tmp_path / "work"
    workdir.mkdir()
    daemon = server.Server(server.BUILD / "colizigd", model, workdir, {"memory.expert_slots": 7},
                           ("--ram", "512MiB"))
    yield daemon, model
    if daemon.process.poll() is None:
        daemon.stop()


def ask(daemon, **more):
    return daemon.post("/v1/completions", {"prompt": [5, 6, 7, 8] * 8, "max_tokens": 8,
                                           "temperature": 0, **more})


def test_a_shard_written_to_fails_requests_and_shows_in_health(copied):
    daemon, model = copied
    assert ask(daemon).status == 200
    shard = sorted(model.glob("*.safetensors"))[1]
    with open(shard, "r+b") as file:
        file.seek(-1, os.SEEK_END)
        last = file.read(1)
        file.seek(-1, os.SEEK_END)
        file.write(bytes([last[0] ^ 1]))
    time.sleep(1.1)
    answer = ask(daemon)
    assert answer.status == 500
    assert shard.name in answer.error()["message"]
    daemon.await_status("/health", 503, seconds=5)
    assert daemon.get("/readyz").json()["status"] == "failed"
    assert daemon.get("/livez").status == 200
    daemon.await_log("files changed")


def test_a_shard_cut_short_while_running_is_an_error_and_the_daemon_lives(copied):
    daemon, model = copied
    for shard in model.glob("*.safetensors"):
        os.truncate(shard, shard.stat().st_size // 2)
    answer = ask(daemon)
    assert answer.status == 500
    assert "safetensors" in answer.error()["message"]
    assert daemon.get("/livez").status == 200
    assert daemon.process.poll() is None


def test_a_model_moved_away_does_not_bring_the_daemon_down(copied):
    daemon, model = copied
    model.rename(model.with_name("elsewhere"))
    assert ask(daemon).status in (200, 500)
    assert daemon.get("/livez").status == 200
    assert daemon.process.poll() is None
