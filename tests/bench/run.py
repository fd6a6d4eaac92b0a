#!/usr/bin/env python3
"""Benchmarks anyone can repeat: each figure beside its own limit, taken in the same run.

  kernels   products and attention against a plain read of memory
  blocks    the parts of a Qwen4-Exp layer against what their bytes and products need
  store     experts read through the store against plain O_DIRECT reads
  engine    prefill and decode of a checkpoint, with the bytes a decoded token passes over as
            a share of what memory gives (needs --model); where dense weights can be held
            smaller, with both choices of memory.dense, turn by turn
  turns     seconds until the first token of a conversation's second turn, computed anew and
            with what is known (needs --model; tests/bench/turns.py)
"""
import argparse
import json
import pathlib
import random
import re
import statistics
import subprocess
import sys

import turns

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def output_of(*command):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          check=True, cwd=ROOT).stdout


def read_limit(build, threads):
    """GB/s of a plain read of memory, in this minute."""
    found = re.search(rf"^read threads={threads} gbps=([0-9.]+)",
                      output_of(build / "tests/bench/bench_kernels", 256), re.M)
    return float(found.group(1)) if found else None


def ctl(build, command, model, *flags):
    return json.loads(output_of(build / "colizigctl", command, model, "--json", *flags))


def measure(build, model, plan, prompt, threads, setup):
    """One run, told in a line; decode in tokens a second."""
    limit = read_limit(build, threads)
    stats = ctl(build, "forward", model, "--tokens", prompt, "--steps", 96, "--threads", threads,
                *setup)["stats"]
    token_bytes = plan["token_resident_bytes"] + plan["token_expert_bytes"]
    step = stats["decode_ns"] / 1e9 / stats["decode_steps"]
    hits, misses = stats["expert_hits"], stats["expert_misses"]
    ratio = f" ratio={token_bytes / step / 1e9 / limit:.2f}" if limit else ""
    print(f"engine dense={plan['dense']} threads={threads} "
          f"prefill_512={512e9 / stats['prefill_ns']:.0f} tok/s "
          f"decode={1 / step:.2f} tok/s weights={token_bytes / step / 1e9:.1f} GB/s "
          f"read={limit} GB/s{ratio} hit_rate={hits / (hits + misses):.3f} "
          f"waited={stats['expert_wait_ns'] / 1e9:.2f} s", flush=True)
    return 1 / step


def engine(build, model, ram, rounds):
    plans, setups, speeds = [], [], {}
    for dense in ("bf16", "fp8"):
        setup = ["--ram", ram, "--context", 2048, "--dense", dense]
        plan = ctl(build, "plan", model, "--no-probe", *setup)
        if not plans or plan["token_resident_bytes"] != plans[0]["token_resident_bytes"]:
            plans.append(plan)
            setups.append(setup)
    rng = random.Random(1)
    prompt = ",".join(str(rng.randrange(100000)) for _ in range(512))
    for threads in sorted({1, plans[0]["threads"]}):
        for _ in range(rounds):
            for plan, setup in zip(plans, setups):
                speeds.setdefault((threads, plan["dense"]), []).append(
                    measure(build, model, plan, prompt, threads, setup))
        if len(plans) == 2:
            exact, smaller = (statistics.median(speeds[threads, plan["dense"]]) for plan in plans)
            resident = [plan["resident_bytes"] / 2**30 for plan in plans]
            print(f"dense threads={threads} bf16={exact:.2f} tok/s fp8={smaller:.2f} tok/s "
                  f"ratio={smaller / exact:.2f} resident {resident[0]:.2f} -> {resident[1]:.2f} GiB",
                  flush=True)


def main():
    parse = argparse.ArgumentParser(description=__doc__,
                                    formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("--build", default="build")
    parse.add_argument("--model", help="a checkpoint directory to run the engine on")
    parse.add_argument("--ram", default="14GiB")
    parse.add_argument("--rounds", type=int, default=3)
    args = parse.parse_args()
    build = ROOT / args.build
    for bench in ("bench_kernels", "bench_blocks", "bench_store"):
        print(f"== {bench}", flush=True)
        subprocess.run([build / "tests/bench" / bench], check=True, cwd=ROOT)
    if args.model:
        print(f"== engine {args.model}", flush=True)
        engine(build, args.model, args.ram, args.rounds)
        print(f"== turns {args.model}", flush=True)
        turns.measure(build, args.model, args.ram, 2500, args.rounds)


if __name__ == "__main__":
    sys.exit(main())
