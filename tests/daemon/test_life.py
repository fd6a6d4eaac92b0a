"""Processes: start, readiness, stop, death and return; exit codes; what systemd is told."""
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time

import pytest

import server as daemon
from admin import Admin
from fake_model import make_model

FAKE = daemon.BUILD / "colizigd-fake"


def run(*arguments, timeout=30, **more):
    return subprocess.run([str(word) for word in [FAKE, *arguments]], capture_output=True,
                          text=True, timeout=timeout, stdin=subprocess.DEVNULL, check=False,
                          **more)


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def until(condition, seconds=10):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)


def only(server, name):
    (pid,) = server.children()[name]
    return pid


def serves_again(server):
    """Ready says one worker; the other may hear of the new engine a moment later."""
    server.await_status("/readyz", 200)
    until(lambda: server.chat("hi", max_tokens=2).status == 200)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return make_model(tmp_path_factory.mktemp("model") / "fake-model", {})


def test_workers_that_end_at_once_end_the_start(tmp_path):
    """Both at nearly the same moment, and twelve daemons side by side so that moments vary."""
    model = make_model(tmp_path / "model", {})
    (model / "chat_template.jinja").write_text("{% if %}")
    started = [subprocess.Popen(
        [FAKE, "--model", model, "--listen", "127.0.0.1:0", "--set", "http.workers=4", "--set",
         "admin.socket=", "--set", f"state.dir={tmp_path}/{n}"], stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=daemon.environment())
        for n in range(12)]
    try:
        for one in started:
            _, said = one.communicate(timeout=30)
            assert one.returncode == 3, said.decode()
    finally:
        for one in started:
            one.kill()
            one.wait()


# ---- the command line ----

def test_help_fits_a_screen():
    done = run("--help")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert len(lines) <= 24 and max(map(len, lines)) <= 80
    assert done.stderr == ""


def test_version_is_one_line():
    done = run("--version")
    assert done.returncode == 0 and done.stdout.startswith("colizigd 0.")
    assert len(done.stdout.splitlines()) == 1


@pytest.mark.parametrize("arguments, words", [
    (["--ramm", "8G"], "--ramm"),
    (["--ram"], "--ram needs a value"),
    (["serve"], "'serve'"),
    (["--model", "/no/such/place"], "/no/such/place"),
    (["--model", "MODEL", "--ram", "12 giraffes"], "--ram: '12 giraffes'"),
    (["--model", "MODEL", "--ram", "1e30"], "--ram"),
    (["--model", "MODEL", "--ram", "-1"], "--ram"),
    (["--model", "MODEL", "--set", "memory.rom=1"],
     "colizigd: memory.rom: unknown setting; did you mean 'memory.ram'?"),
    (["--model", "MODEL", "--set", "engin.queue=1"], "a section 'engine'"),
    (["--model", "MODEL", "--set", "queue=1"], "queue: unknown setting"),
    (["--model", "MODEL", "--set", "memory.vram=4G"], "not built"),
    (["--model", "MODEL", "--set", "engine.device=cuda"], "not built"),
    (["--model", "MODEL", "--listen", "0.0.0.0:18150"], "--insecure-no-auth"),
    (["--model", "MODEL", "--listen", "nowhere"], "'nowhere'"),
    (["--config", "/no/such/file.yaml"], "/no/such/file.yaml"),
    (["--role=engine"], "--role"),
    ([], "--model"),
])
def test_a_wrong_flag_ends_with_2_and_its_name(model, arguments, words):
    done = run(*[str(model) if word == "MODEL" else word for word in arguments], timeout=10)
    assert done.returncode == 2, done.stderr
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_small_limit_of_descriptors_names_the_one_that_is_needed(model, tmp_path):
    arguments = [FAKE, "--model", model, "--listen", "127.0.0.1:0",
                 "--set", f"admin.socket={tmp_path}/a.sock"]
    done = subprocess.run(["prlimit", "--nofile=64:64", *map(str, arguments)], check=False,
                          capture_output=True, text=True, timeout=10, stdin=subprocess.DEVNULL)
    assert done.returncode == 2
    need = int(re.search(r"ulimit -n (\d+)", done.stderr).group(1))
    assert f"LimitNOFILE={need}" in done.stderr
    # With just as many it serves; and a soft limit is no obstacle.
    for limits in f"{need}:{need}", f"64:{need}":
        with open(tmp_path / "log", "wb") as log:
            process = subprocess.Popen(["prlimit", f"--nofile={limits}", *map(str, arguments)],
                                       stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            until(lambda: "supervisor: ready" in (tmp_path / "log").read_text(), 20)
        finally:
            process.terminate()
            assert process.wait(15) == 0


@pytest.mark.parametrize("name", ["WATCHDOG_USEC", "WATCHDOG_PID"])
def test_garbage_in_the_environment_is_named(model, tmp_path, name):
    environment = {**os.environ, "WATCHDOG_USEC": "1000000", name: "x"}
    done = run("--model", model, "--listen", "127.0.0.1:0", "--set",
               f"admin.socket={tmp_path}/a.sock", timeout=10, env=environment)
    assert done.returncode == 2
    assert name in done.stderr and "unset" in done.stderr


@pytest.mark.parametrize("text, where", [
    ("memory:\n  ram: 12 giraffes\n", ":2:8: memory.ram"),
    ("memory:\n  ramm: 8G\n", ":2:3: unknown key 'ramm'"),
    ("memory: {ram: 8G, ram: 8G}\n", ":1:19: memory.ram is there twice"),
    ("http:\n- a\n", ":2:1: "),
    ("memory: {ram: 8G\n", "bad.yaml:"),
])
def test_a_wrong_config_ends_with_2_and_its_place(model, tmp_path, text, where):
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    for more in [], ["--check-config"]:
        done = run("--config", path, "--model", model, *more, timeout=10)
        assert done.returncode == 2
        assert f"{path}" in done.stderr and where in done.stderr


def test_check_config_prints_the_plan_and_its_codes(model, tmp_path):
    done = run("--model", model, "--check-config")
    assert done.returncode == 0 and "total" in done.stdout and done.stderr == ""
    done = run("--model", model, "--check-config", "--ram", "10MiB")
    assert done.returncode == 4 and "96 MiB" in done.stderr
    broken = make_model(tmp_path / "broken", {})
    (broken / "fake.json").write_text("{")
    done = run("--model", broken, "--check-config")
    assert done.returncode == 3 and "fake.json" in done.stderr


def test_check_config_looks_at_the_folder_of_state_and_makes_none(model, tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for path, words in (("file", "no folder"), ("file/state", "cannot be made"),
                        ("missing/state", "cannot be made"), ("link", "No such file")):
        done = run("--model", model, "--check-config", "--set", f"state.dir={tmp_path / path}")
        assert done.returncode == 2 and "state.dir" in done.stderr and words in done.stderr
    for more in [], ["--check-config"]:
        done = run("--model", model, *more, "--set", "state.dir=state", cwd=tmp_path)
        assert done.returncode == 2 and "'state' is no absolute path" in done.stderr
    for path in "new", "new//", ".":
        done = run("--model", model, "--check-config", "--set", f"state.dir={tmp_path}/{path}")
        assert done.returncode == 0, done.stderr
    assert not (tmp_path / "new").exists() and not (tmp_path / "state").exists()


@pytest.mark.parametrize("script, ram, status, words", [
    ({"open_error": "shard 3 is cut short"}, "1GiB", 3, "shard 3 is cut short"),
    ({}, "10MiB", 4, "96 MiB"),
])
def test_what_cannot_get_better_is_not_tried_again(tmp_path, script, ram, status, words):
    model = make_model(tmp_path / "m", script)
    start = time.monotonic()
    done = run("--model", model, "--ram", ram, "--listen", "127.0.0.1:0",
               "--set", f"admin.socket={tmp_path}/a.sock")
    assert done.returncode == status
    assert words in done.stderr
    assert "again" not in done.stderr
    assert time.monotonic() - start < 10
    assert not (tmp_path / "a.sock").exists()


def test_a_port_in_use_is_named(model, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = "127.0.0.1:%d" % taken.getsockname()[1]
        done = run("--model", model, "--listen", address,
                   "--set", f"admin.socket={tmp_path}/a.sock", timeout=10)
    assert done.returncode == 1
    assert address in done.stderr and "another program" in done.stderr


def test_a_second_daemon_on_the_same_admin_socket_does_not_start(start_fake, model):
    server = start_fake()
    path = server.log_path.parent / "admin.sock"
    done = run("--model", model, "--listen", "127.0.0.1:0", "--set", f"admin.socket={path}",
               timeout=10)
    assert done.returncode == 1 and "another daemon" in done.stderr
    with Admin(server) as admin:
        assert admin.ask("status")["ok"]
    server.process.kill()
    server.process.wait()
    assert path.exists()
    again = daemon.Server(FAKE, model, path.parent, {})  # a dead one's file is no obstacle
    assert again.stop() == 0


# ---- stopping ----

def test_sigterm_ends_everything_with_0(start_fake):
    server = start_fake()
    pids = [pid for pids in server.children().values() for pid in pids]
    assert len(pids) == 3
    assert server.stop() == 0
    assert not any(alive(pid) for pid in pids)
    assert not (server.log_path.parent / "admin.sock").exists()


def test_sigint_is_a_stop_too(start_fake):
    server = start_fake()
    server.signal(signal.SIGINT)
    assert server.process.wait(10) == 0


def test_a_stop_while_loading_is_quick_and_fine(start_fake):
    server = start_fake({"load_ms": 60000}, wait=None)
    server.await_log("engine started")
    start = time.monotonic()
    assert server.stop() == 0
    assert time.monotonic() - start < 5


def test_a_running_answer_finishes_before_the_stop(start_fake):
    server = start_fake({"token_ms": 5})
    with server.stream("hello", max_tokens=200) as stream:
        stream.read(3)
        server.signal(signal.SIGTERM)
        stream.rest()
        assert stream.done and stream.finish() == "length"
    assert server.process.wait(10) == 0


def test_an_answer_past_the_drain_timeout_is_cut_and_the_status_is_0(start_fake):
    server = start_fake({"token_ms": 20}, http__drain_timeout="1s")
    with server.stream("hello", max_tokens=4000) as stream:
        stream.read(3)
        start = time.monotonic()
        server.signal(signal.SIGTERM)
        stream.rest()
        assert not stream.finish()
        assert server.process.wait(15) == 0
        assert 0.9 < time.monotonic() - start < 8


def test_who_came_before_the_stop_and_asks_just_after_it_is_answered(start_fake):
    """Behind systemd's socket clients are told to wait, not to go; nobody may be cut off."""
    server = start_fake()
    server.await_log("supervisor: ready", 20)  # all workers, not only the one that said so

    def sockets():
        return sum(len(daemon.socket_inodes(pid)) for pid in server.children()["colizig-worker"])

    before = sockets()
    with server.connect() as silent, server.connect() as late:
        until(lambda: sockets() == before + 2)
        late.send_raw(b"GET /livez HT")
        server.signal(signal.SIGTERM)
        server.await_log(r"draining(?s:.*)draining")
        late.send_raw(b"TP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        answer = late.answer()
        assert answer.status == 200 and answer.closed
        assert late.at_end()
        began = time.monotonic()
        assert server.process.wait(10) == 0
        assert time.monotonic() - began < 5, "who says nothing is not waited for"
        assert silent.at_end()


def test_a_stop_in_a_long_prefill_ends_in_time_and_is_told(start_fake):
    server = start_fake({"prefill_ms": 1000}, http__drain_timeout="1s")
    with server.connect(20) as whole, server.stream("a long story", max_tokens=5) as stream:
        whole.send("POST", "/v1/completions", {"prompt": "a long story", "max_tokens": 5})
        with Admin(server) as admin:
            until(lambda: admin.ask("status")["data"]["engine"]["running"] == 2)
        start = time.monotonic()
        server.signal(signal.SIGTERM)
        stream.rest()
        assert stream.events[-1]["error"]["code"] == "draining"
        answer = whole.answer()
        assert answer.status == 503 and answer.error()["code"] == "draining"
        assert int(answer.headers["retry-after"]) > 0
    assert server.process.wait(15) == 0
    assert time.monotonic() - start < 6


def test_a_half_sent_body_does_not_hold_up_the_stop_and_is_told(start_fake):
    server = start_fake(http__drain_timeout="1s")
    with server.connect() as half:
        half.send_raw(b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 500\r\n"
                      b"Content-Type: application/json\r\n\r\n{\"prompt\":")
        with Admin(server) as admin:
            until(lambda: sum(worker["requests"] for worker in
                              admin.ask("status")["data"]["workers"]) == 1)
        start = time.monotonic()
        server.signal(signal.SIGTERM)
        answer = half.answer()
        assert answer.status == 503 and answer.error()["code"] == "draining"
    assert server.process.wait(15) == 0
    assert time.monotonic() - start < 6


@pytest.mark.parametrize("how", ["hangs", "is stopped"])
def test_an_engine_that_does_not_stop_is_not_waited_for(start_fake, how):
    server = start_fake({"hang_on_text": "xyzzy"}, http__drain_timeout="1s")
    with server.stream("xyzzy" if how == "hangs" else "hello", max_tokens=100000) as stream:
        if how == "is stopped":
            stream.read(2)
            os.kill(only(server, "colizig-door"), signal.SIGSTOP)
        start = time.monotonic()
        server.signal(signal.SIGTERM)
        stream.rest()
    assert server.process.wait(20) == 0
    assert time.monotonic() - start < 10


def test_a_worker_that_is_stopped_does_not_cost_the_drain_timeout(start_fake):
    server = start_fake(http__drain_timeout="60s", engine__stall_timeout="1s")
    assert server.chat("hi", max_tokens=2).status == 200
    os.kill(server.children()["colizig-worker"][0], signal.SIGSTOP)
    start = time.monotonic()
    server.signal(signal.SIGTERM)
    server.await_log("is silent and is killed", 20)
    assert server.process.wait(20) == 0
    assert time.monotonic() - start < 12


def test_an_admin_can_stop_it_with_a_timeout_of_its_own(start_fake):
    server = start_fake({"token_ms": 20}, http__drain_timeout="60s")
    with server.stream("hello", max_tokens=4000) as stream:
        stream.read(3)
        start = time.monotonic()
        with Admin(server) as admin:
            assert admin.ask("drain", timeout="1s")["ok"]
            assert admin.ask("status")["data"]["phase"] == "draining"
            assert admin.ask("drain")["error"]["kind"] == "busy"
            assert admin.ask("reload")["error"]["kind"] == "busy"
        stream.rest()
        assert stream.events[-1]["error"]["code"] == "draining"
    assert server.process.wait(15) == 0
    assert 0.9 < time.monotonic() - start < 6


def test_a_second_signal_stops_at_once(start_fake):
    server = start_fake({"token_ms": 20}, http__drain_timeout="60s")
    with server.stream("hello", max_tokens=4000) as stream:
        stream.read(3)
        server.signal(signal.SIGTERM)
        server.await_log("stopping")
        time.sleep(0.2)
        start = time.monotonic()
        server.signal(signal.SIGTERM)
        assert server.process.wait(10) == 0
        assert time.monotonic() - start < 3


def test_one_wish_to_stop_told_twice_lets_requests_finish(start_fake):
    server = start_fake({"token_ms": 10}, http__drain_timeout="60s")
    with server.stream("hello", max_tokens=100) as stream:
        stream.read(3)
        server.signal(signal.SIGTERM)
        server.signal(signal.SIGTERM)
        while stream.next() is not None:
            pass
        assert stream.done and not stream.broken
    assert server.process.wait(10) == 0


def test_children_leave_signals_to_the_supervisor(start_fake):
    server = start_fake()
    before = server.children()
    for pids in before.values():
        for pid in pids:
            for number in signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE:
                os.kill(pid, number)
    time.sleep(0.3)
    assert server.children() == before
    assert server.chat("hi", max_tokens=2).status == 200
    assert server.stop() == 0


# ---- dying ----

def test_a_killed_worker_returns_and_others_serve_meanwhile(start_fake):
    server = start_fake()
    workers = server.children()["colizig-worker"]
    os.kill(workers[0], signal.SIGKILL)
    for _ in range(20):
        assert server.chat("hi", max_tokens=2).status == 200
    until(lambda: len(server.children().get("colizig-worker", [])) == 2)
    fresh = set(server.children()["colizig-worker"]) - set(workers)
    os.kill(workers[1], signal.SIGKILL)  # now the new one must serve
    until(lambda: not alive(workers[1]))
    assert server.chat("hi", max_tokens=2).status == 200
    assert len(fresh) == 1 and alive(fresh.pop())
    assert server.stop() == 0


def test_a_killed_worker_frees_its_requests(start_fake):
    server = start_fake({"token_ms": 5, "sequences": 1, "queue": 0}, http__workers=1)
    stream = server.stream("hello", max_tokens=4000)
    stream.read(3)
    os.kill(only(server, "colizig-worker"), signal.SIGKILL)
    stream.rest()
    assert stream.broken
    stream.close()
    serves_again(server)
    assert server.stop() == 0


def test_a_killed_engine_fails_its_streams_and_returns(start_fake):
    server = start_fake({"token_ms": 5, "load_ms": 300})
    stream = server.stream("hello", max_tokens=4000)
    stream.read(3)
    os.kill(only(server, "colizig-door"), signal.SIGKILL)
    stream.rest()
    assert "error" in stream.events[-1] and not stream.finish()
    stream.close()
    assert server.get("/readyz").status == 503
    assert server.chat().status == 503
    serves_again(server)
    server.await_log(r"engine died signal=9")
    assert server.stop() == 0


def test_a_crash_costs_only_the_engine_and_its_cause_is_logged(start_fake):
    server = start_fake({"crash_on_text": "xyzzy", "crash_after": 3})
    workers = server.children()["colizig-worker"]
    with server.stream("say xyzzy") as stream:
        stream.rest()
        assert "error" in stream.events[-1]
    server.await_log(r"error supervisor: engine died signal=\d+")
    serves_again(server)
    assert server.children()["colizig-worker"] == workers
    assert server.stop() == 0


def test_an_engine_that_keeps_dying_ends_the_daemon(start_fake):
    server = start_fake()
    for death in range(5):
        until(lambda: len(server.children().get("colizig-door", [])) == 1, 20)
        os.kill(only(server, "colizig-door"), signal.SIGKILL)
        server.await_log(rf"(?s)(engine died signal=9.*){{{death + 1}}}", 20)
    assert server.process.wait(10) == 1
    assert "giving up" in server.log()


def test_a_hanging_engine_is_aborted_and_returns(start_fake):
    server = start_fake({"hang_on_text": "xyzzy"}, engine__stall_timeout="1s")
    assert server.chat("hi", max_tokens=2).status == 200
    with server.stream("say xyzzy", timeout=20) as stream:
        stream.rest()
        if stream.answer.status == 200:
            assert "error" in stream.events[-1]
        else:
            assert stream.answer.status == 503
    server.await_log("engine hangs")
    server.await_log("engine died signal=6")
    serves_again(server)
    assert server.stop() == 0


def test_an_engine_that_is_stopped_is_killed_and_returns(start_fake):
    server = start_fake(engine__stall_timeout="1s")
    assert server.chat("hello", max_tokens=3).status == 200
    time.sleep(1.2)  # a first pulse
    engine = server.children()["colizig-door"][0]
    os.kill(engine, signal.SIGSTOP)
    server.await_log("engine is silent and is killed", seconds=10)
    server.await_log("engine started", start=server.log().index("silent"))
    server.await_status("/readyz", 200, seconds=10)
    assert server.chat("hello", max_tokens=3).status == 200


def test_an_idle_or_slow_engine_is_not_taken_for_hanging(start_fake):
    server = start_fake({"token_ms": 100}, engine__stall_timeout="1s")
    engine = only(server, "colizig-door")
    time.sleep(2.2)
    answer = server.chat("hi", max_tokens=25)
    assert answer.status == 200, answer.body
    assert only(server, "colizig-door") == engine
    assert server.stop() == 0


def test_the_real_engine_returns_after_a_kill_with_the_same_answer(start_real):
    server = start_real("demo", engine__context=512)
    before = server.chat("hello", max_tokens=16)
    assert before.status == 200
    with server.stream("hello", max_tokens=400) as stream:
        stream.read(3)
        os.kill(only(server, "colizig-door"), signal.SIGKILL)
        stream.rest()
        assert "error" in stream.events[-1]
    serves_again(server)
    assert server.chat("hello", max_tokens=16).text() == before.text()
    assert server.stop() == 0


def test_nothing_outlives_a_killed_supervisor(start_fake):
    server = start_fake({"token_ms": 20})
    pids = [pid for pids in server.children().values() for pid in pids]
    stream = server.stream("hello", max_tokens=4000)
    stream.read(3)
    server.process.kill()
    server.process.wait()
    until(lambda: not any(alive(pid) for pid in pids), 5)
    stream.close()


def test_a_worker_that_stops_reading_is_replaced(start_fake):
    """The engine gives it up when its outbox is full; no one else suffers."""
    server = start_fake({"token_ms": 0.01, "sequences": 16, "queue": 64, "context": 200000},
                        http__workers=2)
    streams = [server.stream("hello", max_tokens=150000) for _ in range(12)]
    for stream in streams:
        stream.read(1)
    # Which worker accepts is chance; the one with the most sockets has streams.
    stuck = max(server.children()["colizig-worker"], key=lambda pid: len(daemon.socket_inodes(pid)))
    os.kill(stuck, signal.SIGSTOP)
    try:
        server.await_log("the engine gave it up", 60)
    finally:
        for stream in streams:
            stream.close()
        with contextlib.suppress(ProcessLookupError):
            os.kill(stuck, signal.SIGCONT)
    until(lambda: not alive(stuck))
    until(lambda: len(server.children().get("colizig-worker", [])) == 2)
    assert server.chat("hi", max_tokens=2).status == 200
    assert server.stop() == 0


def test_a_worker_that_is_silent_is_replaced_and_others_serve_meanwhile(start_fake):
    server = start_fake(engine__stall_timeout="1s")
    workers = server.children()["colizig-worker"]
    for slot in range(2):  # one that has not begun to serve is given more time
        server.await_log(rf"worker\[{slot}\]: serving", 20)
    os.kill(workers[0], signal.SIGSTOP)
    for _ in range(10):
        assert server.get("/version").status == 200
    server.await_log("is silent and is killed", 20)
    until(lambda: len(server.children().get("colizig-worker", [])) == 2
          and workers[0] not in server.children()["colizig-worker"])
    with Admin(server) as admin:
        until(lambda: all(w["ready"] for w in admin.ask("status")["data"]["workers"]))
    assert server.chat("hi", max_tokens=2).status == 200
    assert server.stop() == 0


def test_a_worker_that_cannot_start_again_is_retried_while_others_serve(start_fake):
    server = start_fake()
    server.await_log("supervisor: ready", 20)  # at the start it would end the daemon
    tokenizer = server.log_path.parent / "fake-model/tokenizer.json"
    whole = tokenizer.read_bytes()
    tokenizer.write_text("{")
    victim, other = server.children()["colizig-worker"]
    os.kill(victim, signal.SIGKILL)
    server.await_log(r"(?s)(worker \d ended status=3.*){2}", 10)
    with Admin(server) as admin:
        texts = [worker.get("status", "") for worker in admin.ask("status")["data"]["workers"]]
        assert any("tokenizer.json" in text for text in texts)
    assert server.chat("hi", max_tokens=2).status == 200
    assert other in server.children()["colizig-worker"]
    tokenizer.write_bytes(whole)
    until(lambda: len(server.children()["colizig-worker"]) == 2)
    with Admin(server) as admin:
        until(lambda: all(w["ready"] for w in admin.ask("status")["data"]["workers"]), 20)
    assert server.stop() == 0


def test_children_get_only_the_descriptors_meant_for_them(start_fake):
    server = start_fake()
    listening = {line.split()[9] for line in open("/proc/net/tcp").read().splitlines()[1:]
                 if line.split()[3] == "0A"}
    mine = daemon.socket_inodes(server.pid) & listening
    assert len(mine) == 1
    for worker in server.children()["colizig-worker"]:
        assert daemon.socket_inodes(worker) & mine
    engine = only(server, "colizig-door")
    assert not daemon.socket_inodes(engine) & mine
    memfds = {os.readlink(f"/proc/{engine}/fd/{fd}") for fd in os.listdir(f"/proc/{engine}/fd")}
    assert any("colizig-config" in name for name in memfds)
    assert not any("colizigd" in name.rsplit("/", 1)[-1] for name in memfds), "own binary"
    assert server.stop() == 0


def test_an_admin_socket_is_never_put_in_the_place_of_another_file(model, tmp_path):
    (tmp_path / "file").write_text("precious")
    (tmp_path / "link").symlink_to("file")
    for name in "file", "link", ".":
        done = run("--model", model, "--listen", "127.0.0.1:0",
                   "--set", f"admin.socket={tmp_path / name}")
        assert done.returncode == 2 and "no socket has this name" in done.stderr, done.stderr
    assert (tmp_path / "file").read_text() == "precious" and (tmp_path / "link").is_symlink()


# ---- systemd ----

class Notifications:
    """The receiving end of sd_notify."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(path))
        self.socket.settimeout(10)
        self.seen = []

    def until(self, text):
        while not any(text in line for line in self.seen):
            self.seen.append(self.socket.recv(4096).decode())
        return self.seen


def test_systemd_is_told_ready_only_after_loading_and_stopping_at_once(tmp_path):
    model = make_model(tmp_path / "m", {"load_ms": 400})
    notifications = Notifications(tmp_path / "notify")
    environment = dict(os.environ, NOTIFY_SOCKET=str(tmp_path / "notify"), WATCHDOG_USEC="300000")
    environment.pop("WATCHDOG_PID", None)
    with open(tmp_path / "log", "wb") as log:
        process = subprocess.Popen(
            [str(FAKE), "--model", str(model), "--listen", "127.0.0.1:0",
             "--set", f"admin.socket={tmp_path}/a.sock"],
            env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        seen = notifications.until("READY=1")
        before = "\n".join(seen[:-1])
        assert "STATUS=loading the model" in before and "EXTEND_TIMEOUT_USEC=" in before
        assert not any("READY=1" in line for line in seen[:-1])
        for pid in os.listdir("/proc"):  # children must not speak for the supervisor
            if pid.isdigit() and _parent(pid) == process.pid:
                with open(f"/proc/{pid}/environ", "rb") as text:
                    assert b"NOTIFY_SOCKET" not in text.read()
        notifications.seen.clear()
        notifications.until("WATCHDOG=1")
        process.send_signal(signal.SIGTERM)
        notifications.until("STOPPING=1")
        assert process.wait(40) == 0  # a worker that still starts is waited for
    finally:
        process.kill()
        process.wait()
        notifications.socket.close()


def test_a_notify_socket_that_nobody_reads_holds_up_nothing(tmp_path):
    notifications = Notifications(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as full, \
            pytest.raises(BlockingIOError):
        full.setblocking(False)
        while True:
            full.sendto(b"STATUS=full", str(tmp_path / "notify"))
    environment = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "300000"}
    server = daemon.Server(FAKE, make_model(tmp_path / "m", {}), tmp_path, {},
                           more_environment=environment)
    try:
        start = len(server.log())
        server.signal(signal.SIGHUP)
        server.await_log("reload: done", 20, start)
        assert server.chat("hello", max_tokens=2).status == 200
        seen = notifications.until("READY=1")  # it comes also to a reader that comes late
        assert "STATUS=serving" in seen[-1]
        notifications.until("WATCHDOG=1")
    finally:
        assert server.stop() == 0
    notifications.until("STOPPING=1")
    notifications.socket.close()


def _parent(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
            return int(stat.read().rsplit(")", 1)[1].split()[1])
    except OSError:
        return -1


def test_sockets_from_systemd_are_used_in_place_of_our_own(model, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as http, open(tmp_path / "log", "wb") as log:
        os.set_inheritable(http.fileno(), True)
        # systemd's contract: descriptors from 3 on, and the pid they are meant for.
        script = ("import os, sys\n"
                  "os.dup2(int(sys.argv[1]), 3)\n"
                  "os.environ.update(LISTEN_FDS='1', LISTEN_FDNAMES='http',"
                  " LISTEN_PID=str(os.getpid()))\n"
                  "os.execv(sys.argv[2], sys.argv[2:])\n")
        process = subprocess.Popen(
            [sys.executable, "-c", script, str(http.fileno()), str(FAKE), "--model", str(model),
             "--listen", "127.0.0.1:1", "--set", f"admin.socket={tmp_path}/a.sock"],
            pass_fds=[http.fileno()], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            with daemon.Connection(http.getsockname()[1], 20) as connection:
                connection.send("GET", "/livez")
                assert connection.answer().status == 200
            assert b"127.0.0.1:1 " not in (tmp_path / "log").read_bytes()
            process.send_signal(signal.SIGTERM)
            assert process.wait(40) == 0  # a worker that still starts is waited for
        finally:
            process.kill()
            process.wait()


# ---- what others see ----

def test_the_command_line_shows_as_it_was_typed(start_fake):
    server = start_fake(http__keepalive="9s")
    with open(f"/proc/{server.pid}/cmdline", "rb") as text:
        assert b"\0http.keepalive=9s\0" in text.read() + b"\0"


def test_a_log_in_a_file_has_times_and_no_priorities(start_fake):
    server = start_fake()
    server.chat("hi", max_tokens=1)
    server.await_log("route=/chat/completions")
    lines = server.log().splitlines()
    assert len(lines) > 3
    for line in lines:
        assert re.match(r"20\d\d-\d\d-\d\d \d\d:\d\d:\d\d (error |warning )?"
                        r"(supervisor|engine|worker\[\d\]): ", line), line


def test_a_log_in_the_journal_has_priorities_and_no_times(tmp_path):
    model = make_model(tmp_path / "m", {})
    with open(tmp_path / "log", "wb") as log:
        about = os.fstat(log.fileno())
        environment = dict(os.environ, JOURNAL_STREAM=f"{about.st_dev}:{about.st_ino}")
        process = subprocess.Popen(
            [str(FAKE), "--model", str(model), "--listen", "127.0.0.1:0",
             "--set", f"admin.socket={tmp_path}/a.sock"],
            env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 20
        while "ready" not in (tmp_path / "log").read_text():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        assert process.wait(40) == 0  # a worker that still starts is waited for
    finally:
        process.kill()
        process.wait()
    for line in (tmp_path / "log").read_text().splitlines():
        assert re.match(r"<[3-7]>(supervisor|engine|worker\[\d\]): ", line), line


def test_looks_at_the_state_do_not_fill_the_log(start_fake):
    server = start_fake()
    for path in ("/health", "/readyz", "/livez", "/v1/health"):
        assert server.get(path).status == 200
    assert server.get("/version").status == 200
    server.await_log("route=/version")
    assert not re.search("route=/(health|readyz|livez)", server.log())
