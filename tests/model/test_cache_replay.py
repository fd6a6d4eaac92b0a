"""Traces of experts, and scripts/cache-replay: what it says of our cache is what the engine counted,
and nobody beats the optimum."""
import collections
import itertools
import json
import lzma
import random
import subprocess
import sys

import pytest

import ctl
from places import BUILD, ROOT
from replay import policies, store, traces

SCRIPT = ROOT / "scripts/cache-replay"
PROGRAM = BUILD / "tests/bench/replay_experts"
PROMPT = [i * 37 % 300 + i % 7 for i in range(90)]
# As many experts and layers as the small checkpoints; three reads under way.
HEAD = {"moe_layers": 3, "experts": 12, "experts_per_token": 2, "reads_in_flight": 3}


def replayed(*args, status=0):
    done = subprocess.run([sys.executable, SCRIPT, *map(str, args), "--build", BUILD],
                          capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == status, done.stderr or done.stdout
    return done


def record(model, file, prompt=PROMPT, steps=40, **options):
    """The statistics of a traced run."""
    facts = ctl.forward(model, prompt, steps, trace_experts=file, ram="1GiB", **options).facts
    return facts["stats"]


@pytest.fixture(scope="module")
def recorded(models, tmp_path_factory):
    """A trace of the demo model in a cache of half its experts, and its lines."""
    file = tmp_path_factory.mktemp("trace") / "demo.jsonl"
    stats = record(models / "demo", file, expert_slots="half")
    return file, [json.loads(line) for line in file.read_text().splitlines()], stats


def random_orders(rng, n, layers=3, experts=12, most=12, per_token=2):
    """Skewed, with a sweep now and then."""
    orders = []
    for at in range(n):
        rows = 1 if rng.random() < 0.9 else rng.randint(2, most)
        picks = collections.Counter()
        for _ in range(rows):
            row = set()
            while len(row) < per_token:
                row.add(min(int(rng.expovariate(0.35)), experts - 1))
            picks.update(row)
        names = tuple(sorted(picks))
        orders.append(traces.Order(rows > 1, at % layers, rows, names,
                                   tuple(picks[e] for e in names)))
    return orders


def misses(counts):
    return sum(c.misses for c in counts)


# ---- what a trace says ----

def test_a_trace_tells_every_order_and_what_came_of_them(recorded):
    _, (head, *orders, end), stats = recorded
    assert head["format"] == "colizig-expert-trace" and head["version"] == 1
    assert head["model"] == "demo" and head["family"] == "qwen3_moe"
    assert (head["layers"], head["experts"], head["experts_per_token"]) == (4, 16, 4)
    assert head["slots"] == stats["expert_slots"] == 32
    assert end == {"end": True, "orders": len(orders), "hits": stats["expert_hits"],
                   "misses": stats["expert_misses"], "slots_given_back": 0}
    assert len(orders) == stats["expert_orders"]
    assert [o["layer"] for o in orders] == [0, 1, 2, 3] * (len(orders) // 4)
    assert [o["step"] for o in orders] == [i // 4 for i in range(len(orders))]
    assert sum(o["kind"] == "decode" for o in orders) == 4 * stats["decode_steps"]
    assert sum(o["rows"] for o in orders) == 4 * (len(PROMPT) + 39)
    for order in orders:
        picks = order.get("picks", [1] * len(order["experts"]))
        assert sum(picks) == 4 * order["rows"] and order["experts"] == sorted(set(order["experts"]))


@pytest.mark.parametrize("options", [{"threads": 1}, {"threads": 2}, {"set": "engine.io=buffered"}])
def test_the_same_run_gives_the_same_trace(models, recorded, scratch, options):
    record(models / "demo", scratch / "again", expert_slots="half", **options)
    assert (scratch / "again").read_bytes() == recorded[0].read_bytes()


def test_tracing_changes_no_answer(models, recorded, scratch):
    traced = ctl.forward(models / "demo", PROMPT, 12, trace_experts=scratch / "trace")
    plain = ctl.forward(models / "demo", PROMPT, 12)
    assert traced.tokens == plain.tokens and (traced.logits == plain.logits).all()
    assert traced.facts["stats"]["io"] == "in turn" and plain.facts["stats"]["io"] == "threads"


@pytest.mark.parametrize("path, word", [("nowhere/at/all", "nowhere/at/all: No such file"),
                                        ("", "Is a directory"), ("/dev/full", "No space left")])
def test_a_trace_that_cannot_be_written_is_an_error(models, scratch, path, word):
    said = ctl.run("forward", models / "demo", "--tokens", "1,2,3", "--steps", 9, "--trace-experts",
                   scratch / path)
    assert said.status == 1 and word in said.err and said.out == ""


def test_a_run_that_fails_leaves_no_whole_trace(models, scratch):
    said = ctl.run("forward", models / "demo", "--tokens", "1,2,3", "--context", 32, "--steps", 200,
                   "--trace-experts", scratch / "trace")
    assert said.status != 0
    with pytest.raises(traces.BadTrace, match="cut short"):
        traces.read_file(scratch / "trace")


# ---- our policy is the engine's ----

@pytest.mark.parametrize("rows", [16, 90])
@pytest.mark.parametrize("slots", ["min", 17, "half", "all"])
@pytest.mark.parametrize("name", ["demo", "demo4", "tiny-fp8"])
def test_the_replay_counts_what_the_engine_counted(models, scratch, name, slots, rows):
    stats = record(models / name, scratch / "trace", expert_slots=slots, prefill_rows=rows)
    used = stats["expert_slots"]
    facts = json.loads(replayed(scratch / "trace", "--json", "--capacities", used).stdout)
    assert (facts["compared"], facts["differ"]) == (1, 0)
    ours, = (c["ours"] for c in facts["capacities"] if c["slots"] == used)
    assert (ours["hits"], ours["misses"]) == (stats["expert_hits"], stats["expert_misses"])
    assert facts["asked"] == ours["hits"] + ours["misses"]


def test_a_replay_that_differs_from_the_engine_is_told(recorded, scratch):
    lines = recorded[0].read_text().splitlines()
    end = json.loads(lines[-1])
    end["hits"], end["misses"] = end["hits"] + 1, end["misses"] - 1
    (scratch / "trace").write_text("\n".join([*lines[:-1], json.dumps(end)]) + "\n")
    done = replayed(scratch / "trace", status=1)
    assert f"{scratch}/trace: replayed with its 32 slots" in done.stderr


def test_slots_given_back_meanwhile_are_not_compared(recorded, scratch):
    lines = recorded[0].read_text().splitlines()
    end = dict(json.loads(lines[-1]), slots_given_back=3)
    (scratch / "trace").write_text("\n".join([*lines[:-1], json.dumps(end)]) + "\n")
    assert json.loads(replayed(scratch / "trace", "--json").stdout)["compared"] == 0


# ---- the others ----

def test_lru_is_what_a_list_of_last_uses_gives():
    rng = random.Random(1)
    for _ in range(300):
        orders, slots = random_orders(rng, 25, layers=2, experts=5, most=4), rng.randint(1, 9)
        held, clock, expected = {}, itertools.count(), []
        for order in orders:
            names = policies.names_of(order)
            hit = [name for name in names if name in held]
            for name in hit + [name for name in names if name not in hit]:
                if name not in held and len(held) == slots:
                    del held[min(held, key=held.get)]
                held[name] = next(clock)
            expected.append((len(hit), len(names) - len(hit)))
        assert policies.lru(orders, slots) == expected


def least_misses(orders, slots):
    """Of every way in which a cache may go on behind each order."""
    ways = {frozenset(): 0}
    for order in orders:
        names, after = frozenset(policies.names_of(order)), {}
        for held, so_far in ways.items():
            cost, there = so_far + len(names - held), sorted(held | names)
            for n in range(min(slots, len(there)) + 1):
                for kept in map(frozenset, itertools.combinations(there, n)):
                    after[kept] = min(cost, after.get(kept, cost))
        ways = after
    return min(ways.values())


def test_the_optimum_is_the_best_of_all_ways():
    rng = random.Random(2)
    for _ in range(120):
        layers = rng.randint(1, 2)
        orders = random_orders(rng, rng.randint(1, 9), layers, 6 // layers, most=3,
                               per_token=rng.randint(1, 2))
        slots = rng.randint(1, 4)
        assert misses(policies.optimum(orders, slots)) == least_misses(orders, slots)


@pytest.mark.parametrize("seed", range(6))
def test_nobody_beats_the_optimum(seed):
    orders = random_orders(random.Random(seed), 600)
    capacities = [5, 7, 11, 18, 29, 36]
    ours = store.replay(PROGRAM, HEAD, orders, capacities)
    before = None
    for slots in capacities:
        best = policies.optimum(orders, slots)
        assert misses(best) <= misses(policies.lru(orders, slots))
        assert misses(best) <= misses(ours[slots])
        assert before is None or misses(best) <= before
        before = misses(best)
    assert before == misses(ours[36]) == policies.first_uses(orders)


@pytest.mark.parametrize("name", ["chat-qwen3-moe", "chat-qwen4-exp"])
def test_traces_of_the_trained_models(name):
    file = ROOT / f"tests/data/traces/{name}.jsonl.xz"
    facts = json.loads(replayed(file, "--json").stdout)
    assert facts["model"] == name
    assert facts["compared"] == facts["traces"] >= 4 and facts["differ"] == 0
    for at in facts["capacities"]:
        assert at["optimum"]["misses"] <= min(at["ours"]["misses"], at["lru"]["misses"])
    assert facts["capacities"][-1]["ours"]["misses"] == facts["first_uses"]


# ---- what is refused ----

def spoiled(lines, how):
    head, order, end = json.loads(lines[0]), json.loads(lines[5]), json.loads(lines[-1])
    return {
        "empty": ([], 0, "empty"),
        "foreign": (['{"format": "another"}'], 1, "no head"),
        "text": (["once upon a time"], 1, "no JSON"),
        "a list": (["[1, 2]"], 1, "no JSON object"),
        "newer": ([json.dumps(dict(head, version=2))], 1, "version 2"),
        "no experts": ([json.dumps(dict(head, experts=0))], 1, '"experts"'),
        "cut": (lines[:7], 7, "cut short"),
        "half a line": ([*lines[:4], lines[4][:20]], 5, "no JSON"),
        "no order": ([lines[0], lines[-1]], 2, "without an order"),
        "lost line": ([*lines[:5], *lines[6:]], len(lines) - 1, "orders"),
        "layer": ([*lines[:5], json.dumps(dict(order, layer=4))], 6, '"layer"'),
        "kind": ([*lines[:5], json.dumps(dict(order, kind="x"))], 6, '"kind"'),
        "expert": ([*lines[:5], json.dumps(dict(order, experts=[1, 99]))], 6, '"experts"'),
        "order": ([*lines[:5], json.dumps(dict(order, experts=[2, 1, 3, 4]))], 6, "do not rise"),
        "picks": ([*lines[:5], json.dumps(dict(order, experts=[1], picks=[1], rows=1))], 6, "picks"),
        "rows": ([*lines[:5], json.dumps(dict(order, rows=True))], 6, '"rows"'),
        "hits": ([*lines[:-1], json.dumps(dict(end, hits=0))], len(lines), "hits"),
        "deep": (["[" * 100_000], 1, "no JSON"),
        "nan": ([*lines[:5], json.dumps(dict(order, rows=float("nan")))], 6, '"rows"'),
        "negative": ([*lines[:5], json.dumps(dict(order, layer=-1))], 6, '"layer"'),
        "behind": ([*lines, "{}"], len(lines) + 1, "no head"),
    }[how]


@pytest.mark.parametrize("how", ["empty", "foreign", "text", "a list", "newer", "no experts", "cut",
                                 "half a line", "no order", "lost line", "layer", "kind", "expert",
                                 "order", "picks", "rows", "hits", "deep", "nan", "negative",
                                 "behind"])
def test_what_is_no_trace_is_refused_by_file_and_line(recorded, scratch, how):
    lines, number, word = spoiled(recorded[0].read_text().splitlines(), how)
    (scratch / "trace").write_text("".join(line + "\n" for line in lines))
    done = replayed(scratch / "trace", status=1)
    assert done.stderr.startswith(f"cache-replay: {scratch}/trace, line {number}: ")
    assert word in done.stderr and done.stdout == ""


def test_files_that_are_not_there_or_torn_are_named(recorded, scratch):
    assert f"{scratch}/none: No such file" in replayed(scratch / "none", status=1).stderr
    packed = lzma.compress(recorded[0].read_bytes())
    (scratch / "torn").write_bytes(packed[:len(packed) // 2])
    assert f"{scratch}/torn, " in replayed(scratch / "torn", status=1).stderr
    (scratch / "binary").write_bytes(bytes(range(128, 256)))
    assert f"{scratch}/binary, " in replayed(scratch / "binary", status=1).stderr


@pytest.mark.parametrize("capacities, word", [("7", "needs"), ("8,x", "'8,x'"), ("", "''"),
                                              ("65", "64 experts"), ("-3", "needs")])
def test_impossible_capacities_are_refused(recorded, capacities, word):
    done = replayed(recorded[0], f"--capacities={capacities}", status=1)
    assert "--capacities" in done.stderr and word in done.stderr


def test_a_program_that_was_not_built_is_named(recorded, scratch):
    done = subprocess.run([sys.executable, SCRIPT, recorded[0], "--build", scratch],
                          capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1 and "make units" in done.stderr


# ---- as a person meets it ----

def test_traces_behind_one_another_share_a_cache(models, recorded, scratch):
    record(models / "demo", scratch / "other", prompt=PROMPT[::-1], expert_slots=20)
    both = scratch / "both.xz"
    both.write_bytes(lzma.compress(recorded[0].read_bytes() + (scratch / "other").read_bytes()))
    apart = json.loads(replayed(recorded[0], scratch / "other", "--json").stdout)
    assert json.loads(replayed(both, "--json").stdout) == apart
    assert (apart["traces"], apart["compared"], apart["differ"]) == (2, 2, 0)
    alone = json.loads(replayed(scratch / "other", "--json").stdout)
    assert apart["first_uses"] < json.loads(replayed(recorded[0], "--json").stdout)["first_uses"] + \
        alone["first_uses"]


def test_traces_of_two_models_are_refused(models, recorded, scratch):
    record(models / "demo4", scratch / "other", steps=4)
    done = replayed(recorded[0], scratch / "other", status=1)
    assert "two models" in done.stderr and f"{scratch}/other" in done.stderr


def test_the_table_shows_rates_that_rise_with_the_slots(recorded):
    said = replayed(recorded[0], "--capacities", "32,64").stdout
    facts = json.loads(replayed(recorded[0], "--capacities", "32,64", "--json").stdout)
    rows = [line.split() for line in said.splitlines() if line.strip().startswith(("32 ", "64 "))]
    for row, at in zip(rows, facts["capacities"], strict=True):
        shown = [float(cell) for cell in row[2:5]]
        counted = [100 * at[name]["hits"] / facts["asked"] for name in ("lru", "ours", "optimum")]
        assert shown == pytest.approx(counted, abs=0.051)
    assert "1 of 1 traces" in said
    assert max(map(len, said.splitlines())) <= 88


def test_the_picture_is_a_png(recorded, scratch):
    replayed(recorded[0], "--out", scratch / "hits.png")
    picture = (scratch / "hits.png").read_bytes()
    assert picture.startswith(b"\x89PNG\r\n\x1a\n") and len(picture) > 5000
    assert "No such file" in replayed(recorded[0], "--out", scratch / "no/hits.png", status=1).stderr


@pytest.mark.parametrize("out", ["", ".", "/dev/full", "none/hits.png"])
def test_a_picture_that_cannot_be_written_is_an_error(recorded, scratch, out):
    path = out if out in ("", "/dev/full") else scratch / out
    done = replayed(recorded[0], "--capacities", "32", "--out", path, status=1)
    assert done.stderr.startswith(f"cache-replay: --out {path}: ") and done.stdout == ""


def test_a_name_in_a_trace_neither_moves_the_terminal_nor_is_a_formula(recorded, scratch):
    lines = recorded[0].read_text().splitlines()
    head = dict(json.loads(lines[0]), model="a\x1b[31m$x_$\ud800")
    (scratch / "trace").write_text("\n".join([json.dumps(head), *lines[1:]]) + "\n")
    done = replayed(scratch / "trace", "--capacities", "32", "--out", scratch / "hits")
    assert done.stdout.startswith("a?[31m$x_$? (")
    assert (scratch / "hits").read_bytes().startswith(b"\x89PNG")


def test_a_table_that_cannot_be_written_is_an_error(recorded):
    with open("/dev/full", "wb") as full:
        done = subprocess.run([sys.executable, SCRIPT, recorded[0], "--build", BUILD], stdout=full,
                              stderr=subprocess.PIPE, text=True, timeout=100, check=False)
    assert (done.returncode, done.stderr) == (1, "cache-replay: write: No space left on device\n")


def test_without_matplotlib_it_says_what_to_do(recorded, scratch):
    hidden = ("import runpy, sys; sys.modules['matplotlib'] = None; sys.argv = sys.argv[1:]; "
              "runpy.run_path(sys.argv[0], run_name='__main__')")
    done = subprocess.run([sys.executable, "-c", hidden, SCRIPT, recorded[0], "--build", BUILD,
                           "--out", scratch / "x.png"], capture_output=True, text=True, timeout=60,
                          check=False)
    assert done.returncode == 1 and "matplotlib" in done.stderr and "leave --out away" in done.stderr
    assert replayed(recorded[0], "--capacities", "32").stdout


def test_help_fits_a_screen():
    lines = replayed("--help").stdout.splitlines()
    assert len(lines) <= 40 and max(map(len, lines)) <= 88
