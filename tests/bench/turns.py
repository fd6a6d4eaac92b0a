#!/usr/bin/env python3
"""What the prefix cache saves: seconds until the first token of a conversation's second turn.

  tests/bench/turns.py MODEL [--ram SIZE] [--tokens N] [--rounds N]

The same turn is asked of one daemon twice, first with "cache_prompt": false, then as clients do;
each round is about another story. The floor is the time of the new tokens alone: those of a prompt
of their number, computed anew in the same round."""
import argparse
import json
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def post(base, path, **body):
    asked = urllib.request.Request(base + path, json.dumps(body).encode())
    with DIRECT.open(asked, timeout=3600) as answer:
        return json.load(answer)


def await_ready(base, daemon):
    while daemon.poll() is None:
        try:
            with DIRECT.open(base + "/readyz", timeout=5):
                return
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.1)
    raise SystemExit("colizigd ended: its log is above")


def ask(base, messages, **fields):
    """(answer, seconds of its prompt, its tokens, those found)"""
    whole = post(base, "/v1/chat/completions", messages=messages, max_tokens=16, temperature=0,
                 reasoning_effort="none", **fields)
    usage = whole["usage"]
    return (whole["choices"][0]["message"], whole["timings"]["prompt_ms"] / 1000,
            usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"])


def story(number, tokens):
    """Of about so many tokens; another one for each number."""
    return f"Story {number}. " + " ".join(f"Sheep {number + i} jumps." for i in range(tokens // 10))


def round_of(base, number, tokens):
    """Seconds of the second turn: computed anew, with what is known, and of its new tokens alone."""
    first = [{"role": "user", "content": story(number, tokens)}]
    answer, *_ = ask(base, first)
    second = [*first, {"role": "assistant", "content": answer["content"] or ""},
              {"role": "user", "content": "And then?"}]
    _, anew, n, _ = ask(base, second, cache_prompt=False)
    _, known, _, found = ask(base, second)
    few = [{"role": "user", "content": story(number, max(n - found, 16))}]
    _, floor, *_ = ask(base, few, cache_prompt=False)
    print(f"turns tokens={n} found={found} anew={anew:.3f} s known={known:.3f} s "
          f"new_tokens_alone={floor:.3f} s ratio={anew / max(known, 1e-3):.1f}", flush=True)
    return anew, max(known, 1e-3)


def measure(build, model, ram, tokens, rounds):
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        base = "http://127.0.0.1:%d" % one.getsockname()[1]
    with tempfile.TemporaryDirectory() as scratch:
        command = [build / "colizigd", "--model", model, "--ram", ram,
                   "--listen", base.removeprefix("http://"),
                   "--set", f"engine.context={tokens + 1024}", "--set", f"state.dir={scratch}/state",
                   "--set", f"admin.socket={scratch}/admin.sock"]
        with subprocess.Popen(list(map(str, command)), cwd=ROOT) as daemon:
            try:
                await_ready(base, daemon)
                took = [round_of(base, 1000 * i, tokens) for i in range(1, rounds + 1)]
            finally:
                daemon.terminate()
    ratio = statistics.median(anew / known for anew, known in took)
    print(f"turns second turn, median of {rounds}: {ratio:.1f} times as fast as computed anew")


def main():
    parse = argparse.ArgumentParser(description=__doc__,
                                    formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("model")
    parse.add_argument("--build", default="build")
    parse.add_argument("--ram", default="512MiB")
    parse.add_argument("--tokens", type=int, default=2500)
    parse.add_argument("--rounds", type=int, default=3)
    args = parse.parse_args()
    measure(ROOT / args.build, args.model, args.ram, args.tokens, args.rounds)


if __name__ == "__main__":
    sys.exit(main())
