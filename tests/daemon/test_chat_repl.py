"""colizigctl chat: on a terminal, in a pipe, for a script; and a daemon started for it."""
import http.server
import json
import os
import pathlib
import re
import shutil
import signal
import stat
import subprocess
import tempfile
import threading
import time

import pytest

import server
import terminal
from terminal import CTRL_C, CTRL_D, Terminal

CTL = server.BUILD / "colizigctl"
PROMPT, MORE = r">>>(\x1b\[0m)? ", r"\.\.\.(\x1b\[0m)? "
TOLD = "Ada wrote the first program."


@pytest.fixture
def home(tmp_path):
    return tmp_path


@pytest.fixture(scope="module")
def told(start_fake):
    """Says one sentence."""
    return start_fake({"reply": "text", "text": TOLD, "token_ms": 1})


@pytest.fixture(scope="module")
def endless(start_fake):
    return start_fake({"token_ms": 20, "context": 4096})


def chat(daemon, *arguments):
    return [CTL, "chat", "--url", daemon.base, "--socket", f"{daemon.log_path.parent}/admin.sock",
            *arguments]


def run(command, home, text="", **env):
    """Through pipes: status, standard output, standard error."""
    done = subprocess.run([str(word) for word in command], input=text.encode(),
                          capture_output=True, timeout=60, env=terminal.environment(home, **env))
    assert b"Sanitizer" not in done.stderr and b"runtime error" not in done.stderr, done.stderr
    return done.returncode, done.stdout.decode(), done.stderr.decode()


# ---- one question of a script ----

def test_one_shot_prints_the_answer_and_nothing_else(told, home):
    status, out, err = run(chat(told, "--prompt", "Who?"), home)
    assert (status, out) == (0, TOLD + "\n")
    assert re.search(r"\[7 tokens, [\d.]+ tokens/s, first after [\d.]+ s, prompt \d+\]|"
                     r"\[\d+ tokens, ", err), err
    assert run(chat(told, "--prompt", "-", "--quiet"), home, "Who?") == (0, TOLD + "\n", "")


def test_one_shot_json_is_one_object_that_agrees_with_the_server(told, home):
    status, out, err = run(chat(told, "--prompt", "Who?", "--json", "--system", "Be brief."), home)
    said = json.loads(out)
    direct = told.post("/v1/chat/completions", {"messages": [
        {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Who?"}]})
    assert (status, err, out.count("\n")) == (0, "", 1)
    assert said["content"] == TOLD and said["finish_reason"] == "stop"
    assert said["usage"]["prompt_tokens"] == direct.usage()["prompt_tokens"]
    assert said["usage"]["completion_tokens"] == direct.usage()["completion_tokens"]
    assert said["tokens_per_s"] > 0 and said["first_token_s"] > 0


def test_max_tokens_and_seed_reach_the_engine(endless, home):
    flags = ("--max-tokens", "5", "--temperature", "1", "--quiet", "--prompt", "Go", "--seed")
    one, two, other = (run(chat(endless, *flags, seed), home)[1] for seed in ("1", "1", "2"))
    assert one == two != other
    status, _, err = run(chat(endless, "--max-tokens", "5", "--prompt", "Go"), home)
    assert status == 0 and "the limit of tokens ended it" in err and "[5 tokens" in err


def test_no_daemon_is_exit_status_5_with_a_way_out(home):
    status, out, err = run([CTL, "chat", "--url", "http://127.0.0.1:1", "--prompt", "x"], home)
    assert (status, out) == (5, "")
    assert "no daemon" in err and "start colizigd" in err and "--model DIR" in err
    status, out, err = run([CTL, "chat", "--url", "http://127.0.0.1:1"], home, "hello\n")
    assert (status, out) == (5, "")


@pytest.mark.parametrize("flags, named", [
    (["--ram", "1GiB"], "--ram"),
    (["--json"], "--prompt"),
    (["--think", "--no-think"], "--no-think"),
    (["--url", "ftp://127.0.0.1"], "ftp://127.0.0.1"),
    (["--temperature", "3"], "--temperature"),
    (["--api-key", "a b"], "--api-key"),
    (["--model", "x", "--url", "http://127.0.0.1:1"], "--url"),
    (["--model", "/nonexistent/model"], "/nonexistent/model"),
])
def test_wrong_flags_are_exit_status_2_and_named(home, flags, named):
    status, out, err = run([CTL, "chat", *flags], home)
    assert status == 2 and named in err, err


def test_a_question_that_fails_is_exit_status_1(start_fake, home):
    daemon = start_fake({"reply": "varied", "context": 64, "fail_on_text": "boom",
                         "fail_after": 3, "n_tokens": 5})
    status, out, err = run(chat(daemon, "--prompt", "boom", "--json"), home)
    assert status == 1 and "broke off" in err
    assert json.loads(out)["error"]["code"] == "engine_error"
    status, out, err = run(chat(daemon, "--prompt", "many words " * 99), home)
    assert (status, out) == (1, "")
    assert "context_length_exceeded" in err and "the context has 64" in err
    assert "/forget" in err and "/reset" in err
    # A loop of lines goes on, and says at its end that something failed.
    status, out, err = run(chat(daemon), home, "boom\nhello\n/nonsense\n/exit\nunread\n")
    assert status == 1 and "unknown command /nonsense" in err and "/retry asks again" in err
    assert "[6 tokens" in err


@pytest.mark.parametrize("flags", [("--prompt", "Who?"), ("--prompt", "Who?", "--quiet"),
                                   ("--prompt", "Who?", "--json"), ()])
def test_an_answer_that_cannot_be_written_is_said(told, home, flags):
    with open("/dev/full", "wb") as full:
        done = subprocess.run([str(word) for word in chat(told, *flags)], input=b"Who?\n",
                              stdout=full, stderr=subprocess.PIPE, timeout=60, check=False,
                              env=terminal.environment(home))
    assert done.returncode == 1 and b"No space left on device" in done.stderr, done.stderr


def test_a_signal_between_lines_is_exit_status_1(told, home):
    process = subprocess.Popen([str(word) for word in chat(told)], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               env=terminal.environment(home))
    with process:
        process.stdin.write(b"Who?\n")
        process.stdin.flush()
        assert process.stdout.readline().decode() == TOLD + "\n"
        while b"tokens/s" not in process.stderr.readline():
            pass  # the figures end a turn
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 1
    with Terminal(chat(told), home) as t:
        t.expect(PROMPT)
        os.kill(t.pid, signal.SIGTERM)
        assert t.wait() == 1


def test_a_model_that_loads_is_waited_for(start_fake, home):
    daemon = start_fake({"reply": "text", "text": TOLD, "load_ms": 700}, wait=None)
    status, out, err = run(chat(daemon, "--prompt", "x"), home)
    assert (status, out) == (0, TOLD + "\n") and "still loading" in err


# ---- a person at a terminal ----

def test_a_conversation_streams_and_is_remembered(told, home):
    with Terminal(chat(told), home) as t:
        t.expect(r"demo|fake-model")
        t.expect(r"context 4,096 tokens, at http://127\.0\.0\.1:\d+")
        t.expect(PROMPT)
        t.enter("Who?")
        t.expect(re.escape(TOLD))
        first = int(t.expect(r"tokens/s, first after [\d.]+ s, prompt (\d+)")[1])
        t.expect(PROMPT)
        t.enter("And then?")
        second = int(t.expect(r"tokens/s, first after [\d.]+ s, prompt (\d+)")[1])
        assert second > first + 7  # the first question and its answer came along
        t.enter("/system Speak of rivers.")
        t.expect("next question")
        t.enter("/stats")
        t.expect("conversation  2 turns")
        t.expect("engine        [01] running, 0 waiting")
        t.enter("/reset")
        t.expect("forgotten; the system text stays")
        t.enter("Who?")
        third = int(t.expect(r"first after [\d.]+ s, prompt (\d+)")[1])
        assert first < third < second
        t.enter("/retry")
        assert int(t.expect(r"first after [\d.]+ s, prompt (\d+)")[1]) == third
        t.enter("/forget 5")
        t.expect("1 of the oldest turns forgotten, 0 left")
        t.enter("/rest")
        t.expect("unknown command /rest; did you mean /reset")
        t.enter("/help")
        t.expect("/nothink.*/system.*/exit")
        t.enter("/etc/hosts is a file")  # a sentence
        t.expect(re.escape(TOLD))
        t.expect(PROMPT)
        t.type(CTRL_D)
        assert t.wait() == 0


def test_ctrl_c_stops_an_answer_and_keeps_what_came(endless, home):
    mark = len(endless.log())
    with Terminal(chat(endless), home) as t:
        t.expect(PROMPT)
        t.enter("Tell me everything")
        t.expect(r"\n[^\n]*(\w+ ){4}")
        assert not t.echoes()  # what is typed now does not mix with the answer
        t.type(CTRL_C)
        t.expect("stopped; the conversation keeps what came")
        endless.await_log(r"cancel|gone|status=", start=mark)
        t.expect(PROMPT)
        t.enter("/stats")
        t.expect("conversation  1 turns")
        while t.expect(r"engine        (\d) running")[1] != "0":  # it lets go within a layer
            t.expect(PROMPT)
            t.enter("/stats")
        t.expect(PROMPT)
        t.type("half a line" + CTRL_C)
        t.expect("Ctrl-C again")
        t.expect(PROMPT)
        t.enter("/think")  # in between: counting starts over
        t.expect("thinking is on")
        t.expect(PROMPT)
        t.type(CTRL_C)
        t.expect("Ctrl-C again")
        t.expect(PROMPT)
        t.type(CTRL_C)
        assert t.wait() == 0


def test_a_lost_connection_is_said_and_the_turn_can_be_tried_again(start_fake, home):
    daemon = start_fake({"token_ms": 20, "n_tokens": 30}, http__workers=1)
    with Terminal(chat(daemon), home) as t:
        t.expect(PROMPT)
        t.enter("Tell me")
        t.expect(r"\n[^\n]*(\w+ ){3}")
        os.kill(daemon.children()["colizig-worker"][0], signal.SIGKILL)
        t.expect("connection .* was lost.*/retry asks again")
        t.expect(PROMPT)
        daemon.await_status("/readyz", 200)
        t.enter("/stats")
        t.expect("conversation  0 turns")
        t.enter("/retry")
        t.expect(r"\[31 tokens")


def test_lines_are_joined_and_pastes_are_one_message(start_fake, home):
    daemon = start_fake({"reply": "echo", "token_ms": 0.2})
    with Terminal(chat(daemon), home) as t:
        t.expect(PROMPT)
        t.enter("one\\")
        t.expect(MORE)
        t.enter("two")
        t.expect(r"one\r\ntwo.*tokens/s")
        t.expect(PROMPT)
        t.enter('"""three')
        t.expect(MORE)
        t.enter("/exit")
        t.expect(MORE)
        t.enter('four"""')
        t.expect(r"three\r\n/exit\r\nfour.*tokens/s")
        t.expect(PROMPT)
        t.type("\x1b[200~five\rsix\tseven\x01\x1b[201~")
        t.expect("seven")
        t.enter("")
        t.expect(r"five\r\nsix\tseven\r\n.*tokens/s")
        t.enter("/stats")
        t.expect("conversation  3 turns")
    kept = home / ".local/state/colizig/chat-history"
    lines = [json.loads(line) for line in kept.read_text().splitlines()]
    assert lines[:3] == ["one\ntwo", "three\n/exit\nfour", "five\nsix\tseven"]


def test_a_terminal_of_absurd_size_is_talked_to(told, home):
    with Terminal(chat(told), home, columns=65535, rows=65535) as t:
        t.expect(r"65535 x 65535 characters: lines are read as they are.*>>> ")
        t.enter("Who?")
        t.expect(TOLD + r".*>>> ")
        t.enter("/exit")
        assert t.wait() == 0
    with Terminal(chat(told), home) as t:
        t.expect(PROMPT)
        t.resize(65535, 65535)
        t.enter("Who?")
        t.expect(TOLD + r".*" + PROMPT)
        t.type(CTRL_D)
        assert t.wait() == 0


def test_history_is_private_bounded_and_can_be_off(told, home):
    kept = home / ".local/state/colizig/chat-history"
    with Terminal(chat(told, "--no-history"), home) as t:
        t.expect(PROMPT)
        t.enter("a secret")
        t.expect(re.escape(TOLD))
    assert not kept.exists()
    kept.parent.mkdir(parents=True)
    kept.write_text("".join(f'"entry {i}"\n' for i in range(2500)) + 'not JSON\n')
    kept.chmod(0o644)
    with Terminal(chat(told), home) as t:
        t.expect(PROMPT)
        assert stat.S_IMODE(kept.stat().st_mode) == 0o600
        t.type("\x1b[A")
        t.expect("entry 2499")
        t.type("\x15 kept to myself\r")  # begins with a blank
        t.expect(re.escape(TOLD))
    lines = kept.read_text().splitlines()
    assert len(lines) == 1000 and lines[-2] == '"entry 2499"'
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600


# ---- thoughts, and what a terminal would obey ----

class Stub:
    """A server that says what a test wants, and keeps what it was sent."""

    def __init__(self):
        self.events, self.requests, self.refusals = [], [], []
        stub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def send(self, status, body, kind="application/json"):
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_GET(self):
                if self.path == "/v1/models":
                    self.send(200, b'{"data":[{"id":"stub","context_length":1234}]}')
                else:
                    self.send(404, b"{}")

            def do_POST(self):
                size = int(self.headers["Content-Length"])
                stub.requests.append((dict(self.headers), json.loads(self.rfile.read(size))))
                if stub.refusals:
                    self.send(*stub.refusals.pop(0))
                    return
                body = b"".join(b"data: " + json.dumps(event).encode() + b"\r\n\r\n"
                                for event in stub.events)
                self.send(200, b": hello\n\n" + body + b"data: [DONE]\n\n", "text/event-stream")

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def say(self, *deltas, finish="stop"):
        self.requests.clear()
        self.events = [{"choices": [{"delta": delta, "finish_reason": None}]} for delta in deltas]
        self.events.append({"choices": [{"delta": {}, "finish_reason": finish}]})

    def close(self):
        self.http.shutdown()
        self.http.server_close()


@pytest.fixture(scope="module")
def stub():
    one = Stub()
    yield one
    one.close()


def ask_stub(stub, home, *arguments, **env):
    return run([CTL, "chat", "--url", f"{stub.url}/v1/", "--socket", "/nonexistent",
                "--prompt", "Why?", *arguments], home, **env)


def test_thoughts_are_split_off_wherever_their_tags_are_cut(stub, home):
    text = "<think>\nFirst.\nSecond.\n</think>\n\nSo: 1 < 2 and </b>.\n"
    for size in (1, 3, 8, 100):
        stub.say(*({"content": text[i:i + size]} for i in range(0, len(text), size)))
        status, out, err = ask_stub(stub, home)
        assert (status, out) == (0, "So: 1 < 2 and </b>.\n")
        assert "First." in err and "Second." in err and "think>" not in err
    stub.say({"reasoning_content": "Hm. "}, {"reasoning_content": "<think>"}, {"content": "<think>Yes"})
    status, out, err = ask_stub(stub, home, "--json")
    said = json.loads(out)
    assert (said["content"], said["reasoning_content"]) == ("<think>Yes", "Hm. <think>")
    stub.say({"content": "No tag opened it.</th"}, {"content": "ink>\n\nBut this is said."})
    assert json.loads(ask_stub(stub, home, "--json")[1])["content"] == "But this is said."


def test_thoughts_stand_in_a_grey_box_as_wide_as_the_terminal(stub, home):
    stub.say({"content": "<think>" + "many little words " * 6 + "andoneofmorethantwentyletters"},
             {"content": "</think>Done."})
    command = [CTL, "chat", "--url", stub.url, "--socket", "/nonexistent"]
    with Terminal(command, home, columns=24) as t:
        t.expect(PROMPT)
        t.enter("x")
        box = t.expect(r"\x1b\[90m\u256d thinking\r\n.*\u2570 thought for \d")[0]
        t.expect("Done.")
        lines = [re.sub(r"\x1b\[\d*m", "", line) for line in box.split("\r\n")[1:-1]]
        assert len(lines) >= 6 and all(line.startswith("\u2502 ") for line in lines)
        assert all(len(line) < 24 for line in lines), lines
        assert "many little words" in lines[0]
    with Terminal(command, home, columns=24, NO_COLOR="1") as t:
        t.expect(PROMPT)
        t.enter("x")
        t.expect("Done.")
        t.expect(PROMPT)
        assert "\x1b[90m" not in t.output and "\x1b[31m" not in t.output
        assert "\u2502 many little words" in t.output


def test_what_a_model_says_cannot_command_the_terminal(stub, home):
    evil = "\x1b]0;owned\x07 \x1b[2J\x1b[H \u009b31m back\b\b \x7f \u202etxet\rover\r\nnext\ttab \u00e4\U0001f600"
    stub.say({"content": "<think>" + evil + "</think>"}, {"content": evil})
    with Terminal([CTL, "chat", "--url", stub.url, "--socket", "/nonexistent"], home) as t:
        t.expect(PROMPT)
        t.enter("x")
        said = t.expect(r"thinking.*" + PROMPT)[0]
        for bad in ("\x1b]", "\x1b[2J", "\x1b[H", "\x07", "\b", "\u009b", "\x7f", "\u202e",
                    "txet\r"):
            assert bad not in said, bad
        assert "\u241b]0;owned\u2407" in said and "<U+202E>txet\u240dover\r\nnext\ttab" in said
        assert said.count("\u00e4\U0001f600") == 2
    # In a pipe the answer is what the model said, byte for byte.
    assert ask_stub(stub, home)[1] == evil + "\n"
    # A server's words are no better than its model's.
    stub.refusals.append((418, json.dumps({"error": {"message": "tea\x1b[2J", "code": "pot\x1b[H",
                                                     "type": "x", "param": None}}).encode()))
    status, out, err = ask_stub(stub, home)
    assert status == 1 and "418 pot" in err and "tea" in err and "\x1b" not in err


def test_the_switch_for_thinking_falls_back_to_the_soft_one(stub, home):
    stub.say({"content": "Fine."})
    assert ask_stub(stub, home, "--no-think", "--api-key", "sesame")[:2] == (0, "Fine.\n")
    headers, sent = stub.requests[-1]
    assert headers["Authorization"] == "Bearer sesame"
    assert sent["chat_template_kwargs"] == {"enable_thinking": False}
    assert sent["messages"] == [{"role": "user", "content": "Why?"}]
    assert sent["model"] == "stub" and sent["stream"] and sent["stream_options"]["include_usage"]
    stub.refusals.append((400, b'{"error":{"message":"unknown field chat_template_kwargs",'
                               b'"type":"x","param":null,"code":"unknown_parameter"}}'))
    status, out, err = ask_stub(stub, home, "--no-think")
    sent = stub.requests[-1][1]
    assert (status, out) == (0, "Fine.\n") and "takes no switch" in err
    assert sent["messages"][-1]["content"] == "Why? /no_think"
    assert "chat_template_kwargs" not in sent


def test_a_server_that_talks_nonsense_is_a_clear_failure(stub, home):
    stub.say()
    stub.events = ["x" * (5 << 20)]
    status, _, err = ask_stub(stub, home)
    assert status == 1 and "4 MiB" in err
    stub.events = [{"choices": [{"delta": {"content": "half"}}]}]
    status, out, err = ask_stub(stub, home)
    assert status == 1 and "ended its answer in the middle" in err and out == "half\n"
    stub.refusals.append((401, b"who are you"))
    status, _, err = ask_stub(stub, home)
    assert status == 1 and "401" in err and "who are you" in err and "--api-key" in err


# ---- a daemon started for it ----

def private_daemons(parent):
    """pids of colizigd whose parent is this process."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            text = path.read_text()
        except OSError:
            continue
        if int(text[text.rindex(")") + 2:].split()[1]) == parent:
            found.append(int(text.split()[0]))
    return found


def all_gone(pids, seconds=20):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not any(pathlib.Path(f"/proc/{pid}").exists() for pid in pids):
            return True
        time.sleep(0.02)
    return False


@pytest.fixture
def run_dir():
    """A short one: a socket's path has 107 bytes."""
    path = pathlib.Path(tempfile.mkdtemp(prefix="run-"))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def own():
    return [CTL, "chat", "--model", server.MODELS / "demo", "--ram", "512MiB", "--context", "512",
            "--expert-slots", "half"]


def test_a_private_daemon_answers_and_leaves_nothing(own, home, run_dir):
    status, out, err = run([*own, "--prompt", "Hello", "--max-tokens", "8", "--no-think"], home,
                           XDG_RUNTIME_DIR=str(run_dir))
    assert status == 0 and len(out) > 1
    assert re.search(r"\[8 tokens, .*expert hit rate \d+\.\d %", err), err
    assert list(run_dir.iterdir()) == []


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_a_private_daemon_ends_with_us(own, home, run_dir, how):
    with Terminal(own, home, XDG_RUNTIME_DIR=str(run_dir)) as t:
        t.expect(r"context 512 tokens.*" + PROMPT)
        (private,) = run_dir.iterdir()
        assert stat.S_IMODE(private.stat().st_mode) == 0o700
        daemons = private_daemons(t.pid)
        assert len(daemons) == 1
        family = daemons + private_daemons(daemons[0])
        assert len(family) == 3  # supervisor, worker, engine
        os.kill(t.pid, how)
        t.wait()
        assert all_gone(family)
        assert how == signal.SIGKILL or not private.exists()


def test_a_private_daemon_that_cannot_start_says_why(home, run_dir):
    command = [CTL, "chat", "--model", server.MODELS / "demo", "--prompt", "x"]
    status, out, err = run([*command, "--ram", "1MiB"], home, XDG_RUNTIME_DIR=str(run_dir))
    assert (status, out) == (4, "") and "memory.ram" in err and "needs at least" in err
    status, out, err = run([*command[:3], home, "--prompt", "x"], home,
                           XDG_RUNTIME_DIR=str(run_dir))
    assert (status, out) == (3, "") and "colizigd ended" in err
    assert list(run_dir.iterdir()) == []
