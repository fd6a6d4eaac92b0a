"""Settings that change while the daemon runs: what is applied, by whom, and what clients see."""
import contextlib
import json
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import threading
import time

import pytest

import server as daemon
from admin import Admin
from fake_model import make_model

SCRIPT = {"token_ms": 5, "prefill_ms": 0.01, "context": 2048}


class Notifications:
    """The receiving end of sd_notify, read all the time: its queue is short, and what does not fit
    is made one with what comes later. Lines are kept in the order in which they came."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(path))
        self.lines, self.taken = [], 0
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self):
        while message := self.socket.recv(4096):
            self.lines += message.decode().splitlines()

    def close(self):
        self.socket.shutdown(socket.SHUT_RDWR)
        self.thread.join()
        self.socket.close()

    def until(self, pattern, seconds=15):
        """The lines since the last call, up to the first one that matches."""
        deadline = time.monotonic() + seconds
        while True:
            for i in range(self.taken, len(self.lines)):
                if re.match(pattern, self.lines[i]):
                    begin, self.taken = self.taken, i + 1
                    return self.lines[begin:i + 1]
            assert time.monotonic() < deadline, f"no {pattern!r} in {self.lines[self.taken:]}"
            time.sleep(0.02)


class Reloading(daemon.Server):
    """A daemon that is told everything by a file."""

    def __init__(self, workdir, script=None, model=None, binary="colizigd-fake", wait="readyz",
                 **settings):
        self.path = workdir / "colizigd.yaml"
        self.model = model or make_model(workdir / "fake-model", {**SCRIPT, **(script or {})})
        self.settings = {"model.dir": self.model, "http.listen": '["127.0.0.1:0"]',
                         "http.drain_timeout": "10s", "state.dir": workdir / "state"}
        self.notifications = Notifications(workdir / "notify")
        self.write(**settings)
        super().__init__(daemon.BUILD / binary, None, workdir, {}, ("--config", self.path), wait,
                         {"NOTIFY_SOCKET": str(workdir / "notify")})
        if wait:
            self.notifications.until("READY=1")

    def write(self, **settings):
        """The file, with these settings changed; None takes one out."""
        for key, value in settings.items():
            self.settings[key.replace("__", ".")] = value
        sections = {}
        for key, value in self.settings.items():
            section, name = key.split(".")
            if value is not None:
                sections.setdefault(section, []).append(f"  {name}: {value}\n")
        self.path.write_text("".join(f"{section}:\n{''.join(lines)}"
                                     for section, lines in sections.items()))

    def reload(self, seconds=20, **settings):
        """Writes, signals, and returns the line that says what was done."""
        self.write(**settings)
        start = len(self.log())
        self.signal(signal.SIGHUP)
        return self.await_log(r"reload: done.*|reload failed.*", seconds, start).group(0)

    def workers(self):
        return set(self.children().get("colizig-worker", []))

    def engine(self):
        (pid,) = self.children()["colizig-door"]
        return pid

    def stop(self, seconds=20):
        try:
            return super().stop(seconds)
        finally:
            self.notifications.close()


@pytest.fixture
def start(tmp_path):
    started = []

    def begin(**more):
        started.append(Reloading(tmp_path, **more))
        return started[-1]

    yield begin
    for one in started:
        if one.process.poll() is None:
            one.stop()


def until(condition, seconds=10):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)


def test_a_checkpoint_gives_systemd_no_orders(tmp_path):
    """What is wrong with it is told in its words, which may hold line breaks."""
    notifications = Notifications(tmp_path / "notify")
    model = make_model(tmp_path / "fake-model", {"open_error": "a tensor 'x\nREADY=1\nMAINPID=1"})
    done = subprocess.run([daemon.BUILD / "colizigd-fake", "--model", model,
                           "--listen", "127.0.0.1:0", "--set", f"state.dir={tmp_path}/state",
                           "--set", f"admin.socket={tmp_path}/admin.sock"], timeout=30, check=False,
                          env={**daemon.environment(), "NOTIFY_SOCKET": f"{tmp_path}/notify"})
    lines = notifications.until("STOPPING=1")
    notifications.close()
    assert done.returncode == 3
    assert "READY=1" not in lines and "MAINPID=1" not in lines
    assert "STATUS=a tensor 'x READY=1 MAINPID=1" in lines


# ---- nothing, and nothing good ----

def test_a_bad_config_changes_nothing_while_a_stream_runs_on(start):
    server = start()
    before = server.children()
    with server.stream("hello", max_tokens=400) as stream:
        stream.read(3)
        said = server.reload(engine__queue="many")
        assert "colizigd.yaml:" in said and "engine.queue: 'many'" in said
        assert re.search(r"colizigd\.yaml:\d+:\d+: ", said)
        said = server.reload(engine__queue=None, memory__ram="1MiB")
        assert "the fake needs at least 96 MiB" in said
        said = server.reload(memory__ram=None, model__dir="/no/such/place")
        assert "/no/such/place" in said
        assert not stream.done
        stream.rest()
        assert stream.done and stream.finish() == "length"
    assert server.children() == before
    for words in "engine.queue: 'many'", "at least 96 MiB", "/no/such/place":
        told = server.notifications.until("READY=1")
        assert "RELOADING=1" in told
        assert any(re.fullmatch(r"MONOTONIC_USEC=\d+", line) for line in told)
        assert words in server.notifications.until("STATUS=serving fake-model on .*; ")[-1]
    assert server.chat("hi", max_tokens=2).status == 200


def test_nothing_changed_is_said(start):
    server = start()
    before = server.children()
    assert server.reload() == "reload: done, nothing changed"
    assert server.children() == before


# ---- live ----

def test_log_level_and_queue_change_as_it_runs(start):
    server = start(script={"queue": 4294967295})
    before = server.children()
    with server.stream("hello", max_tokens=300) as stream:
        stream.read(2)
        said = server.reload(log__level="debug", engine__queue=3, http__drain_timeout="5s")
        assert said == ("reload: done applied=engine.queue,http.drain_timeout,log.level "
                        "workers=kept engine=adjusted")
        stream.rest()
        assert stream.done
    assert server.children() == before
    server.get("/livez")
    server.await_log("route=/livez")  # a poll is logged at debug
    server.await_log(r"engine: adjusted .* queue=3")


def test_memory_ram_changes_as_it_runs_and_restarts_the_engine_where_it_refuses(start):
    server = start(memory__ram="200MiB")
    engine, workers = server.engine(), server.workers()
    assert server.reload(memory__ram="150MiB") == \
        "reload: done applied=memory.ram workers=kept engine=adjusted"
    assert server.engine() == engine
    before = len(server.log())
    os.kill(engine, signal.SIGKILL)  # what it is started with again is what it was told
    server.await_log('ram="150.00 MiB"', 10, before)
    server.await_status("/readyz", 200)
    assert server.reload(memory__ram="auto") == \
        "reload: done applied=memory.ram workers=kept engine=restarted"
    assert server.workers() == workers


def test_an_engine_that_refuses_a_budget_is_restarted_with_it(start):
    server = start(script={"adjust_error": "not while it runs"}, memory__ram="200MiB")
    engine = server.engine()
    assert server.reload(memory__ram="150MiB").endswith("engine=restarted")
    assert "not while it runs" in server.log()
    assert server.engine() != engine
    assert server.chat("hi", max_tokens=2).status == 200


# ---- workers ----

class Knocking:
    """A client that connects every 10 ms and wants an answer each time."""

    def __init__(self, server):
        self.server, self.failures, self.n = server, [], 0
        self.going = True
        self.thread = threading.Thread(target=self.run)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.going = False
        self.thread.join()

    def run(self):
        while self.going:
            self.n += 1
            try:
                answer = self.server.get("/version", timeout=10)
                if answer.status != 200:
                    self.failures.append(answer.status)
            except OSError as error:
                self.failures.append(repr(error))
            time.sleep(0.01)


def test_new_workers_come_before_old_ones_leave(start):
    server = start(script={"token_ms": 10})
    workers, engine = server.workers(), server.engine()
    most = 0
    with server.stream("hello", max_tokens=150) as stream, Knocking(server) as knocking:
        stream.read(3)
        server.write(http__keepalive="7s", model__aliases='["other-name"]')
        start_of_it = len(server.log())
        server.signal(signal.SIGHUP)
        while not re.search("reload: done", server.log()[start_of_it:]):
            most = max(most, len(server.workers()))
            time.sleep(0.02)
        stream.rest()
        assert stream.done and stream.finish() == "length"
        assert len(stream.text()) > 100
        until(lambda: not server.workers() & workers)
    assert knocking.failures == [] and knocking.n > 20
    assert most <= 3
    assert server.engine() == engine and len(server.workers()) == 2
    assert "applied=model.aliases,http.keepalive workers=replaced engine=kept" in server.log()
    assert server.chat("hi", model="other-name", max_tokens=2).status == 200
    assert "killed" not in server.log()


def test_a_worker_that_cannot_start_leaves_the_old_ones_serving(start):
    server = start()
    before = server.children()
    (server.model / "tokenizer.json").write_text("{")
    said = server.reload(http__keepalive="7s")
    assert said.startswith("reload failed; nothing changed: ") and "tokenizer.json" in said
    assert server.children() == before
    assert server.chat("hi", max_tokens=2).status == 200


def test_what_only_a_worker_can_tell_is_taken_back(start):
    """The check finds nothing wrong; the first new worker does."""
    server = start()
    before = server.children()
    resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (1024, 1024))
    with server.stream("hello", max_tokens=200) as stream:
        stream.read(3)
        said = server.reload(http__connections=5000)
        assert said.startswith("reload failed; nothing changed: ")
        assert "descriptors are needed" in said and "http.connections" in said
        stream.rest()
        assert stream.done and stream.finish() == "length"
    assert server.children() == before
    with Admin(server) as admin:
        status = admin.ask("status")["data"]
        assert len(status["workers"]) == 2 and all(w["ready"] for w in status["workers"])
    # Nothing is left of it: the next one is as good as any.
    assert "applied=http.connections workers=replaced" in server.reload(http__connections=100)


def test_old_workers_that_die_meanwhile_come_back(start):
    server = start(script={"token_ms": 10}, http__drain_timeout="20s")
    with contextlib.ExitStack() as stack:
        streams = [stack.enter_context(server.stream("hello", max_tokens=150)) for _ in range(4)]
        for stream in streams:
            stream.read(2)
        old = server.workers()
        server.write(http__keepalive="7s")
        begun = len(server.log())
        server.signal(signal.SIGHUP)
        server.await_log("another worker takes over", start=begun)
        for pid in old:  # one is leaving, the other still serves
            # A worker that no stream is with has left by itself.
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        server.await_log("reload: done applied=http.keepalive workers=replaced", 20, begun)
    assert len(server.workers()) == 2 and server.workers().isdisjoint(old)
    with Admin(server) as admin:
        until(lambda: all(w["ready"] for w in admin.ask("status")["data"]["workers"]))
    assert server.chat("hi", max_tokens=2).status == 200


def test_an_engine_that_dies_meanwhile_comes_back(start):
    server = start(script={"token_ms": 10})
    with server.stream("hello", max_tokens=300) as stream:
        stream.read(3)
        server.write(http__keepalive="7s", http__buffer="70MiB")
        begun = len(server.log())
        server.signal(signal.SIGHUP)
        server.await_log("another worker takes over", start=begun)
        os.kill(server.engine(), signal.SIGKILL)
        stream.rest()
        assert "error" in stream.events[-1]
    server.await_log("reload: done applied=http.buffer,http.keepalive workers=replaced", 20, begun)
    server.await_status("/readyz", 200)
    until(lambda: server.chat("hi", max_tokens=2).status == 200)


# ---- the engine ----

def test_an_engine_key_restarts_the_engine_and_running_requests_finish(start):
    server = start(script={"load_ms": 700, "context": 0})
    workers, engine = server.workers(), server.engine()
    with server.stream("hello", max_tokens=150) as stream:
        stream.read(3)
        server.write(engine__context=1024)
        begun = len(server.log())
        server.signal(signal.SIGHUP)
        server.await_log("engine finishes what it has accepted", start=begun)
        refused = server.chat("hi", max_tokens=2)
        assert refused.status == 503 and int(refused.headers["retry-after"]) > 0
        assert refused.error()["code"] == "model_loading"
        stream.rest()
        assert stream.done and stream.finish() == "length"
    server.await_log("reload: done applied=engine.context workers=kept engine=restarted", 20, begun)
    assert server.engine() != engine and server.workers() == workers
    server.await_status("/readyz", 200)
    models = server.get("/v1/models").json()
    assert models["data"][0]["context_length"] == 1024
    told = server.notifications.until("READY=1")
    assert "RELOADING=1" in told and any("loading the model" in line for line in told)


def test_what_runs_past_the_drain_timeout_is_told(start):
    server = start(script={"token_ms": 20}, http__drain_timeout="1s")
    engine = server.engine()
    with server.stream("hello", max_tokens=2000) as stream:
        stream.read(3)
        server.write(engine__sequences=2)
        server.signal(signal.SIGHUP)
        stream.rest()
        assert "restarted" in stream.events[-1]["error"]["message"]
    server.await_log("reload: done applied=engine.sequences", 10)
    assert server.engine() != engine
    assert server.chat("hi", max_tokens=2).status == 200


def test_an_engine_that_cannot_open_is_taken_back(start):
    server = start()
    workers = server.workers()
    other = make_model(server.path.parent / "other", {**SCRIPT, "open_error": "shard 3 is cut short"})
    said = server.reload(model__dir=other)
    assert said.startswith("reload failed; nothing changed: ")
    assert "shard 3 is cut short" in said
    server.await_status("/readyz", 200)
    assert server.get("/v1/models").json()["data"][0]["id"] == "fake-model"
    assert server.chat("hi", max_tokens=2).status == 200
    assert len(server.workers()) == 2 and server.workers().isdisjoint(workers)
    assert "started again" not in server.log()
    server.settings["model.dir"] = server.model  # and the file is put right again
    assert server.reload() == "reload: done, nothing changed"


def test_a_state_folder_is_made_or_refused_as_at_a_start(start, tmp_path):
    server = start()
    engine = server.engine()
    (tmp_path / "file").write_text("")
    for path, words in (("file", "no folder"), ("file/state", "cannot be made"),
                        ("missing/state", "cannot be made")):
        said = server.reload(state__dir=tmp_path / path)
        assert "reload failed; nothing changed: state.dir" in said and words in said
    assert server.engine() == engine
    with Admin(server) as admin:
        server.write(state__dir=tmp_path / "missing/state")
        error = admin.error("reload")
        assert error["kind"] == "input" and "missing/state" in error["message"]
    said = server.reload(state__dir=tmp_path / "other")
    assert said == "reload: done applied=state.dir workers=kept engine=restarted"
    assert (tmp_path / "other").is_dir() and server.engine() != engine


def test_files_that_were_replaced_are_read_anew(start):
    server = start(script={"reply": "text", "text": "old words", "n_tokens": 0})
    workers, engine = server.workers(), server.engine()
    assert server.chat("hi").text() == "old words"
    (server.model / "fake.json").write_text(
        json.dumps({**SCRIPT, "reply": "text", "text": "new words"}))
    assert server.reload() == "reload: done workers=replaced engine=restarted"
    assert server.chat("hi").text() == "new words"
    assert server.engine() != engine and server.workers().isdisjoint(workers)


def test_a_chat_template_that_was_replaced_is_read_anew(start):
    """A worker that died meanwhile would read it, and the others speak in the old one's way."""
    def prompt():
        return server.post("/apply-template",
                           daemon.chat_body("hi")).json()["prompt"]

    server = start()
    assert prompt().startswith("<|im_start|>user")
    (server.model / "chat_template.jinja").write_text("Q: {{ messages[0].content }} A:")
    assert server.reload() == "reload: done workers=replaced engine=kept"
    assert prompt() == "Q: hi A:"
    assert server.reload() == "reload: done, nothing changed"


def test_a_worker_that_reads_another_template_than_the_others_is_told_of(start):
    server = start()
    (server.model / "chat_template.jinja").write_text("Q: {{ messages[0].content }} A:")
    begun = len(server.log())
    os.kill(next(iter(server.workers())), signal.SIGKILL)
    server.await_log("chat template was changed since the other workers read it", 10, begun)
    server.await_status("/readyz", 200)
    begun = len(server.log())
    assert server.reload() == "reload: done workers=replaced engine=kept"
    assert "since the other workers" not in server.log()[begun:]


def test_so_is_one_that_was_chosen(start, tmp_path):
    chosen = tmp_path / "mine.jinja"
    chosen.write_text("Q: {{ messages[0].content }} A:")
    server = start(model__chat_template=str(chosen))
    chosen.write_text("Ask: {{ messages[0].content }} Say:")
    assert server.reload() == "reload: done workers=replaced engine=kept"
    assert server.post("/apply-template",
                       daemon.chat_body("hi")).json()["prompt"] == "Ask: hi Say:"


def test_more_and_fewer_workers(start):
    server = start()
    engine = server.engine()
    assert server.reload(http__workers=4) == \
        "reload: done applied=http.workers workers=replaced engine=adjusted"
    assert len(server.workers()) == 4
    assert server.reload(http__workers=1, http__buffer="80MiB").endswith("engine=adjusted")
    assert len(server.workers()) == 1 and server.engine() == engine
    assert server.chat("hi", max_tokens=2).status == 200


# ---- what is not applied ----

def test_another_address_needs_a_restart_and_the_rest_is_applied(start):
    server = start()
    for _ in range(2):
        assert server.reload(http__listen='["127.0.0.1:1"]', engine__queue=5).endswith(
            "needs_restart=http.listen")
    assert "applied=engine.queue workers=kept engine=adjusted needs_restart=http.listen" in \
        server.log()
    assert server.get("/readyz").status == 200


# ---- by the admin socket ----

def test_an_admin_client_is_told_what_was_done_and_what_was_not(start):
    server = start()
    with Admin(server, 20) as admin:
        server.write(log__level="debug", http__keepalive="7s", http__listen='["127.0.0.1:1"]')
        assert admin.ask("reload")["data"] == {
            "applied": ["http.keepalive", "log.level"], "workers": "replaced", "engine": "kept",
            "needs_restart": ["http.listen"]}
        server.write(http__listen='["127.0.0.1:0"]', engine__context=512)
        assert admin.ask("reload")["data"] == {
            "applied": ["engine.context"], "workers": "kept", "engine": "restarted",
            "engine_why": "engine.context changed", "needs_restart": []}
        server.write(engine__context="wide")
        refused = admin.ask("reload")["error"]
        assert refused["kind"] == "input"
        assert re.search(r"colizigd\.yaml:\d+:\d+: engine\.context: 'wide'", refused["message"])
        server.write(engine__context=None, memory__ram="1MiB")
        refused = admin.ask("reload")["error"]
        assert refused["kind"] == "budget" and "96 MiB" in refused["message"]


def test_one_reload_at_a_time(start):
    server = start(script={"token_ms": 10})
    with server.stream("hello", max_tokens=150) as stream, Admin(server, 20) as first, \
            Admin(server) as second:
        stream.read(3)
        server.write(engine__context=512)
        first.send(b'{"id":1,"cmd":"reload"}\n')
        server.await_log("engine finishes what it has accepted")
        assert second.ask("reload")["error"]["kind"] == "busy"
        assert second.ask("budget", ram="512MiB")["error"]["kind"] == "busy"
        assert second.ask("log", level="debug")["error"]["kind"] == "busy"
        assert second.ask("status")["data"]["reload"] == "stopping the engine"
        stream.rest()
        assert first.receive()["data"]["engine"] == "restarted"
        assert second.ask("status")["data"]["reload"] is None


def test_what_an_admin_set_lasts_until_the_next_reload(start):
    server = start(memory__ram="200MiB")
    with Admin(server, 20) as admin:
        assert admin.ask("log", level="debug")["ok"]
        budget = admin.ask("budget", ram="150MiB")["data"]
        assert budget["ram"] == 150 << 20 and budget["total"] <= budget["ram"]
        assert admin.ask("budget", ram="1MiB")["error"]["kind"] == "budget"
        before = len(server.log())
        os.kill(server.engine(), signal.SIGKILL)  # who begins anew knows of it
        server.await_log('ram="150.00 MiB"', 10, before)
        until(lambda: admin.ask("status")["data"]["engine"]["ready"])
        server.get("/livez")
        server.await_log("route=/livez")
        assert admin.ask("reload")["data"]["applied"] == ["memory.ram", "log.level"]
        assert admin.ask("reload")["data"]["applied"] == []
    assert server.log().count('ram="200.00 MiB"') == 2


# ---- again and again ----

def test_twenty_reloads_leak_no_descriptor(start):
    server = start()
    assert "done" in server.reload(log__level="debug", http__keepalive="5s")
    before = sorted(os.listdir(f"/proc/{server.pid}/fd"))
    for i in range(20):
        # Every fifth time workers are replaced; the rest is live, refused or nothing.
        said = server.reload(http__keepalive=f"{5 + i // 5}s",
                             engine__queue="many" if i % 5 == 1 else 20 + i % 3)
        assert ("failed" in said) == (i % 5 == 1), said
    until(lambda: len(os.listdir(f"/proc/{server.pid}/fd")) == len(before))
    assert server.chat("hi", max_tokens=2).status == 200


def test_a_signal_during_a_reload_is_remembered_once(start):
    server = start(script={"token_ms": 10}, http__drain_timeout="10s")
    with server.stream("hello", max_tokens=100) as stream:
        stream.read(3)
        server.write(http__keepalive="7s")
        begun = len(server.log())
        server.signal(signal.SIGHUP)
        server.await_log("another worker takes over", start=begun)
        for _ in range(3):
            server.signal(signal.SIGHUP)
            time.sleep(0.02)
        stream.rest()
    server.await_log(r"(?s)reload: done applied.*reload: done, nothing changed", 15, begun)
    time.sleep(0.3)
    assert server.log()[begun:].count("reload: checking") == 2


def test_a_stop_during_a_reload_stops(start):
    server = start(script={"token_ms": 20}, http__drain_timeout="1s")
    with server.stream("hello", max_tokens=2000) as stream:
        stream.read(3)
        server.write(engine__context=512)
        server.signal(signal.SIGHUP)
        server.await_log("engine finishes what it has accepted")
        begun = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - begun < 8
        stream.rest()
        assert "error" in stream.events[-1]


def test_a_stop_tells_systemd_how_many_are_left(start):
    server = start(script={"token_ms": 10})
    with server.stream("hello", max_tokens=180) as stream:
        stream.read(1)
        with Admin(server) as admin:
            until(lambda: sum(worker["requests"] for worker in
                              admin.ask("status")["data"]["workers"]) == 1)
        server.signal(signal.SIGTERM)
        told = server.notifications.until("STATUS=stopping: 1 request left to finish")
        assert "STOPPING=1" in told
        stream.rest()
        assert stream.finish() == "length"
    assert server.wait() == 0
    server.notifications.until("STATUS=stopping the engine")


# ---- the real engine ----

@pytest.fixture
def real(tmp_path):
    model = tmp_path / "model"
    shutil.copytree(daemon.MODELS / "tiny-moe", model)
    server = Reloading(tmp_path, model=model, binary="colizigd", memory__ram="512MiB",
                       engine__context=256)
    yield server
    if server.process.poll() is None:
        server.stop()


def test_the_real_engine_changes_as_it_runs_and_answers_the_same(real):
    before = real.complete("hello", max_tokens=12).text()
    engine = real.engine()
    assert real.reload(engine__queue=7, memory__ram="400MiB", http__workers=1) == (
        "reload: done applied=memory.ram,engine.queue,http.workers workers=replaced "
        "engine=adjusted")
    with Admin(real) as admin:
        plan = admin.ask("plan")["data"]
        lines = {line["name"]: line["detail"] for line in plan["lines"]}
    assert plan["ram"] == 400 << 20 and lines["workers"].startswith("1 x ")
    assert real.engine() == engine and len(real.workers()) == 1
    assert real.complete("hello", max_tokens=12).text() == before
    assert real.reload(engine__context=200).endswith("engine=restarted")
    assert real.get("/v1/models").json()["data"][0]["context_length"] == 200
    assert real.complete("hello", max_tokens=12).text() == before


def test_smaller_dense_weights_restart_the_engine_and_change_the_fingerprint(real):
    def answer():
        return real.post("/v1/completions", {"prompt": "hello", "max_tokens": 12,
                                             "temperature": 0}).json()

    def plan():
        with Admin(real) as admin:
            return admin.ask("plan")["data"]

    exact, exact_plan = answer(), plan()
    assert real.reload(memory__dense="fp8") == (
        "reload: done applied=memory.dense workers=kept engine=restarted")
    smaller, smaller_plan = answer(), plan()
    assert smaller["system_fingerprint"] != exact["system_fingerprint"]
    assert (exact_plan["dense"], smaller_plan["dense"]) == ("bf16", "fp8")
    assert smaller_plan["token_resident_bytes"] < exact_plan["token_resident_bytes"]
    assert real.reload(memory__dense="bf16").endswith("engine=restarted")
    again = answer()
    assert again["system_fingerprint"] == exact["system_fingerprint"]
    assert again["choices"][0]["text"] == exact["choices"][0]["text"]


def test_the_real_engine_takes_up_files_that_changed_underneath(real):
    before = real.complete("hello", max_tokens=12).text()
    for shard in list(real.model.glob("*.safetensors")):  # downloaded again
        shutil.copy(shard, shard.with_suffix(".part"))
        shard.with_suffix(".part").rename(shard)
    real.await_status("/health", 503, seconds=20)
    assert real.reload(30) == "reload: done workers=replaced engine=restarted"
    assert real.get("/health").status == 200
    assert real.complete("hello", max_tokens=12).text() == before
