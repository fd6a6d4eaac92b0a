"""The admin socket's clients: what they send, how many they are, who may act, who watches; and
what none of them can do to it."""
import contextlib
import json
import os
import signal
import socket
import threading
import time

import pytest

from admin import Admin, admin_path, until

KIB64 = 64 << 10
COMMANDS = ["status", "stats", "plan", "inspect", "experts", "requests", "cancel", "reload",
            "drain", "budget", "log", "watch"]


# ---- lines ----

@pytest.mark.parametrize("line, words", [
    (b"nonsense", "no JSON"),
    (b"[]", "JSON object"),
    (b"5", "JSON object"),
    (b"null", "JSON object"),
    (b"{}", "'cmd' must be a string"),
    (b'{"cmd":5}', "'cmd' must be a string"),
    (b'{"cmd":"status"', "ends too soon"),
    (b'{"cmd":"status"}}', "more follows"),
    (b'{"cmd":"status","cmd":"stats"}', "given twice"),
    (b'{"cmd":"status","id":{}}', "'id' must be"),
    (b'{"cmd":"status","id":1.5}', "'id' must be"),
    (b'{"cmd":"status","id":true}', "'id' must be"),
    (b'{"cmd":"status","top":3}', "'status' takes no 'top'"),
    (b'{"cmd":"experts","tip":3}', "it takes top"),
    (b'{"cmd":"experts","top":"3"}', "'top' must be an integer"),
    (b'{"cmd":"experts","top":-1}', "'top' must be an integer"),
    (b'{"cmd":"experts","top":1e2}', "'top' must be an integer"),
    (b'{"cmd":"experts","top":99999999999999999999}', "too large"),
    (b'{"cmd":"watch","every_ms":99}', "from 100"),
    (b'{"cmd":"log","level":"loud"}', "'level' must be"),
    (b'{"cmd":"drain","timeout":"soon"}', "no duration"),
    (b'{"cmd":"budget","ram":"much"}', "no size"),
    (b'{"cmd":"budget","ram":0}', "'ram' must be"),
    (b'{"cmd":"budget"}', "needs 'ram'"),
    (b'{"cmd":"st\x00atus"}', "no JSON"),
    (b'{"cmd":"st\\u0000atus"}', "zero byte"),
    (b'{"cmd":"\xff\xfe"}', "not UTF-8"),
    (b"[" * 60000, "nested too deeply"),
    (b'{"a":' * 10000, "nested too deeply"),
])
def test_a_line_that_is_wrong_is_told_what_is_wrong(fake, line, words):
    with Admin(fake) as admin:
        admin.send(line + b"\n")
        answer = admin.receive()
        assert not answer["ok"] and answer["error"]["kind"] == "input", answer
        assert words in answer["error"]["message"], answer
        assert admin.ask("status")["ok"]  # and goes on


@pytest.mark.parametrize("number", [0, -5, 2**62, "text", "", "\u00e4\u4e16", "x" * 1000])
def test_an_id_comes_back_as_it_was(fake, number):
    with Admin(fake) as admin:
        assert admin.ask("status", number=number)["ok"]
        assert not admin.ask("nope", number=number)["ok"]


def test_an_unknown_command_lists_those_there_are_and_the_nearest(fake):
    with Admin(fake) as admin:
        error = admin.error("expert")
        assert error["kind"] == "unsupported" and "did you mean 'experts'" in error["message"]
        for command in COMMANDS:
            assert command in error["message"]
        assert "did you mean" not in admin.error("xyzzy")["message"]
        assert "\x1b" not in admin.error("\x1b[2J")["message"]


def test_several_lines_at_once_are_answered_in_order(fake):
    with Admin(fake) as admin:
        admin.send(b'{"cmd":"status"}\n{"id":1,"cmd":"stats"}\n[]\n{"id":"x"}\nnonsense\n\n\n')
        answers = [admin.receive() for _ in range(5)]
        assert [one["ok"] for one in answers] == [True, True, False, False, False]
        assert [one["id"] for one in answers] == [None, 1, None, "x", None]
        admin.send(b'{"cmd":"stats"}\n' * 500)
        assert all(admin.receive()["ok"] for _ in range(500))


def test_half_lines_wait_and_two_clients_do_not_mix(fake):
    with Admin(fake) as one, Admin(fake) as two:
        for byte in b'{"id":"one","cmd":"sta':
            one.send(bytes([byte]))
            assert two.ask("stats", "two")["ok"]
        one.send(b"tus")
        two.send(b'{"id":"late","cmd":')
        one.send(b'"}\n')
        answer = one.receive()
        assert answer["id"] == "one" and answer["data"]["phase"] == "serving"
        two.send(b'"inspect"}\n')
        assert two.receive()["id"] == "late"


def test_two_clients_at_once_get_their_own_answers(fake):
    faults = []

    def hammer(name):
        with Admin(fake) as admin:
            for n in range(100):
                command = ["stats", "plan", "status", "requests"][n % 4]
                answer = admin.ask(command, f"{name}{n}")
                if not answer["ok"]:
                    faults.append(answer)
    threads = [threading.Thread(target=hammer, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not faults and not any(thread.is_alive() for thread in threads)


def padded(size):
    """A good line of exactly size bytes, its line feed not counted."""
    line = b'{"id":1,"cmd":"status"}'
    return line + b" " * (size - len(line))


def test_a_line_of_64_kib_is_read_and_one_byte_more_is_not(fake):
    with Admin(fake) as admin:
        for size in (KIB64 - 1, KIB64):
            admin.send(padded(size) + b"\n")
            assert admin.receive()["ok"]
        admin.send(padded(KIB64) + b"\n" + padded(KIB64) + b"\n")
        assert admin.receive()["ok"] and admin.receive()["ok"]
        admin.send(padded(KIB64 + 1) + b"\n")
        answer = admin.receive()
        assert answer["error"] == {"kind": "input", "message": "a line has at most 64 KiB"}
        assert admin.at_end()


def test_a_million_bytes_without_a_line_feed_get_their_error_and_no_reset(fake):
    with Admin(fake) as admin:
        admin.socket.sendall(b"x" * 1_000_000)  # all of it is taken
        assert admin.receive()["error"]["kind"] == "input"
        assert admin.at_end()


def test_a_client_that_only_sends_is_let_go_after_its_error(fake):
    with Admin(fake) as admin:
        start = time.monotonic()
        with pytest.raises(OSError):
            while time.monotonic() - start < 30:
                admin.socket.sendall(b"x" * 65536)
        assert time.monotonic() - start < 20
    with Admin(fake) as admin:
        assert admin.ask("status")["ok"]


def test_closing_the_writing_side_still_gets_the_answers(fake):
    with Admin(fake) as admin:
        admin.send(b'{"id":5,"cmd":"stats"}\n{"id":6,"cmd":"status"}\n{"id":7,"cmd":"plan"}\n')
        admin.socket.shutdown(socket.SHUT_WR)
        assert [admin.receive()["id"] for _ in range(3)] == [5, 6, 7]
        assert admin.at_end()


# ---- many clients, bad clients ----

def test_the_seventeenth_client_is_told_and_the_sixteen_stay(start_fake):
    server = start_fake()
    with contextlib.ExitStack() as stack:
        many = [stack.enter_context(Admin(server)) for _ in range(16)]
        for one in many:
            assert one.ask("status")["ok"]
        for _ in range(8):  # also more of them than there are places to say so
            with Admin(server) as late:
                assert late.receive()["error"]["kind"] == "busy"
                assert late.at_end()
        with Admin(server) as late:
            late.send(b'{"cmd":"status"}\n')  # its line does not turn the answer into a reset
            assert late.receive()["error"]["kind"] == "busy"
        assert all(one.ask("stats")["ok"] for one in many)
    server.await_log("admin client turned away: 16 are here")
    until(lambda: answers(server))
    assert server.stop() == 0


def answers(server):
    """False while the places of those that left are not free yet."""
    with Admin(server) as admin:
        try:
            return admin.ask("status", None)["ok"]
        except OSError:
            return False


def test_clients_that_never_read_or_vanish_hold_up_nobody(start_fake):
    server = start_fake()

    def descriptors():
        return len(os.listdir(f"/proc/{server.pid}/fd"))
    before = descriptors()
    with contextlib.ExitStack() as stack:
        deaf = [stack.enter_context(Admin(server)) for _ in range(8)]
        for one in deaf:
            one.socket.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                while True:
                    one.socket.send(b'{"cmd":"plan"}\n' * 1000)
        until(lambda: descriptors() == before + len(deaf))
        for _ in range(50):  # with a question under way
            with Admin(server) as gone:
                gone.send(b'{"cmd":"stats"}\n' * 100)
        with Admin(server) as admin:
            assert all(admin.ask("stats")["ok"] for _ in range(20))
        until(lambda: descriptors() == before + len(deaf))
    assert server.stop() == 0


def test_it_answers_while_the_engine_loads_and_while_it_is_down(start_fake):
    server = start_fake({"load_ms": 800}, wait=None)
    server.await_log("engine started")
    with Admin(server) as admin:
        status = admin.data("status")
        assert status["phase"] == "starting" and not status["engine"]["ready"]
        assert status["memory"]["planned_bytes"] is None
        for command in ["stats", "plan", "requests", "experts"]:
            assert admin.error(command)["kind"] == "busy"
        server.await_status("/readyz", 200)
        (door,) = server.children()["colizig-door"]
        os.kill(door, signal.SIGKILL)
        until(lambda: not admin.data("status")["engine"]["ready"])
        assert not admin.ask("plan")["ok"]
        server.await_status("/readyz", 200)
        assert admin.data("status")["engine"]["restarts"] == 1
    assert server.stop() == 0


def test_a_question_under_way_is_answered_when_the_engine_dies(start_fake):
    server = start_fake({"layer_ms": 5000})
    with Admin(server) as admin, Admin(server) as asks, server.connect() as client:
        client.send("POST", "/v1/completions", {"prompt": "hi", "max_tokens": 1})
        until(lambda: admin.data("stats")["running"] + admin.data("stats")["waiting"])
        asks.send(b'{"id":3,"cmd":"experts"}\n')
        time.sleep(0.1)  # on its way
        (door,) = server.children()["colizig-door"]
        os.kill(door, signal.SIGKILL)
        answer = asks.receive()
        assert answer["id"] == 3 and answer["error"]["kind"] == "closed"
    assert server.stop() == 0


# ---- who may act ----

def as_another(uid, gid, groups, function):
    """What function returns in a child of another user; it may not touch the parent's state."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        text = b"null"
        try:
            os.setgroups(groups)
            os.setgid(gid)
            os.setuid(uid)
            text = json.dumps(function()).encode()
        except BaseException as error:  # pylint: disable=broad-except
            text = json.dumps({"raised": repr(error)}).encode()
        finally:
            os.write(writing, text)
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as result:
        value = json.load(result)
    os.waitpid(pid, 0)
    return value, pid


def ask_all(server, commands):
    with Admin(server) as admin:
        return [admin.ask(command, **fields) for command, fields in commands]


ACTS = [("cancel", {"request": "req_1"}), ("reload", {}), ("drain", {}),
        ("budget", {"ram": "1GiB"}), ("log", {"level": "debug"})]


@pytest.fixture(scope="module")
def reachable(start_fake):
    """A server whose socket other users may reach."""
    if os.geteuid() != 0:
        pytest.skip("only root can run a client as another user")
    server = start_fake()
    directory = admin_path(server).parent
    while directory != directory.parent and directory.stat().st_uid == os.geteuid():
        directory.chmod(directory.stat().st_mode | 0o011)
        directory = directory.parent
    return server


def test_a_wrong_uid_may_look_but_not_act(reachable):
    path = admin_path(reachable)
    assert path.stat().st_mode & 0o777 == 0o660
    value, _ = as_another(12345, 12345, [], lambda: ask_all(reachable, [("status", {})]))
    assert "PermissionError" in value["raised"]  # the mode keeps strangers out
    path.chmod(0o666)
    try:
        (status, level, *acts), pid = as_another(
            12345, 12345, [12346],
            lambda: ask_all(reachable, [("status", {}), ("log", {}), *ACTS]))
    finally:
        path.chmod(0o660)
    assert status["ok"] and level["ok"]
    for (command, _), answer in zip(ACTS, acts):
        assert answer["error"]["kind"] == "input"
        for word in [f"'{command}'", "root", f"uid {os.geteuid()}", "group", "uid 12345"]:
            assert word in answer["error"]["message"]
        reachable.await_log(rf"warning supervisor: admin: {command} refused uid=12345 pid={pid}")
    assert reachable.chat("hi", max_tokens=2).status == 200


@pytest.mark.parametrize("gid, groups", [(4242, []), (12345, [5, 4242]),
                                         (12345, [*range(100, 150), 4242])],
                         ids=["its_own", "among_few", "among_many"])
def test_members_of_the_sockets_group_may_act(reachable, gid, groups):
    path = admin_path(reachable)
    os.chown(path, -1, 4242)
    (cancel, level), pid = as_another(
        12345, gid, groups,
        lambda: ask_all(reachable, [ACTS[0], ("log", {})]))
    assert "no request 'req_1'" in cancel["error"]["message"] and level["ok"]
    reachable.await_log(rf"admin: cancel id=req_1 uid=12345 pid={pid}")


# ---- watching ----

def test_watch_repeats_stats_until_another_line_comes(fake):
    with Admin(fake) as admin:
        start = time.monotonic()
        admin.send(b'{"id":"w","cmd":"watch","every_ms":100}\n')
        seen = [admin.receive() for _ in range(5)]
        assert time.monotonic() - start > 0.3
        for one in seen:
            assert one["id"] == "w" and one["ok"] and one["more"] is True
            assert one["data"]["status"]["memory"]["planned_bytes"] > 0
            assert "n_finished" in one["data"]["stats"]
        admin.send(b'{"id":"next","cmd":"status"}\n')
        while (answer := admin.receive())["id"] == "w":
            pass
        assert answer["id"] == "next" and "more" not in answer
        admin.socket.settimeout(0.4)
        with pytest.raises(TimeoutError):
            admin.socket.recv(1)


def test_a_watch_ends_with_its_client_or_an_empty_line(fake):
    descriptors = len(os.listdir(f"/proc/{fake.pid}/fd"))
    for _ in range(5):
        with Admin(fake) as admin:
            admin.send(b'{"cmd":"watch","every_ms":100}\n')
            assert admin.receive()["more"]
    until(lambda: len(os.listdir(f"/proc/{fake.pid}/fd")) <= descriptors)
    with Admin(fake) as admin:
        admin.send(b'{"id":1,"cmd":"watch","every_ms":100}\n')
        assert admin.receive()["more"]
        admin.send(b"\n")
        time.sleep(0.2)
        while admin.ask("status", 1).get("more"):
            pass
        assert admin.ask("stats", 2)["ok"]


def test_watch_goes_on_while_the_engine_is_down(start_fake):
    server = start_fake({"load_ms": 400})
    with Admin(server) as admin:
        admin.send(b'{"cmd":"watch","every_ms":100}\n')
        assert admin.receive()["data"]["stats"]
        (door,) = server.children()["colizig-door"]
        os.kill(door, signal.SIGKILL)
        down = next(one for one in iter(admin.receive, None) if not one["data"]["stats"])
        assert down["ok"] and down["data"]["error"]["kind"] in ("closed", "busy")
        up = next(one for one in iter(admin.receive, None) if one["data"]["stats"])
        assert up["data"]["status"]["engine"]["restarts"] == 1
    assert server.stop() == 0
