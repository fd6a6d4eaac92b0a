"""What the kernel says a daemon holds, and what its plan said."""
import json
import pathlib
import subprocess

import server

# Room that is planned and stands empty in these tests: bodies and unsent output of clients, which
# come and go with requests.
ELASTIC = ("client buffers", "connections")


def plan(model, **flags):
    """The plan, or the JSON error's exit status when it does not fit."""
    command = [server.BUILD / "colizigctl", "plan", model, "--no-probe", "--json"]
    for key, value in flags.items():
        command += ["--set", f"{key.replace('__', '.')}={value}"]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          timeout=30)
    return (json.loads(done.stdout) if done.stdout else None), done.returncode


def planned(answer):
    return sum(line["bytes"] for line in answer["lines"] if line["name"] not in ELASTIC)


def anonymous(pids):
    """Bytes of memory that only these processes hold, page tables included."""
    total = 0
    for pid in pids:
        for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Anonymous:"):
                total += int(line.split()[1]) * 1024
        for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmPTE:"):
                total += int(line.split()[1]) * 1024
    return total


def all_pids(daemon):
    return [daemon.pid] + [pid for pids in daemon.children().values() for pid in pids]
