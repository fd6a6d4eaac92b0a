#!/usr/bin/env python3
"""Runs the fuzz targets over their seeds (tests/data/fuzz/NAME), or measures what they reach.

  tests/fuzz/run.py [--seconds N] [TARGET...]      a test each; the last line counts
  tests/fuzz/run.py --coverage [--seconds N]       lines of each module, as a table
  tests/fuzz/run.py --minimise TARGET              what was found beside the seeds, made small

A target that stops keeps its input in build/found and says how to run it again."""
import argparse
import concurrent.futures
import datetime
import functools
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
DATA = ROOT / "tests/data"

# Each target with the files that it is there for: all that reads, checks and hands on what came
# in. What they call below is run too, and not counted.
MODULES = {
    "safetensors": "engine/formats: safetensors.c json_scan.c",
    "shard_index": "engine/formats: shard_index.c json_scan.c",
    "config": "engine/formats: json.c; engine/families: config_keys.c quantization.c "
              "qwen3_moe_config.c qwen3_moe_shape.c qwen4_exp_config.c qwen4_exp_shape.c",
    "tokenizer": "engine/text: tokenizer.c tokenizer_file.c json_pull.c vocab.c added.c "
                 "byte_level.c pattern.c pretokenize.c encoding.c reader.c token_scan.c nfc.c "
                 "bpe.c long_word.c least.c",
    "request": "daemon: json_body.c json_read.c openai_in.c openai_fields.c openai_answer.c openai_tools.c "
               "openai_tool_choice.c openai_tool_table.c openai_schema.c openai_messages.c "
               "openai_content.c openai_calls.c openai_render.c template_values.c "
               "openai_prompts.c openai_template.c prompt.c api_error.c; engine/text: chat*.c",
    "template": "engine/text: jinja*.c chat.c chat_format.c chat_probe.c chat_normal.c "
                "chat_values.c",
    "reply": "engine/text: reply*.c json_mend.c json_text.c stop.c",
    "wire": "daemon: wire.c channel.c link.c requests.c engine_host.c engine_peers.c "
            "engine_answers.c engine_change.c metrics.c",
    "admin": "daemon: admin*.c",
    "yaml": "daemon: conf*.c",
}
SEEDS = {"safetensors": [DATA / "bad-safetensors"], "config": [DATA / "configs"]}


def module(name):
    files = []
    for group in MODULES[name].split(";"):
        folder, names = group.split(":")
        for pattern in names.split():
            files += sorted((ROOT / folder.strip()).glob(pattern))
    return files


def committed(name):
    return DATA / "fuzz" / name.replace("_", "-")


@functools.cache
def which():
    """clang where it can link its fuzzer, else our own driver."""
    source = "#include <stddef.h>\n#include <stdint.h>\n" \
             "int LLVMFuzzerTestOneInput(const uint8_t *d, size_t n){(void)d;(void)n;return 0;}\n"
    if not shutil.which("clang"):
        return "own"
    with tempfile.TemporaryDirectory() as there:
        done = subprocess.run(["clang", "-x", "c", "-", "-fsanitize=fuzzer,address,undefined",
                               "-o", f"{there}/probe"], input=source, text=True,
                              capture_output=True, check=False)
    return "clang" if done.returncode == 0 else "own"


def flat(name, into):
    """All seeds in one directory: libFuzzer takes no trees, and reads what it finds."""
    into.mkdir(parents=True)
    for directory in [*SEEDS.get(name, []), committed(name)]:
        for path in sorted(directory.rglob("*")):
            if path.is_file():
                shutil.copyfile(path, into / "-".join(path.relative_to(directory).parts))
    return into


def command(name, seconds, seeds, found, new):
    if which() == "own":
        return [f"build/fuzz-own/tests/fuzz/fuzz_{name}", "-t", str(seconds), str(seeds)]
    words = ROOT / "tests/fuzz" / f"{name}.dict"
    return [f"build/fuzz/tests/fuzz/fuzz_{name}", f"-max_total_time={seconds}", "-timeout=90",
            "-rss_limit_mb=2048", "-max_len=8192", "-print_final_stats=1", "-verbosity=0",
            "-close_fd_mask=1", f"-artifact_prefix={found}/{name}-",
            *([f"-dict={words}"] if words.exists() else []), str(new), str(seeds)]


def run_target(name, seconds, corpus=None):
    """(name, 0 passed or 1 failed, what it said, seconds)."""
    start = time.monotonic()
    found = ROOT / "build/found"
    found.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as there:
        new = corpus or pathlib.Path(there) / "new"
        new.mkdir(parents=True, exist_ok=True)
        seeds = flat(name, pathlib.Path(there) / "seeds")
        line = command(name, seconds, seeds, found, new)
        try:
            done = subprocess.run(line, cwd=ROOT, capture_output=True, timeout=seconds + 120,
                                  check=False, stdin=subprocess.DEVNULL)
            output, status = (done.stdout + done.stderr).decode(errors="replace"), done.returncode
            output = re.sub(r"^fuzz: .*\n", "", output, flags=re.M)  # what the daemon logs
        except subprocess.TimeoutExpired:
            output, status = f"{name} did not stop by itself", 1
        except OSError as why:
            output, status = str(why), 1
    failed = status != 0
    if failed:
        output += reproduce(name, line[0], output, found)
    return f"fuzz_{name}", int(failed), output, time.monotonic() - start


def reproduce(name, program, output, found):
    kept = re.findall(r"Test unit written to (\S+)", output)
    if which() == "own" and (ROOT / f"{program}.input").exists():
        kept = [str(found / f"{name}-input")]
        shutil.copyfile(ROOT / f"{program}.input", kept[0])
    if not kept:
        return ""
    again = "-n 0 " if which() == "own" else ""
    return f"\nto see it again: make fuzz && {program} {again}{os.path.relpath(kept[0], ROOT)}\n"


def run_all(names, seconds, found=None):
    """Two at a time; yields what run_target returns. What is found is kept in found."""
    with concurrent.futures.ThreadPoolExecutor(max_workers=2) as crew:
        yield from crew.map(lambda name: run_target(name, seconds, found and found / name), names)


# ---- coverage ----


def measure(name, corpus):
    """(lines, lines reached, [(file, reached, lines)]) by the seeds and what was found."""
    folder = ROOT / "build/fuzz-coverage"
    program = folder / f"tests/fuzz/fuzz_{name}"
    raw, profile = folder / f"{name}.profraw", folder / f"{name}.profdata"
    with tempfile.TemporaryDirectory() as there:
        seeds = flat(name, pathlib.Path(there) / "seeds")
        subprocess.run([program, "-n", "0", seeds, corpus], cwd=ROOT, check=True,
                       env=dict(os.environ, LLVM_PROFILE_FILE=str(raw)),
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    subprocess.run(["llvm-profdata", "merge", "-o", profile, raw], check=True)
    done = subprocess.run(["llvm-cov", "export", "-summary-only", f"-instr-profile={profile}",
                           program], check=True, capture_output=True, text=True)
    counts = {file["filename"]: file["summary"]["lines"]
              for file in json.loads(done.stdout)["data"][0]["files"]}
    rows = [(path.name, counts[str(path)]["covered"], counts[str(path)]["count"])
            for path in module(name)]
    return rows


def coverage(names, seconds):
    for tool in ("llvm-cov", "llvm-profdata"):
        if not shutil.which(tool):
            sys.exit(f"{tool} is missing: apt-get install llvm")
    if which() == "own":
        sys.exit("clang with its fuzzer is missing: apt-get install clang libclang-rt-dev")
    found = ROOT / "build/fuzz-corpus"
    for name, failed, output, _ in run_all(names, seconds, found):
        if failed:
            print(output)
            sys.exit(f"{name} failed")
    low = False
    print(f"{datetime.date.today()}, seeds and {seconds} s\n")
    print("| target | lines | of | files |\n| --- | --- | --- | --- |")
    for name in names:
        rows = measure(name, found / name)
        reached, lines = sum(r for _, r, _ in rows), sum(n for _, _, n in rows)
        low |= reached < 0.8 * lines
        files = " ".join(f"{file} {100 * r // n}" for file, r, n in rows)
        print(f"| {name} | {100 * reached / lines:.1f} % | {lines} | {files} |")
    sys.exit(1 if low else 0)


def minimise(name):
    """The fewest of what was found (build/fuzz-corpus) that reach what the seeds do not."""
    with tempfile.TemporaryDirectory() as there:
        both = flat(name, pathlib.Path(there) / "both")
        before = set(os.listdir(both))
        subprocess.run([f"build/fuzz/tests/fuzz/fuzz_{name}", "-merge=1", "-verbosity=0", both,
                        ROOT / "build/fuzz-corpus" / name], cwd=ROOT, check=True)
        into = ROOT / "build/fuzz-minimal" / name
        shutil.rmtree(into, ignore_errors=True)
        into.mkdir(parents=True)
        for path in both.iterdir():
            if path.name not in before:
                shutil.copyfile(path, into / path.name[:12])
    print(f"{into}: {len(list(into.iterdir()))} files")


def main():
    parse = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parse.add_argument("--seconds", type=int, default=5)
    parse.add_argument("--which", action="store_true", help="clang or own: who drives")
    parse.add_argument("--coverage", action="store_true")
    parse.add_argument("--minimise", metavar="TARGET", choices=MODULES)
    parse.add_argument("targets", nargs="*", metavar="TARGET")
    args = parse.parse_args()

    names = args.targets or list(MODULES)
    if unknown := [name for name in names if name not in MODULES]:
        parse.error(f"no such target: {unknown[0]}; there are {', '.join(MODULES)}")
    if args.which:
        print(which())
    elif args.minimise:
        minimise(args.minimise)
    elif args.coverage:
        coverage(names, args.seconds)
    else:
        n_failed = 0
        for name, failed, output, took in run_all(names, args.seconds):
            print(f"{name:32} {'failed' if failed else 'passed'} {took:7.1f} s", flush=True)
            if failed:
                print(output)
            n_failed += failed
        print(f"{len(names) - n_failed} passed, {n_failed} failed")
        sys.exit(1 if n_failed else 0)


if __name__ == "__main__":
    main()
