"""colizigctl as a person or a script meets it: answers, refusals and exit codes."""
import array
import json
import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("COLIZIG_BUILD", ROOT / "build"))
CTL = BUILD / "colizigctl"
MODELS = ROOT / "build" / "models"
TINY = MODELS / "tiny-fp8"
FINE, FAILED, USAGE, CHECKPOINT, BUDGET = range(5)


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

@pytest.mark.parametrize("command", ["", "chat", "status", "stats", "experts", "requests", "cancel",
                                     "reload", "drain", "budget", "log", "inspect", "plan",
                                     "tokenize", "forward", "selftest"])
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
    (["plan", "--ram", "8G"], "model directory"),
    (["cancel"], "missing"),
    (["budget"], "missing"),
    (["statsu"], "did you mean status"),
    (["status", "--scoket", "x"], "did you mean --socket"),
    (["experts", "--top", "5000"], "--top"),
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
