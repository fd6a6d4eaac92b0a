"""Processes killed at random moments, under load: what clients see, how soon it serves again, and
that nothing is left. By hand: COLIZIG_KILLS says how often (1000, a tenth of them with the real
engine), COLIZIG_SEED repeats a run's choices."""
import os
import pathlib
import random
import signal
import statistics
import time

import pytest

import load
import server as daemon
from admin import until
from census import rss_anon

KILLS = int(os.environ.get("COLIZIG_KILLS", 1000))
pytestmark = [pytest.mark.long, pytest.mark.timeout(60 + 20 * KILLS)]

NAMES = {"worker": "colizig-worker", "engine": "colizig-door"}
# Of the engine's deaths four: the fifth within ten minutes ends the daemon.
PER_ROUND = {"worker": 5, "engine": 4}
PAUSE_SECONDS = 0.25  # of load before each kill, at most


def state(pid):
    """(state, start time) of a process; None when there is none."""
    try:
        text = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = text[text.rindex(")") + 2:].split()
    return fields[0], fields[19]


def family(server):
    """pid -> start time, of the supervisor and all its children."""
    pids = [server.pid] + [pid for pids in server.children().values() for pid in pids]
    return {pid: now[1] for pid in pids if (now := state(pid))}


def shared_memory():
    return sorted(os.listdir("/dev/shm"))


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


class Record:
    """What a run of kills saw."""

    def __init__(self):
        self.n = 0
        self.ready = {"worker": [], "engine": [], "supervisor": []}
        self.deaths = []  # of workers: moments at which connections end
        self.down = []  # [begin, end] of times without any daemon

    def explains(self, begin, end):
        """Whether a connection of that time may have gone without a word."""
        return any(begin - 0.5 <= moment <= end for moment in self.deaths) or \
            any(begin <= upto and since <= end for since, upto in self.down)

    def table(self):
        return "\n".join(
            f"{role:10} {len(times):4} kills, serving again after "
            f"{statistics.median(times):.2f} s, at most {max(times):.2f} s"
            for role, times in self.ready.items() if times)


def whole_again(server):
    children = server.children()
    return len(children.get(NAMES["worker"], [])) == 2 and len(children.get(NAMES["engine"], [])) == 1


def await_whole(server):
    """All processes are there and it answers: a request each, until one is complete."""
    until(lambda: whole_again(server), 60)

    def serves():
        try:
            return server.get("/readyz").status == 200 and \
                server.chat("hi", max_tokens=1).status == 200
        except OSError:
            return False
    until(serves, 60)


def one_round(server, chance, record, most):
    """Kills until the supervisor is killed, at most so many; then nothing is there any more."""
    seen = family(server)
    held = descriptors(server.pid)
    plan = [role for role, n in PER_ROUND.items() for _ in range(n)]
    chance.shuffle(plan)
    for role in plan[:most - 1]:
        time.sleep(chance.random() * PAUSE_SECONDS)
        victim = chance.choice(until(lambda: server.children().get(NAMES[role])))
        begin = time.monotonic()
        if role == "worker":
            record.deaths.append(begin)
        os.kill(victim, signal.SIGKILL)
        until(lambda: victim not in sum(server.children().values(), []), 10)
        await_whole(server)
        record.ready[role].append(time.monotonic() - begin)
        record.n += 1
        seen |= family(server)
        assert not [pid for pid in seen if pid != server.pid and (state(pid) or "-")[0] == "Z"]
        until(lambda: descriptors(server.pid) == held, 10)
    time.sleep(chance.random() * PAUSE_SECONDS)
    record.down.append([time.monotonic(), float("inf")])
    server.process.kill()
    server.process.wait()
    record.n += 1
    until(lambda: not [pid for pid, born in seen.items() if (state(pid) or "--")[1] == born], 10)
    server.log_file.close()
    assert "Sanitizer" not in server.log()


def run(start, kinds, kills, n_threads, seed):
    chance, record = random.Random(seed), Record()
    shm = shared_memory()
    server = start()
    with load.Load(server, kinds, n_threads, seed) as clients:
        while record.n < kills:
            one_round(server, chance, record, kills - record.n)
            begin = record.down[-1][0]
            clients.server = server = start()
            await_whole(server)
            record.ready["supervisor"].append(time.monotonic() - begin)
            record.down[-1][1] = time.monotonic()
    print(f"\nseed {seed}: {record.n} kills\n{record.table()}\n{clients.table()}")
    assert not clients.faults, "\n".join(clients.faults[:3])
    unexplained = [one for one in clients.closed if not record.explains(*one[:2])]
    assert not unexplained, unexplained[:5]
    assert server.stop() == 0
    assert shared_memory() == shm


@pytest.fixture
def seed():
    return os.environ.get("COLIZIG_SEED", str(time.time_ns()))


def test_kills_of_every_role_cost_only_what_they_must(start_fake, seed):
    run(lambda: start_fake({"token_ms": 2, "prefill_ms": 0.2, "load_ms": 20, "context": 2048},
                           http__header_timeout="5s"),
        load.POLITE + [load.long_prompt, load.vanishing], KILLS * 9 // 10, 12, seed)


def test_kills_of_every_role_cost_only_what_they_must_of_the_real_engine(start_real, seed):
    run(lambda: start_real("demo", engine__context=1024), load.POLITE, KILLS // 10, 6, seed)


def test_the_supervisor_does_not_grow_with_the_workers_it_buries(start_fake, seed):
    chance = random.Random(seed)
    server = start_fake({"token_ms": 2}, http__workers=8)
    rss = []
    with load.Load(server, load.POLITE, 6, seed) as clients:
        for i in range(40):
            victim = chance.choice(until(lambda: server.children().get(NAMES["worker"])))
            os.kill(victim, signal.SIGKILL)
            until(lambda: victim not in server.children().get(NAMES["worker"], []))
            until(lambda: len(server.children().get(NAMES["worker"], [])) == 8, 60)
            rss.append((descriptors(server.pid), rss_anon(server.pid)))
    print(rss[4], rss[-1])
    assert not clients.faults, clients.faults[:3]
    assert rss[-1][0] == rss[4][0]
    assert rss[-1][1] <= rss[4][1] * 1.01 + 4096, rss
    assert server.stop() == 0
