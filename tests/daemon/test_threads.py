"""The engine's door and its thread, everything that crosses between them at once: answers, clients
that leave, questions, changed settings, a stop. What matters is that a build with ThreadSanitizer
has nothing to say (its words in the log fail any test)."""
import os
import signal
import threading

import load
from admin import Admin, until

SECONDS = 4


def ask_all(server, ending, ram):
    """The admin's questions and orders, round and round."""
    n = 0
    with Admin(server, 30) as admin:
        while not ending.is_set():
            for command in "status", "stats", "plan", "requests", "experts", "inspect":
                admin.data(command)
            running = admin.data("requests")["requests"]
            if running and n % 8 == 0:  # it may have ended by now
                admin.ask("cancel", request=running[0]["request"])
            for size in ram:
                admin.data("budget", ram=size)
            admin.data("log", level="debug" if n % 2 else "info")
            n += 1
    return n


def press(server, ram):
    ending, done = threading.Event(), []
    asker = threading.Thread(target=lambda: done.append(ask_all(server, ending, ram)))
    with load.Load(server, load.POLITE + [load.vanishing, load.long_prompt], 8, 1) as clients:
        asker.start()
        clients.stopping.wait(SECONDS)
        ending.set()
        asker.join()
    print(clients.table())
    assert not clients.faults, clients.faults[:3]
    assert done and done[0] > 0
    assert sum(n for (_, ending), n in clients.endings.items() if ending == "complete") > 0
    server.await_requests(0, 30)


def test_everything_at_once_and_a_stop_with_the_real_engine(start_real):
    server = start_real("demo", ram="512MiB", engine__context=1024, engine__threads=3)
    press(server, ["400MiB", "512MiB"])
    with server.stream("hello there", max_tokens=400) as stream:
        stream.read(3)
        server.signal(signal.SIGTERM)
        stream.rest()
        assert stream.done or "error" in stream.events[-1]
    assert server.wait(60) == 0


def test_everything_at_once_and_a_killed_worker_with_the_scripted_engine(start_fake):
    server = start_fake({"token_ms": 0.2, "prefill_ms": 0.01, "context": 2048})
    press(server, [])
    with server.stream("hello", max_tokens=1500) as stream:
        stream.read(3)
        for pid in server.children()["colizig-worker"]:
            os.kill(pid, signal.SIGKILL)
        stream.rest()
        assert stream.broken
    server.await_requests(0, 30)
    until(lambda: len(server.children().get("colizig-worker", [])) == 2)
    assert server.stop() == 0
