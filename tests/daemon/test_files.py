"""Model files that change while the daemon runs: errors that say so, no garbage, no crash."""
import os
import shutil
import signal
import time

import pytest

import server

PROMPT = [5, 6, 7, 8] * 8


@pytest.fixture
def copied(tmp_path):
    """start(**settings) -> a daemon on a copy of a small checkpoint that it reads from all the
    time, and the copy."""
    started = []

    def start(**settings):
        model = tmp_path / "model"
        shutil.copytree(server.MODELS / "tiny-fp8", model)
        workdir = tmp_path / "work"
        workdir.mkdir()
        settings = {"memory.expert_slots": 7} | \
            {key.replace("__", "."): value for key, value in settings.items()}
        started.append(server.Server(server.BUILD / "colizigd", model, workdir, settings,
                                     ("--ram", "512MiB")))
        return started[-1], model

    yield start
    for daemon in started:
        if daemon.process.poll() is None:
            daemon.stop()


def ask(daemon, **more):
    return daemon.post("/v1/completions", {"prompt": PROMPT, "max_tokens": 8, "temperature": 0,
                                           **more})


def text(daemon):
    answer = ask(daemon)
    assert answer.status == 200, answer.body
    return answer.text()


def a_shard(model):
    return sorted(model.glob("*.safetensors"))[1]


def flip_last_byte(shard):
    with open(shard, "r+b") as file:
        file.seek(-1, os.SEEK_END)
        last = file.read(1)
        file.seek(-1, os.SEEK_END)
        file.write(bytes([last[0] ^ 1]))


# ---- each way in which a file can change ----

def write(shard):
    flip_last_byte(shard)
    return "written to since it was opened"


def write_and_set_the_time_back(shard):
    before = shard.stat()
    flip_last_byte(shard)
    os.utime(shard, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert shard.stat().st_mtime_ns == before.st_mtime_ns
    return "its time of writing kept or set back"


def cut_short(shard):
    size = shard.stat().st_size
    os.truncate(shard, size // 2)
    return rf"{size // 2} bytes now, {size} when it was opened"


def replace(shard):
    other = shard.with_name("part")
    shutil.copy2(shard, other)
    other.rename(shard)
    return "replaced since it was opened"


def remove(shard):
    shard.unlink()
    return "gone since it was opened: No such file"


def move_the_folder(shard):
    shard.parent.rename(shard.parent.with_name("elsewhere"))
    return "gone since it was opened: No such file"


@pytest.mark.parametrize("change", [write, write_and_set_the_time_back, cut_short, replace, remove,
                                    move_the_folder])
def test_a_changed_file_shows_before_a_client_meets_it(copied, change):
    daemon, model = copied(http__workers=1)
    shard = a_shard(model)
    assert ask(daemon).status == 200
    said = change(shard)
    daemon.await_status("/health", 503, seconds=10)
    health = daemon.get("/health")
    assert "reload to load them anew" in health.error()["message"]
    assert ".safetensors: " in health.error()["message"]
    line = daemon.await_log(r"error engine: every request fails.*").group()
    assert "reload to load them anew" in line and ".safetensors: " in line
    daemon.await_log(said)
    for _ in range(2):
        answer = ask(daemon)
        assert answer.status == 503
        assert answer.error()["code"] == "engine_error"
        assert ".safetensors: " in answer.error()["message"]
        assert int(answer.headers["retry-after"]) > 0
    assert daemon.get("/readyz").json()["status"] == "failed"
    assert daemon.get("/livez").status == 200
    assert daemon.process.poll() is None
    if change in (write, write_and_set_the_time_back, replace):  # still a checkpoint
        daemon.signal(signal.SIGHUP)
        daemon.await_status("/readyz", 200)
        assert ask(daemon).status == 200


@pytest.mark.parametrize("change", [write, cut_short])
def test_a_running_stream_ends_with_an_error_that_names_the_file(copied, change):
    daemon, model = copied(http__workers=1)
    whole = daemon.stream(PROMPT, "/v1/completions", max_tokens=400).rest().text()
    with daemon.stream(PROMPT, "/v1/completions", max_tokens=4000) as stream:
        stream.read(4)
        change(a_shard(model))
        stream.rest()
    error = stream.events[-1]["error"]
    assert error["code"] == "engine_error"
    assert ".safetensors" in error["message"]
    assert stream.finish() is None
    # What was told is of the files as they were.
    told = "".join(choice["text"] for event in stream.events[:-1] for choice in event["choices"])
    assert told and (whole.startswith(told) or told.startswith(whole))
    assert daemon.get("/livez").status == 200


def test_a_request_in_the_moment_of_a_change_never_gets_an_answer_of_both(copied):
    daemon, model = copied(http__workers=1)
    assert ask(daemon).status == 200
    cut_short(a_shard(model))
    answer = ask(daemon)  # at once: nobody may have looked yet
    assert answer.status in (500, 503)
    assert answer.error()["code"] == "engine_error"
    daemon.await_log(r"[a-z0-9-]+\.safetensors")


def test_what_leaves_the_bytes_alone_stops_nothing(copied):
    daemon, model = copied(http__workers=1)
    shard = a_shard(model)
    before = text(daemon)
    for change in (lambda: shard.chmod(0o400), lambda: os.link(shard, shard.with_name("link"))):
        change()
        time.sleep(1.1)  # a look is due at the latest a second after the last
        assert text(daemon) == before
        assert daemon.get("/health").status == 200


# ---- tokenizer.json ----

def kill_and_await_another(daemon, name):
    before = daemon.children()[name][0]
    start = len(daemon.log())
    os.kill(before, signal.SIGKILL)
    pattern = "worker.*: serving" if name == "colizig-worker" else "engine: model is loaded"
    daemon.await_log(pattern, seconds=30, start=start)


def change_tokenizer(model):
    """The same vocabulary, in other bytes."""
    path = model / "tokenizer.json"
    old = path.read_bytes()
    path.write_bytes(old + b"\n")
    return lambda: path.write_bytes(old)


def test_a_worker_with_another_tokenizer_refuses_until_put_back_or_reloaded(copied):
    daemon, model = copied(http__workers=1)
    before = text(daemon)
    put_back = change_tokenizer(model)
    assert text(daemon) == before  # both have the old one

    kill_and_await_another(daemon, "colizig-worker")
    daemon.await_status("/health", 503)
    daemon.await_log("tokenizer.json changed since the engine loaded: requests are refused; put it "
                     "back, or reload")
    assert "tokenizer.json changed" in daemon.get("/health").error()["message"]
    answer = ask(daemon)
    assert answer.status == 503 and answer.error()["code"] == "engine_error"
    assert "tokenizer.json" in answer.error()["message"]

    put_back()
    kill_and_await_another(daemon, "colizig-worker")
    daemon.await_status("/readyz", 200)
    assert text(daemon) == before

    change_tokenizer(model)
    kill_and_await_another(daemon, "colizig-worker")
    daemon.await_status("/health", 503)
    daemon.signal(signal.SIGHUP)
    daemon.await_log("reload: done", seconds=30)
    daemon.await_status("/readyz", 200)
    assert text(daemon) == before


def test_workers_follow_an_engine_that_loaded_another_tokenizer(copied):
    daemon, model = copied(http__workers=2)
    before = text(daemon)
    change_tokenizer(model)
    kill_and_await_another(daemon, "colizig-door")
    daemon.await_log("beginning anew", seconds=30)
    daemon.await_status("/readyz", 200)
    deadline = time.monotonic() + 10
    while (answer := ask(daemon)).status != 200 and time.monotonic() < deadline:
        time.sleep(0.05)  # the other worker is on its way
    assert answer.text() == before
