"""What the kernel says a daemon holds, and what its plan said."""
import contextlib
import json
import os
import pathlib
import subprocess
import threading
import time

import server

# Room that is planned and stands empty in these tests: bodies and unsent output of clients, which
# come and go with requests.
ELASTIC = ("client buffers", "connections", "spare worker", "recalled replies")


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


class Peak:
    """The most that these processes held together, while the block ran: bytes."""

    def __init__(self, pids):
        self.pids, self.bytes = pids, 0
        self.done = threading.Event()
        self.watcher = threading.Thread(target=self.watch)

    def watch(self):
        while not self.done.wait(0.25):
            self.bytes = max(self.bytes, anonymous(self.pids))

    def __enter__(self):
        self.watcher.start()
        return self

    def __exit__(self, *_):
        self.done.set()
        self.watcher.join()


def all_pids(daemon):
    return [daemon.pid] + [pid for pids in daemon.children().values() for pid in pids]


class Group:
    """A control group of the memory controller (v1)."""
    ROOT = pathlib.Path("/sys/fs/cgroup/memory")

    def __init__(self, path, outside):
        self.path, self.outside = path, outside

    def leave(self):
        """This process alone: what it started stays."""
        (self.outside / "cgroup.procs").write_text("0")

    def limit(self, size):
        (self.path / "memory.limit_in_bytes").write_text(str(size))

    def usage(self):
        return int((self.path / "memory.usage_in_bytes").read_text())

    def held(self):
        """Without the page cache, which the kernel gives up before it kills anybody."""
        stat = dict(line.split() for line in (self.path / "memory.stat").read_text().splitlines())
        return self.usage() - int(stat["total_active_file"]) - int(stat["total_inactive_file"])


@contextlib.contextmanager
def group():
    """Whatever is started inside is in a group of its own; None where there can be none."""
    own = [line.strip().split(":", 2)[2] for line in open("/proc/self/cgroup")
           if line.split(":")[1] == "memory"]
    path = Group.ROOT / f"colizig-test-{os.getpid()}"
    here = Group(path, Group.ROOT / own[0].lstrip("/")) if own else None
    try:
        path.mkdir()
        (path / "cgroup.procs").write_text("0")
    except OSError:
        yield None
        return
    try:
        yield here
    finally:
        here.leave()
        deadline = time.monotonic() + 10
        while path.exists():
            try:
                path.rmdir()
            except OSError:  # processes that were killed just now are still leaving
                if time.monotonic() > deadline:
                    break  # those of a failed test may stay longer
                time.sleep(0.02)
