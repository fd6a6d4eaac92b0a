#!/usr/bin/env python3
"""Runs the unit binaries, the pytest suites and the fuzz targets and counts what they said.

The last line is "N passed, N failed" (", N skipped" when there are any). A skip is only
accepted when tests/expected-skips names it; anything else that did not run is a failure."""
import argparse
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree

from fuzz import run as fuzz

ROOT = pathlib.Path(__file__).resolve().parent.parent
PYTEST_JOBS = 3
TSAN = "build/tsan"

# What starts threads. The short ones (units-threaded in the Makefile) take seconds.
THREADED_SHORT = ["drives", "expert_store", "io", "metrics", "pool", "ring", "row_store"]
THREADED = THREADED_SHORT + ["engine", "engine_budget", "engine_pressure", "expert_faults",
                             "expert_resize", "resident"]
# Whole daemons, every process of them watched.
WATCHED_SHORT = ["threads"]
WATCHED = WATCHED_SHORT + ["life", "reload", "stream", "cancel", "chat", "limits", "models",
                           "admin", "admin_clients"]


def run_unit(binary, timeout):
    """One cmocka binary: (name, passed, failed, skipped names, output)."""
    start = time.monotonic()
    env = dict(os.environ, CMOCKA_MESSAGE_OUTPUT="STDOUT")
    env.setdefault("ASAN_OPTIONS", "detect_leaks=1:abort_on_error=0")
    try:
        done = subprocess.run([binary], capture_output=True, text=True, timeout=timeout,
                              errors="replace", cwd=ROOT, env=env)
        output, status = done.stdout + done.stderr, done.returncode
    except subprocess.TimeoutExpired as late:
        output = (late.stdout or b"").decode(errors="replace") + f"\ntimed out after {timeout} s"
        status = -1
    passed = len(re.findall(r"^\[       OK \] ", output, re.M))
    failed = len(set(re.findall(r"^\[  FAILED  \] (?:\w+: )?([a-z]\w*)$", output, re.M)))
    skipped = sorted(set(re.findall(r"^\[  SKIPPED \] (?:\w+: )?([a-z]\w*)$", output, re.M)))
    if status != 0 and failed == 0:
        failed = 1  # died, leaked or timed out
    if passed + failed + len(skipped) == 0:
        failed = 1
    return binary.name, passed, failed, skipped, output, time.monotonic() - start


def run_pytest_file(path, build, extra):
    """One file in a pytest of its own: (name, passed, failed, skipped names, output, seconds)."""
    start = time.monotonic()
    report = ROOT / build / f"pytest/{path.stem}.xml"
    report.parent.mkdir(parents=True, exist_ok=True)
    report.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-c", "tests/pytest.ini", "--rootdir=.", "-q",
               "-p", "no:cacheprovider", f"--timeout={240 if build == TSAN else 120}",
               f"--junit-xml={report}", "-o", "junit_family=xunit1", *extra, str(path.relative_to(ROOT))]
    env = dict(os.environ, COLIZIG_BUILD=str(ROOT / build))
    done = subprocess.run(command, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, text=True,
                          errors="replace", stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          check=False)
    passed = failed = 0
    skipped = []
    if done.returncode != 5:  # 5: the marks left nothing to run
        for case in ElementTree.parse(report).iter("testcase") if report.exists() else ():
            if case.find("failure") is not None or case.find("error") is not None:
                failed += 1
            elif case.find("skipped") is not None:
                skipped.append(case.get("name"))
            else:
                passed += 1
        if done.returncode != 0 and failed == 0:
            failed = 1  # it could not be collected, or died
    return path.stem, passed, failed, skipped, done.stdout, time.monotonic() - start


def run_pytest(files, build, extra, jobs):
    """All files, `jobs` at once: much of a daemon's test is waiting. The largest go first, so that
    none is left alone at the end."""
    files = sorted(files, key=lambda path: -path.stat().st_size)
    passed, failed, skipped = 0, 0, []
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        waiting = [pool.submit(run_pytest_file, path, build, extra) for path in files]
        for one in concurrent.futures.as_completed(waiting):
            name, ok, bad, skip, output, took = one.result()
            if ok + bad + len(skip):
                print(f"{name:32} {ok:4} passed {bad:3} failed {len(skip):3} skipped {took:7.1f} s",
                      flush=True)
            if bad:
                print(output)
            passed, failed, skipped = passed + ok, failed + bad, skipped + skip
    return passed, failed, skipped


def run_fuzz(seconds):
    """(passed, failed): a target is a test."""
    passed = failed = 0
    print(f"fuzz targets, {seconds} s each, {fuzz.which()} driver", flush=True)
    for name, bad, output, took in fuzz.run_all(fuzz.MODULES, seconds):
        print(f"{name:32} {1 - bad:4} passed {bad:3} failed {0:3} skipped {took:7.1f} s", flush=True)
        if bad:
            print(output)
        passed, failed = passed + 1 - bad, failed + bad
    return passed, failed


def unit_binaries(build, names=None):
    units = sorted((ROOT / build / "tests/unit").glob("test_*"))
    return [u for u in units if u.suffix == "" and os.access(u, os.X_OK)
            and (ROOT / "tests/unit" / (u.name + ".c")).exists()
            and (names is None or u.name.removeprefix("test_") in names)]


def run_units(units, timeout):
    """(passed, failed, skipped names); none at all is a failure."""
    passed, failed, skipped = 0, 0 if units else 1, []
    if not units:
        print("no unit tests were built")
    with concurrent.futures.ThreadPoolExecutor(max_workers=2) as crew:
        for name, ok, bad, skip, output, took in crew.map(lambda u: run_unit(u, timeout), units):
            print(f"{name:32} {ok:4} passed {bad:3} failed {len(skip):3} skipped {took:7.1f} s",
                  flush=True)
            if bad:
                print(output)
            passed, failed, skipped = passed + ok, failed + bad, skipped + skip
    return passed, failed, skipped


def run_threads(extent):
    """Threaded parts under ThreadSanitizer: (passed, failed, skipped names)."""
    short = extent == "short"
    print(f"under ThreadSanitizer ({TSAN})", flush=True)
    units = run_units(unit_binaries(TSAN, THREADED_SHORT if short else THREADED), 900)
    # What depends on speed is left out, and of the short ones the real engine, which is slow.
    daemons = run_pytest([ROOT / f"tests/daemon/test_{name}.py"
                          for name in (WATCHED_SHORT if short else WATCHED)], TSAN,
                         ["-m", "not long and not slow and not clients",
                          "-k", "scripted" if short else "not within_100_ms"], PYTEST_JOBS)
    return tuple(a + b for a, b in zip(units, daemons))


def main():
    parse = argparse.ArgumentParser(description=__doc__)
    parse.add_argument("--build", default="build")
    parse.add_argument("--san", action="store_true", help="sanitizer build: skip the slow suites")
    parse.add_argument("--long", action="store_true", help="only the tests marked long")
    parse.add_argument("--threads", choices=["short", "all"],
                       help="threaded parts under ThreadSanitizer; all: and nothing else")
    parse.add_argument("--fuzz", type=int, metavar="SECONDS", help="each fuzz target for so long")
    args = parse.parse_args()

    passed = failed = 0
    skipped = []
    if not args.long and args.threads != "all":
        passed, failed, skipped = run_units(unit_binaries(args.build), 240)
    if args.threads:
        ok, bad, skip = run_threads(args.threads)
        passed, failed, skipped = passed + ok, failed + bad, skipped + skip
    if args.fuzz:
        ok, bad = run_fuzz(args.fuzz)
        passed, failed = passed + ok, failed + bad
    if args.threads != "all":
        extra = ["-m", "long" if args.long else
                 "not long and not clients" + (" and not slow" if args.san else "")]
        files = [path for folder in ("tests/model", "tests/daemon")
                 for path in (ROOT / folder).glob("test_*.py")]
        ok, bad, skip = run_pytest(files, args.build, extra, 1 if args.long else PYTEST_JOBS)
        passed, failed, skipped = passed + ok, failed + bad, skipped + skip

    expected = set()
    listing = ROOT / "tests/expected-skips"
    if listing.exists():
        expected = {line.split("#")[0].strip() for line in listing.read_text().splitlines()}
    for name in skipped:
        if name not in expected:
            print(f"skipped without being expected: {name}")
            failed += 1
    print(f"{passed} passed, {failed} failed" + (f", {len(skipped)} skipped" if skipped else ""))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
