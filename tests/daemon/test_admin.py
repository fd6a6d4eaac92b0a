"""The admin socket's commands: what each answers and does, also in the middle of a long step."""
import contextlib
import json
import os
import re
import statistics
import time

import pytest

import server as daemon
from admin import Admin, admin_path, until


@pytest.fixture(scope="module")
def one_at_a_time(start_fake):
    """One sequence runs, the rest wait; a prompt of 250 words takes a second or more."""
    return start_fake({"token_ms": 5, "prefill_ms": 4, "sequences": 1, "queue": 8,
                       "context": 4096, "stop_ids": []})


# ---- what each command answers ----

def processes_of(status):
    return [status, status["engine"], *status["workers"]]


def told_descriptors(status):
    return [one["descriptors"] for one in processes_of(status)]


def held_descriptors(status):
    return [len(os.listdir(f"/proc/{one['pid']}/fd")) for one in processes_of(status)]


def test_status_tells_processes_and_memory_beside_the_plan(fake):
    with Admin(fake) as admin:
        until(lambda: admin.data("status")["phase"] == "serving")
        # A worker may only now close the connection by which it was seen to be ready.
        until(lambda: told_descriptors(admin.data("status")) ==
              held_descriptors(admin.data("status")))
        status = admin.data("status")
        plan = admin.data("plan")
    assert status["pid"] == fake.pid
    assert status["listen"] == [f"127.0.0.1:{fake.port}"]
    assert status["version"].startswith("0.") and status["model"] == "fake-model"
    assert status["engine"]["status"] == "serving"
    pids = {pid for pids in fake.children().values() for pid in pids}
    processes = processes_of(status)
    assert {one["pid"] for one in processes} == pids | {fake.pid}
    for one in processes:
        assert one["anonymous_bytes"] > 0 and one["locked_bytes"] == 0
    for one in processes[1:]:
        assert one["ready"] and one["restarts"] == 0 and one["up_ms"] > 0
    memory = status["memory"]
    assert memory["planned_bytes"] == plan["total"]
    assert memory["budget_bytes"] == plan["ram"]
    assert memory["anonymous_bytes"] == sum(one["anonymous_bytes"] for one in processes)
    assert memory["swapped_bytes"] == sum(one["swapped_bytes"] for one in processes)
    if memory["cgroup"]:
        assert memory["cgroup"]["usage_bytes"] > 0


def test_stats_plan_and_inspect_are_the_engines(fake):
    assert fake.chat("hi", max_tokens=3).status == 200
    with Admin(fake) as admin:
        until(lambda: admin.data("stats")["n_finished"] >= 1)
        stats = admin.data("stats", number="text id")
        assert stats["running"] == 0 and stats["generated_tokens"] >= 3
        plan = admin.data("plan")
        assert sum(line["bytes"] for line in plan["lines"]) == plan["total"]
        assert admin.data("inspect")["model_type"] == "fake"


def test_experts_tell_layers_and_the_hottest_as_many_as_wanted(fake):
    with Admin(fake) as admin:
        experts = admin.data("experts")
        assert [one["layer"] for one in experts["layers"]] == [1, 2]
        for one in experts["layers"]:
            assert one["n_resident"] <= one["n_experts"]
            assert {"hits", "misses", "evictions"} <= set(one)
        heats = [one["heat"] for one in experts["hottest"]]
        assert heats == sorted(heats, reverse=True) and len(heats) == 8
        assert isinstance(experts["hottest"][0]["resident"], bool)
        assert len(admin.data("experts", top=3)["hottest"]) == 3
        assert admin.data("experts", top=0)["hottest"] == []
        assert "0 to 1024" in admin.error("experts", top=5000)["message"]


def test_the_real_engine_tells_its_experts(start_real):
    server = start_real("tiny-fp8")
    assert server.complete("hello", max_tokens=4).status == 200
    with Admin(server) as admin:
        info, experts = admin.data("inspect"), admin.data("experts", top=1024)
        stats = admin.data("stats")
    assert len(experts["layers"]) == info["n_moe_layers"]
    assert sum(one["hits"] for one in experts["layers"]) == stats["expert_hits"]
    assert sum(one["misses"] for one in experts["layers"]) == stats["expert_misses"]
    assert 0 < len(experts["hottest"]) <= info["n_moe_layers"] * info["n_experts"]
    for one in experts["hottest"]:
        assert 0 <= one["heat"] <= 1 and one["expert"] < info["n_experts"]


@contextlib.contextmanager
def three_requests(server):
    """One decodes, one reads its prompt or waits, one waits behind it; yields admin and streams."""
    with contextlib.ExitStack() as stack:
        admin = stack.enter_context(Admin(server))
        first = stack.enter_context(server.stream("one", max_tokens=3000))
        first.read(3)
        second = stack.enter_context(server.stream("two", max_tokens=8))
        third = stack.enter_context(server.stream("three", max_tokens=8))
        until(lambda: len(admin.data("requests")["requests"]) == 3)
        yield admin, [first, second, third]


def name_of(stream):
    return stream.answer.headers["x-request-id"]


def find(admin, name):
    """The request's entry in the list, or None."""
    return next((one for one in admin.data("requests")["requests"] if one["request"] == name), None)


def test_requests_tell_who_runs_who_waits_and_where(one_at_a_time):
    with three_requests(one_at_a_time) as (admin, streams):
        until(lambda: find(admin, name_of(streams[0]))["generated"] >= 3)
        listed = {one["request"]: one for one in admin.data("requests")["requests"]}
        first, second, third = (listed[name_of(stream)] for stream in streams)
        assert first["state"] == "decode" and first["place"] == 0
        assert first["prompt_done"] == first["prompt_tokens"] > 0
        assert first["client"] == "127.0.0.1" and first["worker"] in (0, 1)
        assert [second["state"], third["state"]] == ["waiting", "waiting"]
        assert sorted([second["place"], third["place"]]) == [1, 2]
        assert second["generated"] == 0 and second["age_ms"] >= 0
        assert "one" not in json.dumps(list(first.values())[2:])  # no text of a prompt
        streams[0].close()
        # Places follow when one ends: the next runs, the other is first in the queue.
        until(lambda: sorted(one["place"] for one in admin.data("requests")["requests"])
              in ([0, 1], [0], []))
        until(lambda: admin.data("requests")["requests"] == [])


# ---- cancelling ----

def test_cancel_ends_a_stream_with_an_error_event_and_its_neighbours_go_on(one_at_a_time):
    with three_requests(one_at_a_time) as (admin, streams):
        name = name_of(streams[0])
        assert admin.data("cancel", request=name) == {"request": name}
        last = streams[0].rest().events[-1]
        assert last["error"]["code"] == "request_cancelled" and "cancelled" in \
            last["error"]["message"]
        assert not streams[0].done or streams[0].events[-1] is last
        for stream in streams[1:]:
            assert stream.rest().finish() == "length"
        assert admin.error("cancel", request=name)["kind"] == "input"
    one_at_a_time.await_log(rf"admin: cancel id={name} uid={os.geteuid()} pid={os.getpid()}")


@pytest.mark.parametrize("stream", [False, True])
def test_cancel_reaches_a_request_that_waits(one_at_a_time, stream):
    with Admin(one_at_a_time) as admin, one_at_a_time.stream("one", max_tokens=3000) as running, \
            one_at_a_time.connect() as waiting:
        running.read(2)
        waiting.send("POST", "/v1/chat/completions",
                     daemon.chat_body("two", max_tokens=5, stream=stream))
        (name,) = until(lambda: [one["request"] for one in admin.data("requests")["requests"]
                                 if one["state"] == "waiting"])
        begun = daemon.Stream(waiting) if stream else None  # its status line is out
        assert admin.ask("cancel", request=name)["ok"]
        if stream:
            assert begun.rest().events[-1]["error"]["code"] == "request_cancelled"
        else:
            answer = waiting.answer()
            assert answer.status == 500 and answer.error()["code"] == "request_cancelled"
            assert answer.headers["x-should-retry"] == "false"
        assert running.read(2).choices()


def test_cancel_reaches_a_request_that_reads_its_prompt(one_at_a_time):
    with Admin(one_at_a_time) as admin, one_at_a_time.connect() as client:
        client.send("POST", "/v1/completions", {"prompt": "hello " * 900, "max_tokens": 5})
        entry = until(lambda: next((one for one in admin.data("requests")["requests"]
                                    if one["state"] == "prefill" and one["prompt_done"]), None))
        assert entry["prompt_done"] < entry["prompt_tokens"] and entry["generated"] == 0
        assert admin.ask("cancel", request=entry["request"])["ok"]
        answer = client.answer()
        assert answer.status == 500 and answer.error()["code"] == "request_cancelled"
        assert admin.data("requests")["requests"] == []
    assert one_at_a_time.chat("hi", max_tokens=2).status == 200


def test_cancel_of_an_unknown_request_is_an_error(fake):
    with Admin(fake) as admin:
        error = admin.error("cancel", request="req_0123456789abcdef0123456789abcdef")
        assert error["kind"] == "input" and "req_0123" in error["message"]
        for bad in ["", "x" * 40, "a b", "\x1b[2J", 'a"b', 5, ["req_1"], {}, True]:
            assert "'request' must be" in admin.error("cancel", request=bad)["message"]
        assert "needs 'request'" in admin.error("cancel")["message"]


# ---- time ----

def timed_stats(admin, seconds, busy):
    """How long each answer took while busy() held, and the counters they brought."""
    took, seen = [], []
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and len(took) < 40:
        start = time.monotonic()
        stats = admin.data("stats")
        took.append(time.monotonic() - start)
        seen.append(stats)
        if not busy():
            break
        time.sleep(0.02)
    return took, seen


def test_stats_answer_within_100_ms_in_the_middle_of_a_long_layer(start_fake):
    """One layer of this engine takes a second; what waits for its end is answered by then too."""
    server = start_fake({"layer_ms": 1000, "token_ms": 1})
    with Admin(server) as admin, Admin(server) as other, server.connect() as client:
        before = admin.data("stats")["steps"]
        client.send("POST", "/v1/completions", {"prompt": "hi", "max_tokens": 1})
        until(lambda: admin.data("stats")["running"] + admin.data("stats")["waiting"])
        took, seen = timed_stats(admin, 0.6, lambda: True)
        in_step = [one for one in seen if one["steps"] == before]  # all but the last, or all
        assert len(in_step) >= 5 and statistics.median(took) < 0.1, took
        assert other.ask("experts")["ok"]


def test_stats_answer_within_100_ms_while_the_real_engine_reads_a_prompt(start_real):
    server = start_real("demo")
    with Admin(server) as admin, server.connect(60) as client:
        client.send("POST", "/v1/completions",
                    {"prompt": "one two three four " * 750, "max_tokens": 1})
        until(lambda: admin.data("stats")["prefilling"], 30)
        took, seen = timed_stats(admin, 2, lambda: seen_prefill(admin))
        assert any(one["prefilling"] for one in seen)
        assert statistics.median(took) < 0.1, took


def seen_prefill(admin):
    return admin.data("stats")["prefilling"] > 0


# ---- acting ----

def test_log_is_told_and_set_for_all_processes(start_fake):
    server = start_fake()
    with Admin(server) as admin:
        assert admin.data("log") == {"level": "info"}
        assert server.get("/health").status == 200
        assert "route=/health" not in server.log()
        assert admin.data("log", level="debug") == {"level": "debug"}
        until(lambda: server.get("/health").status == 200 and "route=/health" in server.log())
        assert admin.data("log", level="err") == {"level": "err"}
        assert admin.data("log") == {"level": "err"}
    assert re.search(rf"admin: log level=debug uid={os.geteuid()} pid={os.getpid()}", server.log())
    assert server.stop() == 0


def test_budget_changes_the_plan_or_names_the_least(start_fake):
    server = start_fake()
    with Admin(server) as admin:
        assert admin.data("budget", ram="512MiB")["ram"] == 512 << 20
        until(lambda: admin.data("status")["memory"]["budget_bytes"] == 512 << 20)
        assert admin.data("plan")["ram"] == 512 << 20
        error = admin.error("budget", ram=1 << 20)
        assert error["kind"] == "budget" and "96 MiB" in error["message"]
        assert admin.data("plan")["ram"] == 512 << 20
    server.await_log("admin: budget ram=536870912 uid=")
    assert server.stop() == 0


def test_drain_ends_the_daemon_when_what_runs_is_done(start_fake):
    server = start_fake({"token_ms": 5, "stop_ids": []})
    with Admin(server) as admin, server.stream("hi", max_tokens=100) as stream:
        stream.read(3)
        assert admin.data("drain", timeout="20s") == {"draining": True}
        assert admin.data("status")["phase"] == "draining"
        assert stream.rest().finish() == "length" and stream.done
        assert admin.at_end()
    assert server.wait() == 0
    assert f"admin: drain timeout_ms=20000 uid={os.geteuid()}" in server.log()
    assert not admin_path(server).exists()


def test_reload_is_answered_when_it_is_done_or_refused(start_fake, tmp_path):
    config = tmp_path / "colizigd.yaml"
    config.write_text("engine:\n  queue: 7\n")
    server = start_fake(arguments=["--config", config])
    with Admin(server) as admin, Admin(server) as other:
        until(lambda: admin.data("status")["phase"] == "serving")
        config.write_text("engine:\n  queue: 9\n")
        data = admin.data("reload")
        assert data["applied"] == ["engine.queue"] and data["engine"] == "adjusted"
        assert data["workers"] == "kept" and data["needs_restart"] == []
        config.write_text("engine:\n  queue: nine\n")
        admin.send(b'{"id":1,"cmd":"reload"}\n')
        assert other.ask("stats")["ok"]
        error = admin.receive()["error"]
        assert error["kind"] == "input" and f"{config}:2" in error["message"]
    server.await_log(f"admin: reload uid={os.geteuid()} pid={os.getpid()}")
    assert server.stop() == 0
