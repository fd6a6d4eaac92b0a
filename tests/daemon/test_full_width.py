"""Checkpoints of full width, 30 and 36 GB, in far less memory. By hand: it makes each in
build/models (q30, flash12) when it is not there (a minute or two) and keeps it."""
import concurrent.futures
import ctypes
import json
import mmap
import os
import pathlib
import subprocess
import time

import pytest

import memory
import server

GIB = 1 << 30
MODEL = server.MODELS / "q30"
CONFIG = server.ROOT / "tests/data/configs/Qwen3-30B-A3B-FP8/config.json"
TOKENIZER = server.ROOT / "tests/data/tokenizers/qwen3/tokenizer.json.xz"
PROMPT_TOKENS = (1334, 1333, 1333)
NEW_TOKENS = 48

# The first 12 layers of the release: 9 recurrent, 3 of sparse attention, the one with n-grams,
# whose table is a fiftieth of the released one.
FLASH = server.MODELS / "flash12"
FLASH_CONFIG = server.ROOT / "tests/data/configs/Qwen3.8-Flash-Next-FP8/config.json"
FLASH_TOKENIZER = server.ROOT / "tests/data/tokenizers/qwen3.8/tokenizer.json.xz"
FLASH_PROMPTS = (16, 512, 4096)  # past 2,051 attention leaves tokens out
FLASH_EXPERT = 3 * 640 * 2560


@pytest.fixture(scope="module")
def checkpoint():
    if not (MODEL / "config.json").exists():
        subprocess.run([server.ROOT / "build/venv/bin/python", "scripts/make-checkpoint",
                        "--config", CONFIG, "--out", MODEL, "--tokenizer", TOKENIZER],
                       cwd=server.ROOT, check=True, timeout=1200)
    return MODEL


def stats(daemon):
    """The engine's counters, over the admin socket."""
    import socket
    with socket.socket(socket.AF_UNIX) as admin:
        admin.settimeout(10)
        admin.connect(str(daemon.log_path.parent / "admin.sock"))
        admin.sendall(b'{"id":1,"cmd":"stats"}\n')
        line = admin.makefile("rb").readline()
    answer = json.loads(line)
    assert answer["ok"], answer
    return answer["data"]


def cached_share(directory):
    """The share of the shards' pages that sit in the page cache."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int,
                          ctypes.c_long]
    libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    there = total = 0
    for path in pathlib.Path(directory).glob("*.safetensors"):
        fd = os.open(path, os.O_RDONLY)
        size = os.fstat(fd).st_size
        pages = (size + mmap.PAGESIZE - 1) // mmap.PAGESIZE
        at = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, fd, 0)
        vector = (ctypes.c_ubyte * pages)()
        assert libc.mincore(at, size, vector) == 0
        there += sum(bytes(vector))
        total += pages
        libc.munmap(at, size)
        os.close(fd)
    return there / total


def drop_cache(directory):
    for path in pathlib.Path(directory).glob("*.safetensors"):
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def read_bytes(pid):
    for line in open(f"/proc/{pid}/io"):
        if line.startswith("read_bytes:"):
            return int(line.split()[1])
    raise AssertionError("no read_bytes")


def one_stream(daemon, n_prompt, which):
    """(seconds to the first token, tokens, seconds in all) of one stream."""
    prompt = [1000 + (which * 7919 + i * 104729) % 100000 for i in range(n_prompt)]
    start = time.monotonic()
    stream = daemon.stream(prompt, path="/v1/completions", timeout=600, max_tokens=NEW_TOKENS,
                           ignore_eos=True, stream_options={"include_usage": True})
    first = None
    usage = None
    while (event := stream.next()) is not None:
        if event.get("usage"):
            usage = event["usage"]
        elif event["choices"] and event["choices"][0]["text"] and first is None:
            first = time.monotonic() - start
    return first, usage["completion_tokens"], time.monotonic() - start


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_thirty_gigabytes_in_eight(checkpoint, start_real):
    drop_cache(checkpoint)
    before = time.monotonic()
    daemon = start_real("q30", ram="8GiB", wait=None, engine__context=4096, memory__kv_dtype="bf16")
    daemon.await_status("/readyz", 200, seconds=300)
    load_seconds = time.monotonic() - before
    pids = memory.all_pids(daemon)
    engine = max(pids, key=lambda pid: int(open(f"/proc/{pid}/statm").read().split()[1]))
    with memory.Peak(pids) as peak:
        first_stats, first_read = stats(daemon), read_bytes(engine)
        start = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(3) as crew:
            results = list(crew.map(lambda which: one_stream(daemon, PROMPT_TOKENS[which], which),
                                    range(3)))
        seconds = time.monotonic() - start
        last_stats, last_read = stats(daemon), read_bytes(engine)

    plan, _ = memory.plan(checkpoint, memory__ram="8GiB", engine__context=4096)
    misses = last_stats["expert_misses"] - first_stats["expert_misses"]
    hits = last_stats["expert_hits"] - first_stats["expert_hits"]
    expert = 3 * 768 * 2048
    read = last_read - first_read
    tokens = sum(one[1] for one in results)
    decode_misses = misses * expert / tokens / 1e9
    print(f"\nload {load_seconds:.1f} s; first tokens after "
          f"{', '.join(f'{one[0]:.1f}' for one in results)} s; {tokens} tokens in {seconds:.1f} s; "
          f"decode {last_stats['decode_steps']} steps, {last_stats['decode_ns'] / 1e9:.1f} s; "
          f"hit rate {hits / (hits + misses):.3f}; {decode_misses:.2f} GB of experts a token, "
          f"prefill included; read {read / 1e9:.2f} GB, {read / seconds / 1e9:.2f} GB/s; "
          f"peak {peak.bytes / GIB:.3f} GiB of 8; slots {last_stats['expert_slots_used']} of "
          f"{last_stats['expert_slots']}; page cache {cached_share(checkpoint) * 100:.3f} %")
    assert all(one[1] == NEW_TOKENS for one in results)
    assert peak.bytes <= 8 * GIB
    assert last_stats["expert_slots_used"] >= 0.95 * last_stats["expert_slots"]
    assert last_stats["expert_slots"] == plan["expert_slots"]
    assert abs(read - misses * expert) <= 0.02 * misses * expert
    assert cached_share(checkpoint) < 0.01


@pytest.fixture(scope="module")
def flash():
    if not (FLASH / "config.json").exists():
        subprocess.run([server.ROOT / "build/venv/bin/python", "scripts/make-checkpoint",
                        "--config", FLASH_CONFIG, "--out", FLASH, "--tokenizer", FLASH_TOKENIZER,
                        "--layers", "12", "--ngram-base", "400000"],
                       cwd=server.ROOT, check=True, timeout=1200)
    return FLASH


class Growth:
    """What counters grew by between two looks."""

    def __init__(self, before, after):
        self.before, self.after = before, after

    def __getitem__(self, key):
        return self.after[key] - self.before[key]

    def phases(self, key):
        return {name: self.after[key][name] - ns for name, ns in self.before[key].items()}

    def hit_rate(self):
        return self["expert_hits"] / max(1, self["expert_hits"] + self["expert_misses"])


def timed_stream(daemon, n_prompt):
    """(seconds to the first token, tokens, growth up to the first token, growth after it)."""
    prompt = [1000 + (n_prompt * 7919 + i * 104729) % 100000 for i in range(n_prompt)]
    before, first, usage, begin = stats(daemon), None, None, time.monotonic()
    stream = daemon.stream(prompt, path="/v1/completions", timeout=900, max_tokens=NEW_TOKENS,
                           ignore_eos=True, stream_options={"include_usage": True})
    while (event := stream.next()) is not None:
        if event.get("usage"):
            usage = event["usage"]
        elif event["choices"] and event["choices"][0]["text"] and first is None:
            first = time.monotonic() - begin
            middle = stats(daemon)
    return (first, usage["completion_tokens"], Growth(before, middle),
            Growth(middle, stats(daemon)))


def shares(phases):
    total = sum(phases.values())
    return ", ".join(f"{name} {ns / 1e6:.0f} ms {100 * ns / total:.0f} %"
                     for name, ns in phases.items() if ns)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("ram", [6, 12])
def test_twelve_layers_of_the_second_family(flash, start_real, ram):
    drop_cache(flash)
    before = time.monotonic()
    daemon = start_real("flash12", ram=f"{ram}GiB", wait=None, engine__context=8192,
                        memory__kv_dtype="bf16")
    daemon.await_status("/readyz", 200, seconds=300)
    load_seconds = time.monotonic() - before
    pids = memory.all_pids(daemon)
    print(f"\n{ram} GiB, load average {os.getloadavg()[0]:.1f}: load {load_seconds:.1f} s")
    with memory.Peak(pids) as peak:
        for n_prompt in FLASH_PROMPTS:
            first, n_tokens, prefill, decode = timed_stream(daemon, n_prompt)
            steps = decode["decode_steps"]
            print(f"{n_prompt} tokens, load average {os.getloadavg()[0]:.1f}: first token after "
                  f"{first:.1f} s, hit rate {prefill.hit_rate():.3f}, "
                  f"{prefill['expert_read_bytes'] / 1e9:.1f} GB read; decode "
                  f"{steps * 1e9 / decode['decode_ns']:.2f} tokens/s, hit rate "
                  f"{decode.hit_rate():.3f}, {decode['expert_read_bytes'] / steps / 1e9:.3f} GB read "
                  f"a token, waited for it {decode['expert_wait_ns'] / steps / 1e6:.0f} ms")
            print("  prefill", shares(prefill.phases("prefill_phase_ns")))
            print("  decode, a step", shares({name: ns / steps for name, ns in
                                              decode.phases("decode_phase_ns").items()}))
            assert n_tokens == NEW_TOKENS
            assert abs(decode["expert_read_bytes"] - decode["expert_misses"] * FLASH_EXPERT) <= (
                0.02 * decode["expert_read_bytes"])
    last = stats(daemon)
    print(f"peak {peak.bytes / GIB:.3f} GiB of {ram}; slots {last['expert_slots_used']} of "
          f"{last['expert_slots']}; page cache {cached_share(flash) * 100:.3f} %")
    assert peak.bytes <= ram * GIB
    assert last["expert_slots"] == memory.plan(flash, memory__ram=f"{ram}GiB",
                                               engine__context=8192)[0]["expert_slots"]
    assert cached_share(flash) < 0.01
