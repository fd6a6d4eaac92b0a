"""colizigctl as a person or a script meets it: answers, refusals and exit codes."""
import array
import fcntl
import json
import os
import pathlib
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

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("COLIZIG_BUILD", ROOT / "build"))
CTL = BUILD / "colizigctl"
MODELS = ROOT / "build" / "models"
TINY = MODELS / "tiny-fp8"
FINE, FAILED, USAGE, CHECKPOINT, BUDGET, NO_DAEMON = range(6)


def ctl(*args, text=None, timeout=60):
    return subprocess.run([CTL, *map(str, args)], input=text, capture_output=True, text=True,
                          timeout=timeout)


def answer(*args, **more):
    done = ctl(*args, "--json", **more)
    assert done.returncode == FINE, done.stderr
    return json.loads(done.stdout)


def forward(*args, model=TINY, tokens="1,2,3,4,5,6,7,8,9,10,11,12"):
    return answer("forward", model, "--tokens", tokens, "--ram", "1GiB", *args)


# ---- usage ----

@pytest.mark.parametrize("command", ["", "chat", "status", "stats", "inspect", "plan", "tokenize",
                                     "forward", "selftest"])
def test_help_fits_a_screen(command):
    done = ctl(*command.split(), "--help")
    assert done.returncode == FINE
    lines = done.stdout.splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 88
    assert "usage: colizigctl" in lines[0]


@pytest.mark.parametrize("args, word", [
    ([], "no command"),
    (["frobnicate"], "frobnicate"),
    (["inspect"], "missing"),
    (["inspect", TINY, TINY], "too many"),
    (["inspect", "/nowhere/at/all"], "/nowhere/at/all"),
    (["plan", TINY, "--ran", "1G"], "did you mean --ram"),
    (["plan", TINY, "--ram"], "--ram SIZE"),
    (["plan", TINY, "--ram", "12 giraffes"], "12 giraffes"),
    (["plan", TINY, "--ram", "-1"], "--ram"),
    (["plan", TINY, "--ram", "1e30"], "--ram"),
    (["plan", TINY, "--ram", "0"], "--ram"),
    (["plan", TINY, "--kernels", "mmx"], "mmx"),
    (["plan", TINY, "--expert-slots", "some"], "--expert-slots"),
    (["plan", TINY, "--expert-slots", "999999"], "expert_slots"),
    (["plan", TINY, "--context", "999999"], "context"),
    (["plan", TINY, "--json=yes"], "--json takes no value"),
    (["plan"], "model directory"),
    (["forward", TINY], "--tokens"),
    (["forward", TINY, "--tokens", "1,x"], "'x'"),
    (["forward", TINY, "--tokens", "1,-2"], "-2"),
    (["forward", TINY, "--tokens", ""], "no token ids"),
    (["forward", TINY, "--tokens", "1,,2"], "comma"),
    (["forward", TINY, "--tokens", "1,2,"], "comma"),
    (["forward", TINY, "--tokens", ",1"], "comma"),
    (["forward", TINY, "--tokens", "1", "--top-p", "nan"], "--top-p"),
    (["forward", TINY, "--tokens", "1", "--steps", "x"], "--steps"),
    (["forward", TINY, "--tokens", "1", "--temperature", "-1"], "--temperature"),
    (["forward", TINY, "--tokens", "1", "--temperature", "warm"], "--temperature"),
    (["forward", TINY, "--tokens", "1", "--threads", "x"], "--threads"),
    (["plan", TINY, "--threads", "0"], "--threads"),
    (["inspect", TINY, "--threads", "x"], "--threads"),
    (["tokenize", TINY, "hello", "--threads", "x"], "--threads"),
    (["selftest", "--threads", "-1"], "--threads"),
    (["status", "--threads", "x"], "--threads"),
    (["stats", "--threads=1.5"], "--threads"),
    (["status", "--socket", "/" + "x" * 200], "--socket"),
])
def test_a_wrong_word_is_a_usage_error_that_names_it(args, word):
    done = ctl(*args)
    assert done.returncode == USAGE
    assert word in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_every_command_takes_json_and_threads():
    for command in ["inspect", "plan", "tokenize", "forward", "selftest", "status", "stats"]:
        text = ctl(command, "--help").stdout
        assert "--json" in text and "--threads" in text


# ---- inspect ----

def test_inspect_accounts_for_every_byte_of_the_tensors():
    info = answer("inspect", TINY)
    shards = sorted(TINY.glob("*.safetensors"))
    data = 0
    for shard in shards:
        size = int.from_bytes(shard.open("rb").read(8), "little")
        data += shard.stat().st_size - 8 - size
    assert info["total_bytes"] == data
    assert info["n_shards"] == len(shards)
    assert info["architecture"] == "Qwen3MoeForCausalLM"
    assert info["fp8"] is True and info["derived"] is False
    plain = ctl("inspect", TINY)
    assert plain.returncode == FINE
    assert "experts" in plain.stdout and "100.0 %" in plain.stdout


def test_inspect_of_a_config_alone_derives_the_same_sizes(tmp_path):
    (tmp_path / "config.json").write_bytes((TINY / "config.json").read_bytes())
    derived = answer("inspect", tmp_path)
    real = answer("inspect", TINY)
    assert derived["derived"] is True
    for key in ["n_params", "experts_bytes", "attention_bytes", "router_bytes"]:
        assert derived[key] == real[key]
    assert "derived from config.json" in ctl("inspect", tmp_path).stdout


def test_inspect_of_a_file_tells_its_types():
    shard = sorted(TINY.glob("*.safetensors"))[0]
    info = answer("inspect", shard)
    assert info["file_bytes"] == shard.stat().st_size
    assert sum(t["bytes"] for t in info["dtypes"].values()) == info["data_bytes"]
    assert sum(t["tensors"] for t in info["dtypes"].values()) == info["tensors"]


def test_inspect_refuses_a_broken_file_and_a_broken_directory(tmp_path):
    broken = tmp_path / "broken.safetensors"
    broken.write_bytes(b"\xff" * 64)
    done = ctl("inspect", broken)
    assert done.returncode == CHECKPOINT
    assert "broken.safetensors" in done.stderr
    done = ctl("inspect", tmp_path)
    assert done.returncode == CHECKPOINT
    assert "config.json" in done.stderr
    (tmp_path / "config.json").write_text('{"model_type": "gpt5"}')
    done = ctl("inspect", tmp_path, "--json")
    assert done.returncode == CHECKPOINT
    assert "gpt5" in json.loads(done.stdout)["error"]["message"]


def test_inspect_judges_files_as_their_manifest_says():
    folder = ROOT / "tests" / "data" / "bad-safetensors"
    cases = json.loads((folder / "manifest.json").read_text())
    assert len(cases) > 100
    for case in cases:
        path = folder / case["file"]
        done = ctl("inspect", path)
        allowed = {"valid": [FINE], "invalid": [CHECKPOINT], "either": [FINE, CHECKPOINT]}
        assert done.returncode in allowed[case["expect"]], case
        if done.returncode != FINE:
            assert path.name in done.stderr and len(done.stderr.splitlines()) == 1


# ---- plan ----

def plan(*args, model=TINY):
    return ctl("plan", model, "--no-probe", "--json", *args)


def test_the_plan_sums_up_and_the_minimum_is_exact():
    small = plan("--ram", "1MiB")
    assert small.returncode == BUDGET
    refused = json.loads(small.stdout)
    assert refused["fits"] is False
    minimum = refused["minimum"]
    assert f"{minimum:,} bytes" in small.stderr
    exact = plan("--ram", minimum)
    assert exact.returncode == FINE
    fits = json.loads(exact.stdout)
    assert sum(line["bytes"] for line in fits["lines"]) == fits["total"] <= minimum
    assert plan("--ram", minimum - 1).returncode == BUDGET
    assert plan("--ram", minimum - (1 << 20)).returncode == BUDGET


def test_the_plan_as_a_table_shows_every_line():
    lines = json.loads(plan("--ram", "1GiB").stdout)["lines"]
    table = ctl("plan", TINY, "--no-probe", "--ram", "1GiB").stdout
    for line in lines:
        assert line["name"] in table
        assert f"{line['bytes']:,}" in table
    assert "minimum" in table


def test_a_plan_with_a_probe_gives_an_estimate_and_calls_it_one():
    done = ctl("plan", TINY, "--ram", "1GiB")
    assert done.returncode == FINE
    assert "estimate" in done.stdout and "tokens/s" in done.stdout
    probed = answer("plan", TINY, "--ram", "1GiB")
    assert probed["estimated_memory_gbps"] > 0.1
    assert probed["estimated_disk_gbps"] > 0.0
    assert probed["estimated_tokens_per_second"] > 0.0


def test_a_config_file_can_be_planned_and_its_mistakes_have_a_line(tmp_path):
    conf = tmp_path / "colizigd.yaml"
    conf.write_text(f"model: {{ dir: {TINY} }}\nmemory: {{ ram: 1GiB }}\nhttp: {{ workers: 3 }}\n")
    done = ctl("plan", "--config", conf, "--no-probe", "--json")
    assert done.returncode == FINE, done.stderr
    workers = [l for l in json.loads(done.stdout)["lines"] if l["name"] == "workers"]
    assert "3 x" in workers[0]["detail"]
    conf.write_text(f"model: {{ dir: {TINY} }}\nmemory: {{ ram: 12 giraffes }}\n")
    done = ctl("plan", "--config", conf, "--no-probe")
    assert done.returncode == USAGE
    assert "colizigd.yaml:2" in done.stderr


def test_what_is_not_built_is_refused_by_name():
    for setting, word in [("memory.vram=1GiB", "vram"), ("engine.device=cuda", "device")]:
        done = plan("--set", setting)
        assert done.returncode != FINE
        assert word in done.stderr
    done = plan("--profile", "gpu")
    assert done.returncode != FINE
    assert "gpu" in done.stderr


def test_a_config_alone_can_be_planned(tmp_path):
    (tmp_path / "config.json").write_bytes((TINY / "config.json").read_bytes())
    derived = json.loads(plan("--ram", "1GiB", model=tmp_path).stdout)
    real = json.loads(plan("--ram", "1GiB").stdout)
    assert derived["derived"] is True and real["derived"] is False
    # No tokenizer.json there; else within what alignment may add.
    tokenizers = sum(l["bytes"] for l in real["lines"] if l["name"] == "tokenizers")
    assert abs(derived["minimum"] - (real["minimum"] - tokenizers)) < 4 << 20


# ---- tokenize ----

def test_text_becomes_ids_and_comes_back():
    text = "Hello there, naïve 中文 😀\n\n  two blanks"
    ids = answer("tokenize", TINY, text=text)["ids"]
    back = ctl("tokenize", TINY, "--decode", ",".join(map(str, ids)))
    assert back.returncode == FINE
    assert back.stdout == text
    assert answer("tokenize", TINY, text)["ids"] == ids
    plain = ctl("tokenize", TINY, text).stdout.strip()
    assert plain == ",".join(map(str, ids))


def test_control_tokens_in_text_stay_text_unless_asked_for():
    text = "a<|im_end|>b"
    as_text = answer("tokenize", TINY, text)["ids"]
    as_token = answer("tokenize", TINY, "--special", text)["ids"]
    assert len(as_token) < len(as_text)
    assert ctl("tokenize", TINY, "--decode", *as_text).stdout == text


def test_json_lines_answer_each_line_and_fail_at_the_end():
    lines = ['{"text":"hi <|im_end|>","special":true}', '{"text":"hi <|im_end|>","special":false}',
             '{"text":', '[]', '{"text":5}', '{"text":"x","special":"yes"}', '{"text":""}',
             '{"text":"a\\u0000b"}', '{"text":"\\ud800"}']
    done = ctl("tokenize", TINY, "--jsonl", text="\n".join(lines) + "\n")
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(lines)
    assert done.returncode == FAILED
    assert ["ids" in a for a in answers] == [True, True, False, False, False, False, True, True,
                                             False]
    assert all("error" in a for a in answers if "ids" not in a)
    assert answers[6]["ids"] == []
    good = ctl("tokenize", TINY, "--jsonl", text=lines[0] + "\n")
    assert good.returncode == FINE


def test_json_lines_decode():
    ids = answer("tokenize", TINY, "some text")["ids"]
    done = ctl("tokenize", TINY, "--jsonl", "--decode",
               text=json.dumps({"ids": ids}) + "\n" + '{"ids":[-1]}\n{"ids":[99999999]}\n')
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert answers[0] == {"text": "some text"}
    assert "error" in answers[1] and "error" in answers[2]
    assert done.returncode == FAILED


def test_a_directory_without_a_tokenizer_says_so(tmp_path):
    done = ctl("tokenize", tmp_path, "x")
    assert done.returncode != FINE
    assert "tokenizer.json" in done.stderr


# ---- forward ----

def test_forward_generates_as_many_tokens_as_asked():
    run = forward("--steps", "8")
    assert len(run["tokens"]) == 8
    assert all(0 <= t < run["vocab"] for t in run["tokens"])


def test_logits_have_a_row_for_each_token_seen(tmp_path):
    path = tmp_path / "logits.bin"
    run = forward("--steps", "5", "--logits", path)
    assert run["rows"] == 12 + 5 - 1
    values = array.array("f", path.read_bytes())
    assert len(values) == run["rows"] * run["vocab"]
    # Greedy: each token is the arg max of the row before it.
    for i, token in enumerate(run["tokens"]):
        row = values[(11 + i) * run["vocab"]:(12 + i) * run["vocab"]]
        assert max(range(len(row)), key=row.__getitem__) == token
    none = forward("--steps", "0", "--logits", path)
    assert none["tokens"] == [] and none["rows"] == 12
    assert path.read_bytes() == values[:12 * run["vocab"]].tobytes()


@pytest.mark.parametrize("args, proof", [
    (["--threads", "1"], lambda s: s["threads"] == 1),
    (["--threads", "3"], lambda s: s["pool_jobs"] > 0),
    (["--prefill-rows", "1"], lambda s: s["steps"] == 12 + 7),
    (["--prefill-rows", "7"], lambda s: s["multi_row_products"] > 0),
    (["--expert-slots", "min"], lambda s: s["expert_evictions"] > 0),
    (["--expert-slots", "half"], lambda s: s["expert_slots"] == 12),
    (["--expert-slots", "all"], lambda s: s["expert_evictions"] == 0),
    (["--set", "engine.io=buffered"], lambda s: s["direct_io"] is False),
])
def test_the_same_bits_however_it_is_run(tmp_path, args, proof):
    one, other = tmp_path / "one", tmp_path / "other"
    run = forward("--steps", "8", "--logits", one)
    again = forward("--steps", "8", "--logits", other, *args)
    assert again["tokens"] == run["tokens"]
    assert one.read_bytes() == other.read_bytes()
    assert proof(again["stats"])


def test_a_seed_decides_and_only_when_it_is_warm():
    warm = ["--steps", "12", "--temperature", "1.5", "--seed"]
    assert forward(*warm, "1")["tokens"] == forward(*warm, "1")["tokens"]
    assert forward(*warm, "1")["tokens"] != forward(*warm, "2")["tokens"]
    assert (forward("--steps", "12", "--seed", "1")["tokens"] ==
            forward("--steps", "12", "--seed", "2")["tokens"])


def test_forward_refuses_what_cannot_be():
    done = ctl("forward", TINY, "--tokens", "1,999999", "--ram", "1GiB")
    assert done.returncode == USAGE and "999999" in done.stderr
    done = ctl("forward", TINY, "--tokens", "1,2,3", "--ram", "1MiB")
    assert done.returncode == BUDGET and "at least" in done.stderr
    done = ctl("forward", TINY, "--tokens", "1,2,3", "--context", "16", "--steps", "40", "--ram",
               "1GiB")
    assert done.returncode == FAILED and "context" in done.stderr
    done = ctl("forward", TINY, "--tokens", "1", "--logits", "/nowhere/x", "--ram", "1GiB")
    assert done.returncode == FAILED and "/nowhere/x" in done.stderr


def test_forward_works_at_exactly_the_minimum():
    refused = ctl("forward", TINY, "--tokens", "1,2,3", "--ram", "1MiB")
    minimum = int(refused.stderr.split(" bytes)")[0].rsplit("(", 1)[1].replace(",", ""))
    done = ctl("forward", TINY, "--tokens", "1,2,3", "--ram", minimum)
    assert done.returncode == FINE, done.stderr
    done = ctl("forward", TINY, "--tokens", "1,2,3", "--ram", minimum - (1 << 20))
    assert done.returncode == BUDGET


# ---- selftest ----

def test_selftest_passes_here():
    report = answer("selftest", timeout=100)
    assert report["failed"] == 0
    assert report["passed"] == len(report["checks"]) >= 4


def test_selftest_of_a_model_checks_all_its_promises():
    report = answer("selftest", TINY, "--ram", "1GiB", timeout=100)
    assert report["failed"] == 0
    texts = " / ".join(c["text"] for c in report["checks"])
    for promise in ["tokenizer", "warm cache", "prefill row by row", "neighbours",
                    "fewest expert slots", "evictions", "buffered reads"]:
        assert promise in texts


def test_selftest_of_a_broken_model_fails(tmp_path):
    done = ctl("selftest", tmp_path)
    assert done.returncode == CHECKPOINT
    assert "config.json" in done.stderr


# ---- a daemon ----

class Daemon:
    """Answers line by line from a list of replies, then goes on with the last."""

    def __init__(self, path, *replies):
        self.asked = []
        self.replies = list(replies)
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
            with client, client.makefile("rwb") as stream:
                for line in stream:
                    self.asked.append(json.loads(line))
                    reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
                    if reply is None:
                        break
                    stream.write(reply)
                    stream.flush()


def reply(data):
    return json.dumps({"id": 1, "ok": True, "data": data}).encode() + b"\n"


def test_no_daemon_is_exit_5(tmp_path):
    for command in ["status", "stats"]:
        done = ctl(command, "--socket", tmp_path / "admin.sock")
        assert done.returncode == NO_DAEMON
        assert "admin.sock" in done.stderr
    # A socket that nobody listens on any more.
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(tmp_path / "dead.sock"))
    dead.close()
    assert ctl("status", "--socket", tmp_path / "dead.sock").returncode == NO_DAEMON


def test_status_and_stats_speak_the_admin_protocol(tmp_path):
    path = tmp_path / "admin.sock"
    daemon = Daemon(path, reply({"state": "ready", "generated_tokens": 1234567,
                                 "expert_hits": 3, "expert_misses": 1,
                                 "expert_read_bytes": 3 << 20, "nested": {"direct_io": True}}))
    done = ctl("status", "--socket", path)
    assert done.returncode == FINE
    assert daemon.asked[0]["cmd"] == "status" and daemon.asked[0]["id"] == 1
    done = ctl("stats", "--socket", path)
    assert daemon.asked[1]["cmd"] == "stats"
    for word in ["1,234,567", "3.00 MiB", "75.0 %", "ready", "yes"]:
        assert word in done.stdout
    assert answer("stats", "--socket", path)["expert_hits"] == 3


@pytest.mark.parametrize("bad, word", [
    (b'{"id":1,"ok":false,"error":{"kind":"busy","message":"still loading"}}\n', "still loading"),
    (b"garbage\n", "no JSON"),
    (b"[1]\n", "no JSON object"),
    (b'{"id":1,"ok":true}\n', "refused"),
    (None, "closed"),
])
def test_a_strange_answer_is_a_failure_with_its_reason(tmp_path, bad, word):
    path = tmp_path / "admin.sock"
    Daemon(path, bad)
    done = ctl("stats", "--socket", path)
    assert done.returncode == FAILED
    assert word in done.stderr


def test_control_bytes_of_a_daemon_do_not_reach_the_terminal(tmp_path):
    path = tmp_path / "admin.sock"
    Daemon(path, reply({"state\x1b[2J": "a\x1b[31mb"}))
    done = ctl("stats", "--socket", path)
    assert done.returncode == FINE
    assert "\x1b" not in done.stdout and "a?[31mb" in done.stdout


def test_watch_repeats_until_it_is_interrupted(tmp_path):
    path = tmp_path / "admin.sock"
    daemon = Daemon(path, *(reply({"steps": n * 10}) for n in range(1, 100)))
    watching = subprocess.Popen([CTL, "stats", "--watch", "--json", "--socket", path],
                                stdout=subprocess.PIPE, text=True)
    try:
        first, second = (json.loads(watching.stdout.readline()) for _ in range(2))
        assert (first["steps"], second["steps"]) == (10, 20)
        watching.send_signal(signal.SIGINT)
        assert watching.wait(timeout=5) == FINE
        asked = len(daemon.asked)
        assert asked >= 2
        time.sleep(0.2)
        assert len(daemon.asked) == asked
    finally:
        watching.kill()
        watching.wait()


class Counting(Daemon):
    """Answers by command; the counters grow with each look. Refuses stats while it loads."""

    def __init__(self, path, looks=None, loading=0):
        self.looks, self.loading, self.n = looks, loading, 0
        super().__init__(path)

    def serve(self):
        client, _ = self.socket.accept()
        with client, client.makefile("rwb") as stream:
            for line in stream:
                answer = self.answer(json.loads(line)["cmd"])
                if answer is None:
                    break
                stream.write(answer)
                stream.flush()
        self.socket.close()

    def answer(self, command):
        self.asked.append(command)
        if command == "plan":
            return reply({"ram": 8 << 30})
        if command == "status":
            self.n += 1
            if self.looks and self.n > self.looks:
                return None
            return reply({"phase": "serving", "model": "m" * 300, "up_ms": 3_723_000, "pid": 1,
                          "engine": {"pid": 1, "status": "loading 40 %" if self.n <= self.loading
                                     else "serving"}, "workers": [{"pid": 1}]})
        if self.n <= self.loading:
            return (b'{"id":1,"ok":false,"error":{"kind":"busy","message":"the model loads"}}\n')
        big = self.n * 10**9
        names = ["n_finished", "n_failed", "n_cancelled", "n_preempted", "prompt_tokens",
                 "generated_tokens", "steps", "expert_hits", "expert_misses", "expert_evictions",
                 "expert_read_bytes", "expert_retries", "running", "waiting", "prefilling",
                 "expert_slots", "expert_slots_used", "kv_pages", "kv_pages_used",
                 "kv_pages_peak", "prefill_ns", "decode_ns", "expert_wait_ns"]
        return reply({name: big for name in names})


def screens(path, rows, columns, wanted, seconds=20):
    """What stats --watch draws on a terminal of that size, one text a screen."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    watching = subprocess.Popen([CTL, "stats", "--watch", "--socket", path], stdout=slave,
                                stderr=subprocess.PIPE)
    os.close(slave)
    drawn, deadline = b"", time.monotonic() + seconds
    try:
        while drawn.count(b"\x1b[J") < wanted and time.monotonic() < deadline:
            if select.select([master], [], [], 0.1)[0]:
                drawn += os.read(master, 65536)
    finally:
        watching.send_signal(signal.SIGINT)
        watching.wait(timeout=10)
        watching.stderr.close()
        os.close(master)
    texts = drawn.split(b"\x1b[J")[:wanted]
    assert len(texts) == wanted
    assert all(text.startswith(b"\x1b[H") for text in texts)
    return [re.sub(r"\x1b\[[HK]", "", text.decode()).replace("\r", "") for text in texts]


@pytest.mark.parametrize("rows, columns", [(24, 80), (8, 40)])
def test_watch_fits_the_terminal_and_tells_first_what_one_looks_for(tmp_path, rows, columns):
    Counting(tmp_path / "admin.sock")
    first, second = screens(tmp_path / "admin.sock", rows, columns, 2)
    for screen in (first, second):
        lines = screen.splitlines()
        assert len(lines) < rows and max(map(len, lines)) < columns
    headline = "\n".join(second.splitlines()[:7])
    for word in ["serving", "tokens/s", "running", "waiting", "hit rate", "GB/s", "8.00 GiB"]:
        assert word in headline or columns < 80
    if columns == 80:
        assert "1:02:03" in headline and "50.0 %" in headline
        assert "generated_tokens" in second and "time answering" in second


def test_watch_gives_a_speed_to_rates_alone(tmp_path):
    Counting(tmp_path / "admin.sock")
    lines = screens(tmp_path / "admin.sock", 24, 80, 2)[1].splitlines()

    def words_of(start):
        (line,) = [line.split() for line in lines if line.strip().startswith(start)]
        return line
    assert len(words_of("generated_tokens")) == 3
    assert len(words_of("time answering")) == 4  # two of name, number, unit
    assert not any("/s" in line for line in lines if "KV" in line or "time" in line)


def test_watch_waits_for_an_engine_that_loads(tmp_path):
    Counting(tmp_path / "admin.sock", loading=1)
    first, second = screens(tmp_path / "admin.sock", 24, 80, 2)
    assert "loading 40 %" in first and "the model loads" in first
    assert "tokens/s" in second


@pytest.mark.parametrize("json_flag", [[], ["--json"]])
def test_watch_says_that_the_daemon_ended(tmp_path, json_flag):
    path = tmp_path / "admin.sock"
    if json_flag:
        Daemon(path, reply({"steps": 1}), None)
    else:
        Counting(path, looks=1)
    done = ctl("stats", "--watch", "--socket", path, *json_flag, timeout=20)
    assert done.returncode == NO_DAEMON
    assert "the daemon ended" in done.stderr and len(done.stderr.splitlines()) == 1
