"""colizigctl with a daemon: what a person reads, what a script gets, and stats --watch."""
import fcntl
import json
import os
import pty
import re
import select
import signal
import socket
import struct
import subprocess
import termios
import threading
import time

import pytest

import server as daemon
from admin import admin_path, until

CTL = daemon.BUILD / "colizigctl"
FINE, FAILED, USAGE, CHECKPOINT, BUDGET, NO_DAEMON = range(6)
ONLINE = [["status"], ["stats"], ["experts"], ["requests"], ["cancel", "req_1"], ["reload"],
          ["drain"], ["budget", "1G"], ["log"], ["plan"], ["inspect"], ["stats", "--watch"]]


def ctl(path, *args, timeout=60):
    return subprocess.run([CTL, *map(str, args), "--socket", path], capture_output=True, text=True,
                          timeout=timeout, stdin=subprocess.DEVNULL, check=False)


def said(server, *args):
    done = ctl(admin_path(server), *args)
    assert done.returncode == FINE, done.stderr
    assert done.stderr == ""
    return done.stdout


def answer(server, *args):
    return json.loads(said(server, *args, "--json"))


# ---- what a person reads ----

def test_status_tells_phase_processes_and_memory(fake):
    # A worker may be ready a moment before the supervisor has heard of it.
    until(lambda: "is serving" in said(fake, "status"))
    text = said(fake, "status")
    for word in ["is serving", "fake-model", f"127.0.0.1:{fake.port}", "96.00 MiB planned",
                 "budget", "0 B swapped", str(fake.pid), "supervisor", "engine", "worker 1"]:
        assert word in text
    assert max(map(len, text.splitlines())) <= 160
    assert answer(fake, "status")["pid"] == fake.pid


def test_stats_plan_inspect_and_experts_are_shown_with_their_units(fake):
    assert fake.chat("hi", max_tokens=3).status == 200
    until(lambda: answer(fake, "stats")["n_finished"])
    assert re.search(r"generated_tokens +[1-9]", said(fake, "stats"))
    text = said(fake, "plan")
    assert "the fake" in text and "64.00 MiB" in text and re.search(r"total +100,663,296", text)
    assert "minimum   96.00 MiB" in text and "RAM (machine" in text
    assert answer(fake, "plan")["total"] == 96 << 20
    assert "FakeForCausalLM (fake)" in said(fake, "inspect")
    assert answer(fake, "inspect")["vocab"] == 151936
    text = said(fake, "experts", "--top", "3")
    assert "5 of 8 experts are in memory" in text and "0.500" in text
    assert len(text.split("hottest")[1].splitlines()) == 4
    assert len(answer(fake, "experts", "--top=0")["hottest"]) == 0
    assert said(fake, "log") == "info\n"


def test_requests_are_listed_and_cancelled_by_their_id(start_fake):
    server = start_fake({"token_ms": 5, "sequences": 1, "stop_ids": []})
    assert said(server, "requests") == "no request runs or waits\n"
    with server.stream("one", max_tokens=2000) as first:
        name = first.read(3).answer.headers["x-request-id"]
        with server.stream("two", max_tokens=4) as second:
            text = said(server, "requests")
            assert re.search(rf"{name} +decode +\d+/\d+ +\d+ +0:\d\d  127\.0\.0\.1", text)
            assert re.search(r"req_[0-9a-f]+ +waiting 1 ", text)
            assert said(server, "cancel", name) == f"{name} is cancelled\n"
            assert first.rest().events[-1]["error"]["code"] == "request_cancelled"
            assert second.rest().finish() == "length"
    done = ctl(admin_path(server), "cancel", name)
    assert done.returncode == FAILED and name in done.stderr
    done = ctl(admin_path(server), "cancel", "no id", "--json")
    assert done.returncode == FAILED and json.loads(done.stdout)["error"]["kind"] == "input"


def test_wrong_words_are_usage_errors(fake):
    done = ctl(admin_path(fake), "cancel", "")
    assert done.returncode == USAGE and "REQUEST is empty" in done.stderr
    for args, word in [(["budget", "much"], "no size"), (["drain", "soon"], "no duration"),
                       (["log", "loud"], "err, warning")]:
        done = ctl(admin_path(fake), *args)
        assert done.returncode == USAGE and word in done.stderr
    assert fake.get("/readyz").status == 200


def test_reload_applies_or_refuses_with_the_configs_line(start_fake, tmp_path):
    config = tmp_path / "colizigd.yaml"
    config.write_text("engine:\n  queue: 7\n")
    server = start_fake(arguments=["--config", config])
    until(lambda: answer(server, "status")["phase"] == "serving")
    assert said(server, "reload") == "the config is as it was\n"
    config.write_text("engine:\n  queue: 9\nlog:\n  level: debug\n")
    assert said(server, "reload").splitlines()[0] == "applied: engine.queue, log.level"
    assert said(server, "log") == "debug\n"
    config.write_text("engine:\n  queue: 9\n  quue: 1\n")
    done = ctl(admin_path(server), "reload")
    assert done.returncode == USAGE and f"{config}:3" in done.stderr and "quue" in done.stderr
    done = ctl(admin_path(server), "budget", "1MiB")
    assert done.returncode == BUDGET and "96 MiB" in done.stderr
    assert re.match(r"the budget is 300\.00 MiB: 96\.00 MiB planned",
                    said(server, "budget", "300MiB"))
    assert "no new requests" in said(server, "drain", "5s")
    assert server.wait() == 0


# ---- no daemon, strange daemons ----

@pytest.mark.parametrize("args", ONLINE, ids=" ".join)
def test_no_daemon_is_exit_5_and_says_where_it_looked(tmp_path, args):
    path = tmp_path / "admin.sock"
    done = ctl(path, *args)
    assert done.returncode == NO_DAEMON and done.stdout == ""
    assert str(path) in done.stderr and "start colizigd" in done.stderr
    assert "--socket" in done.stderr and len(done.stderr.splitlines()) == 1


def test_a_socket_that_nobody_listens_on_is_no_daemon(tmp_path):
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(tmp_path / "dead.sock"))
    dead.close()
    assert ctl(tmp_path / "dead.sock", "status").returncode == NO_DAEMON
    (tmp_path / "file").write_text("")
    assert ctl(tmp_path / "file", "status").returncode == NO_DAEMON
    assert ctl("/tmp/" + "x" * 200, "status").returncode == USAGE


class Scripted:
    """A daemon of our own: answer(question) gives the lines to send, None to close."""

    def __init__(self, path, answer_to):
        self.asked, self.answer_to = [], answer_to
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.bind(str(path))
        self.socket.listen(4)
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                client, _ = self.socket.accept()
            except OSError:
                return
            threading.Thread(target=self.talk, args=(client,), daemon=True).start()

    def talk(self, client):
        try:
            with client, client.makefile("rwb") as stream:
                for line in stream:
                    question = json.loads(line)
                    self.asked.append(question)
                    for reply in self.answer_to(question):
                        if reply is None:
                            return
                        stream.write(reply)
                        stream.flush()
        except OSError:
            pass  # it left


def reply(data, number=1, **more):
    return json.dumps({"id": number, "ok": True, **more, "data": data}).encode() + b"\n"


@pytest.mark.parametrize("bad, word", [
    (b'{"id":1,"ok":false,"error":{"kind":"busy","message":"still loading"}}\n', "still loading"),
    (b"garbage\n", "no JSON"),
    (b"[1]\n", "no JSON object"),
    (b'{"id":1,"ok":true}\n', "refused"),
    (None, "closed"),
])
def test_a_strange_answer_is_a_failure_with_its_reason(tmp_path, bad, word):
    Scripted(tmp_path / "a.sock", lambda question: [bad])
    done = ctl(tmp_path / "a.sock", "stats")
    assert done.returncode == FAILED
    assert word in done.stderr


def test_control_bytes_of_a_daemon_do_not_reach_the_terminal(tmp_path):
    evil = "a\x1b[31mb\r\n"
    answers = {
        "stats": {evil: evil},
        "status": {"phase": evil, "model": evil, "listen": [evil], "engine": {"status": evil}},
        "requests": {"requests": [{"request": evil, "state": evil, "client": evil}]},
        "plan": {"lines": [{"name": evil, "detail": evil, "bytes": 5}], "ram_source": evil},
        "inspect": {"architecture": evil, "warnings": [evil]},
        "reload": {"applied": [evil], "engine": evil, "engine_why": evil},
        "log": {"level": evil},
    }
    Scripted(tmp_path / "a.sock", lambda question: [reply(answers[question["cmd"]])])
    for command in answers:
        done = ctl(tmp_path / "a.sock", command)
        assert done.returncode == FINE
        assert "\x1b" not in done.stdout and "\r" not in done.stdout and "a?[31mb" in done.stdout


def test_reload_prints_what_was_applied_and_what_takes_a_restart(tmp_path):
    data = {"applied": ["engine.queue", "log.level"], "workers": "replaced", "engine": "restarted",
            "engine_why": "engine.context changed", "needs_restart": ["http.listen"]}
    Scripted(tmp_path / "a.sock", lambda question: [reply(data)])
    assert ctl(tmp_path / "a.sock", "reload").stdout.splitlines() == [
        "applied: engine.queue, log.level", "workers: replaced",
        "engine: restarted, engine.context changed", "takes a restart of colizigd: http.listen"]


@pytest.mark.parametrize("kind, status", [("input", USAGE), ("format", CHECKPOINT),
                                          ("budget", BUDGET), ("io", FAILED)])
def test_a_refused_reload_has_the_reasons_exit_status(tmp_path, kind, status):
    line = json.dumps({"id": 1, "ok": False, "error":
                       {"kind": kind, "message": "a.yaml:3:5: engine.queue"}}).encode() + b"\n"
    Scripted(tmp_path / "a.sock", lambda question: [line])
    done = ctl(tmp_path / "a.sock", "reload")
    assert done.returncode == status and "a.yaml:3:5" in done.stderr


# ---- stats --watch ----

class Screen:
    """colizigctl stats --watch on a terminal of that size."""

    def __init__(self, path, rows=24, columns=80, **environment):
        self.master, self.slave = pty.openpty()
        self.resize(rows, columns)
        self.before = termios.tcgetattr(self.slave)
        kept = {key: value for key, value in os.environ.items() if key != "NO_COLOR"}
        kept["TERM"] = "xterm"
        self.process = subprocess.Popen([CTL, "stats", "--watch", "--socket", path],
                                        stdin=self.slave, stdout=self.slave,
                                        stderr=subprocess.PIPE, env={**kept, **environment})
        self.drawn = b""

    def resize(self, rows, columns):
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.process.stderr.close()
        os.close(self.master)
        os.close(self.slave)

    def read(self, seconds):
        if select.select([self.master], [], [], seconds)[0]:
            self.drawn += os.read(self.master, 65536)

    def pages(self):
        """Whole screens so far, as lines, escape sequences and all."""
        return [page.decode().replace("\r", "").split("\n")[:-1]
                for page in self.drawn.split(b"\x1b[J")[1:-1]]

    def texts(self):
        return [[re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", line) for line in page]
                for page in self.pages()]

    def wait_for(self, condition, seconds=20):
        """The first screen, a list of lines, of which condition holds."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for page in self.texts():
                if condition("\n".join(page)):
                    return page
            self.read(0.1)
        raise AssertionError(f"no such screen: {self.texts()[-1:]}")

    def interrupt(self):
        self.process.send_signal(signal.SIGINT)
        status = self.process.wait(timeout=10)
        self.read(0.1)
        assert self.drawn.endswith(b"\x1b[?25h")  # the cursor is back
        assert termios.tcgetattr(self.slave) == self.before
        return status


def looks(n_looks=1000, loading=0, every=0.1):
    """What a scripted daemon says: counters grow by a known amount each look."""
    names = ["n_finished", "n_failed", "prompt_tokens", "generated_tokens", "steps", "expert_hits",
             "expert_misses", "expert_read_bytes", "running", "waiting", "prefilling",
             "kv_pages", "kv_pages_used", "kv_pages_peak", "expert_wait_ns"]
    plan = {"ram": 8 << 30, "total": 7 << 30, "n_experts_total": 6144,
            "lines": [{"name": f"line {n}", "detail": "", "bytes": n << 26} for n in range(1, 31)]}

    def say(question):
        if question["cmd"] == "plan":
            yield reply(plan, question["id"])
            return
        for n in range(1, n_looks + 1):
            loads = n <= loading
            status = {"phase": "serving", "model": "m\u00e4" * 100, "up_ms": 3_723_000,
                      "engine": {"status": "loading 40 %" if loads else "serving"},
                      "workers": [{"connections": 3}, {"connections": 4}],
                      "memory": {"planned_bytes": 7 << 30, "budget_bytes": 8 << 30,
                                 "anonymous_bytes": 6 << 30, "locked_bytes": 0,
                                 "swapped_bytes": 5 << 20,
                                 "cgroup": {"usage_bytes": 7 << 30, "file_bytes": 1 << 29,
                                            "limit_bytes": 9 << 30}}}
            stats = {name: n * 10**8 for name in names} | \
                {"expert_slots": 1058, "expert_slots_used": 1000,
                 "expert_hits": 1000 + 3 * n, "expert_misses": n}
            data = {"status": status, "stats": stats}
            if loads:
                data |= {"stats": None, "error": {"kind": "busy", "message": "the model loads"}}
            yield reply(data, question["id"], more=True)
            time.sleep(every)
        yield None
    return say


def test_watch_fits_80_by_24_and_tells_what_one_looks_for(tmp_path):
    Scripted(tmp_path / "a.sock", looks())
    with Screen(tmp_path / "a.sock") as screen:
        page = screen.wait_for(lambda text: "75.0 % now" in text)
        assert screen.interrupt() == FINE
    assert len(page) == 23 and max(map(len, page)) < 80
    text = "\n".join(page)
    for word in ["serving, up 1:02:03", "prefill", "decode", "running", "queue", "% overall",
                 "MB/s read", "of the time", "VRAM none; RAM 1000 in 1058 slots",
                 "disk only 5144 of 6144", "7 connections: 3 + 4 by worker", "budget 8.00 GiB",
                 "swapped     5.00 MiB", "line 30", "more"]:
        assert word in text, word
    bars = {line.split("  ")[0]: line.count("#") for line in page if "#" in line}
    assert 0 < bars["measured"] < bars["planned"]
    assert re.search(r"planned +7\.00 GiB", text) and re.search(r"measured +6\.00 GiB", text)
    assert re.search(r"cgroup +6\.50 GiB #+-* of 9\.00 GiB", text)


@pytest.mark.parametrize("rows, columns", [(8, 40), (2, 10), (50, 200)])
def test_watch_fits_other_terminals(tmp_path, rows, columns):
    Scripted(tmp_path / "a.sock", looks())
    with Screen(tmp_path / "a.sock", rows, columns) as screen:
        page = screen.wait_for(lambda text: len(screen.pages()) >= 2)
        assert screen.interrupt() == FINE
    assert 0 < len(page) < rows and max(map(len, page)) < columns
    if rows == 50:
        assert "line 1 " in "\n".join(page)  # all of the plan


def test_watch_follows_the_terminals_size(tmp_path):
    Scripted(tmp_path / "a.sock", looks())
    with Screen(tmp_path / "a.sock") as screen:
        screen.wait_for(lambda text: text.count("\n") == 22)
        screen.resize(10, 60)
        screen.process.send_signal(signal.SIGWINCH)
        page = screen.wait_for(lambda text: text.count("\n") == 8)
        assert max(map(len, page)) < 60
        assert screen.interrupt() == FINE


def test_watch_has_colours_unless_nobody_wants_them(tmp_path):
    Scripted(tmp_path / "a.sock", looks())
    with Screen(tmp_path / "a.sock") as screen:
        screen.wait_for(lambda text: "swapped" in text)
        assert b"\x1b[1;31mswapped" in screen.drawn
        assert screen.interrupt() == FINE
    with Screen(tmp_path / "a.sock", NO_COLOR="1") as screen:
        screen.wait_for(lambda text: "swapped" in text)
        assert screen.interrupt() == FINE
        assert not re.search(rb"\x1b\[[0-9;]*m", screen.drawn)


def test_watch_without_a_terminal_is_plain_lines(tmp_path):
    Scripted(tmp_path / "a.sock", looks())
    with subprocess.Popen([CTL, "stats", "--watch", "--socket", tmp_path / "a.sock"],
                          stdout=subprocess.PIPE, text=True) as watching:
        lines = [watching.stdout.readline() for _ in range(60)]
        watching.send_signal(signal.SIGTERM)
        assert watching.wait(timeout=10) == FINE
    assert "\n" in lines and not any("\x1b" in line for line in lines)
    assert any(line.startswith("tokens/s") for line in lines)


def test_watch_shows_an_engine_that_loads(tmp_path):
    Scripted(tmp_path / "a.sock", looks(loading=3))
    with Screen(tmp_path / "a.sock") as screen:
        page = screen.wait_for(lambda text: "the model loads" in text)
        assert "loading 40 %" in "\n".join(page)
        screen.wait_for(lambda text: "tokens/s" in text)
        assert screen.interrupt() == FINE


def test_watch_waits_for_a_daemon_that_is_started_again(tmp_path):
    path = tmp_path / "a.sock"
    first = Scripted(path, looks(n_looks=2))
    with Screen(path) as screen:
        screen.wait_for(lambda text: "tokens/s" in text)
        first.socket.close()
        path.unlink()
        page = screen.wait_for(lambda text: "waiting for the daemon" in text)
        assert len(page) == 2
        n = len(screen.pages())
        Scripted(path, looks())
        until(lambda: screen.read(0.1) or "tokens/s" in str(screen.texts()[n:]), 20)
        assert screen.interrupt() == FINE


def test_watch_of_a_real_daemon_survives_its_engines_death(start_fake):
    server = start_fake({"load_ms": 300, "token_ms": 1})
    with Screen(admin_path(server)) as screen, server.stream("hi", max_tokens=4000) as stream:
        stream.read(3)
        screen.wait_for(lambda text: "1 running" in text and "budget 1.00 GiB" in text)
        (door,) = server.children()["colizig-door"]
        os.kill(door, signal.SIGKILL)
        n = len(screen.pages())
        until(lambda: screen.read(0.1) or "serving" in str(screen.texts()[n:]), 20)
        assert screen.interrupt() == FINE
    assert server.stop() == 0


def test_watch_in_json_is_the_counters_until_the_daemon_ends(tmp_path):
    Scripted(tmp_path / "a.sock", looks(n_looks=3, loading=1))
    done = ctl(tmp_path / "a.sock", "stats", "--watch", "--json")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert lines[0]["error"]["message"] == "the model loads"
    assert [line["steps"] for line in lines[1:3]] == [2 * 10**8, 3 * 10**8]
    assert done.returncode == NO_DAEMON and "the daemon ended" in done.stderr
