"""What a daemon's processes hold: descriptors and memory of their own, to be the same afterwards."""
import os
import pathlib
import time

import server as daemon
from admin import Admin

MIB = 1 << 20


def rss_anon(pid):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"process {pid} has no RssAnon")


def rss(pid):
    """All that is resident, added up page by page: the counters of /proc/PID/status lag behind."""
    for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Rss:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"process {pid} has no Rss")


def worker_seconds(server):
    """Processor time of all workers: a loaded machine does not change it."""
    return sum(map(seconds, server.children()["colizig-worker"]))


def seconds(pid):
    """Of all its threads, to the nanosecond."""
    return sum(int(task.read_text().split()[0])
               for task in pathlib.Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9


def open_connections(port):
    """The server's ends of connections that some process still holds: those have an inode."""
    fields = [line.split() for line in open("/proc/net/tcp").read().splitlines()[1:]]
    return [field for field in fields if int(field[1].split(":")[1], 16) == port
            and field[3] != "0A" and field[9] != "0"]


class Census:
    """Taken when a server is quiet; compared when it is quiet again. memory: pid -> bytes."""

    def __init__(self, server, memory=rss_anon):
        self.server, self.measure = server, memory
        self.pids = {name: sorted(pids) for name, pids in server.children().items()}
        self.await_quiet()
        same = 0  # a worker that has just begun meets the engine a moment later
        while same < 5:
            before = self._descriptors()
            time.sleep(0.1)
            same = same + 1 if self._descriptors() == before else 0
        self.descriptors, self.memory = self._descriptors(), self._memory()

    def cpu_seconds(self):
        """Processor time of all these processes."""
        return sum(seconds(pid) for _, pid in self._each())

    def _each(self):
        return [(name, pid) for name, pids in self.pids.items() for pid in pids] \
            + [("colizigd", self.server.pid)]

    def _descriptors(self):
        return {pid: len(os.listdir(f"/proc/{pid}/fd")) for _, pid in self._each()}

    def _memory(self):
        return {pid: self.measure(pid) for _, pid in self._each()}

    def await_quiet(self, seconds=15):
        """Until the engine has no request and no process a connection."""
        self.server.await_requests(0, seconds)
        deadline = time.monotonic() + seconds
        while open_connections(self.server.port):
            assert time.monotonic() < deadline, open_connections(self.server.port)
            time.sleep(0.02)

    def check(self, grown, seconds=15, share=0):
        """The same processes with the same descriptors, none grown by more than so many bytes, or
        than that share of what it had if that is more; a sanitizer's allocator keeps what is
        freed, so there memory is not judged."""
        self.await_quiet(seconds)
        deadline = time.monotonic() + seconds  # our own admin connection takes a moment to close
        while self._descriptors() != self.descriptors:
            assert time.monotonic() < deadline, (self._descriptors(), self.descriptors)
            time.sleep(0.02)
        assert {name: sorted(pids) for name, pids in self.server.children().items()} == self.pids
        rise = {pid: now - self.memory[pid] for pid, now in self._memory().items()}
        print("rise in KiB:", {f"{name} {pid}": f"{rise[pid] // 1024} of {self.memory[pid] // 1024}"
                               for name, pid in self._each()})
        if not daemon.SANITIZER:
            over = {pid: n for pid, n in rise.items() if n > max(grown, share * self.memory[pid])}
            assert not over, rise


def sleeps(pid):
    """A process that has nothing to do."""
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"


def engine_stats(server):
    with Admin(server) as admin:
        return admin.data("stats")
