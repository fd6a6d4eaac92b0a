"""All limits pushed at once, with the least memory that the plan allows, in a control group hardly
larger. By hand: COLIZIG_SECONDS says for how long (600)."""
import contextlib
import os
import threading
import time

import pytest

import load
import memory
import server as daemon

MIB = 1 << 20
SECONDS = int(os.environ.get("COLIZIG_SECONDS", 600))
# Sizes as they are by default; times short, so that each of them passes often.
SETTINGS = {"engine__context": 8192, "memory__kv_dtype": "f32", "http__per_address": 256,
            "http__header_timeout": "2s", "http__body_timeout": "3s", "http__idle_timeout": "2s"}
pytestmark = [pytest.mark.long, pytest.mark.timeout(SECONDS + 300)]


def counters(path, name):
    return dict(line.split()[:2] for line in (path / name).read_text().splitlines())


class Watch(threading.Thread):
    """The most that a group held, looked at fifty times a second."""

    def __init__(self, group):
        super().__init__(daemon=True)
        self.group, self.ending, self.peak, self.at = group, threading.Event(), 0, {}

    def run(self):
        while not self.ending.wait(0.02):
            stat = counters(self.group.path, "memory.stat")
            held = sum(int(stat[f"total_{kind}"])
                       for kind in ("active_anon", "inactive_anon", "unevictable"))
            if held > self.peak:
                self.peak, self.at = held, stat

    def end(self):
        self.ending.set()
        self.join()


def swapped(pids):
    return sum(int(line.split()[1]) for pid in pids
               for line in open(f"/proc/{pid}/status") if line.startswith("VmSwap:"))


@pytest.mark.parametrize("lock", ["false", "true"])
def test_the_budget_holds_under_every_load_at_once(start_real, lock):
    with memory.group() as group, contextlib.ExitStack() as ending:
        if group is None:
            pytest.skip("needs root and the v1 memory controller")
        ram = memory.plan(daemon.MODELS / "demo", memory__ram="1MiB", **SETTINGS)[0]["minimum"]
        group.limit(ram * 105 // 100)
        server = start_real("demo", ram=str(ram), memory__lock=lock, **SETTINGS)
        group.leave()  # clients are not of the service
        ending.callback(server.process.kill)  # or the group would stay, and the next test skip
        watch = Watch(group)
        watch.start()
        before = server.chat("hello there", max_tokens=16).text()
        pids = memory.all_pids(server)
        seed = os.environ.get("COLIZIG_SEED", str(time.time_ns()))
        print(f"seed {seed}")
        with load.Load(server, load.ALL, 48, seed) as clients:
            clients.stopping.wait(SECONDS)
            still = memory.all_pids(server)
            swap = swapped(still)
        watch.end()
        print(clients.table())
        oom = counters(group.path, "memory.oom_control")
        print(f"{SECONDS} s, lock {lock}: most held {watch.peak / MIB:.1f} MiB of {ram / MIB:.1f}, "
              f"limit hit {(group.path / 'memory.failcnt').read_text().strip()} times, "
              f"oom_kill {oom.get('oom_kill')}, swap {swap} KiB")
        assert not clients.faults, "\n".join(clients.faults[:5])
        assert still == pids, server.log()[-3000:]
        assert int(oom.get("oom_kill", 0)) == 0 and int(oom["under_oom"]) == 0
        assert watch.peak <= ram, watch.at
        assert swap == 0
        server.await_requests(0, 30)
        assert server.chat("hello there", max_tokens=16).text() == before
        assert server.stop() == 0
