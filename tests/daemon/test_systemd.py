"""Life under systemd: the shipped units, under a real systemd as PID 1 of a machine of their own."""
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time

import pytest

import machine as machines
import server as daemon
from fake_model import DEMO_TOKENIZER
from machine import until

pytestmark = pytest.mark.slow

PORT = 18400
CONFIG = "/etc/colizig/colizigd.yaml"
UNITS = ["colizigd.service", "colizigd-http.socket", "colizigd-admin.socket"]
DROP_INS = "/run/systemd/system/{}.d"
FAKE = "[Service]\nExecStart=\nExecStart=/usr/local/sbin/colizigd-fake --config " + CONFIG + "\n"


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    """A booted machine in which `make install` was run; the user and the directories are made."""
    workdir = tmp_path_factory.mktemp("machine")
    tree = workdir / "tree"
    subprocess.run(["make", "-s", "install", f"DESTDIR={tree}",
                    f"B={os.path.relpath(daemon.BUILD, daemon.ROOT)}"], check=True,
                   cwd=daemon.ROOT, stdin=subprocess.DEVNULL, timeout=60)
    shutil.copy(daemon.BUILD / "colizigd-fake", tree / "usr/local/sbin/colizigd-fake")
    shutil.copy(daemon.ROOT / "systemd/no-network.conf", tree)
    one = machines.Machine(workdir, tree, daemon.MODELS)
    try:
        one.run("systemd-sysusers", "colizigd.conf")
        one.run("systemd-tmpfiles", "--create", "colizigd.conf")
        yield one
    finally:
        one.close()


class Service:
    """colizigd.service and its sockets, as an administrator has them."""

    def __init__(self, machine):
        self.machine = machine
        self.client = machine.client(PORT)
        self.systemctl = machine.systemctl

    def show(self, *names):
        return self.machine.show("colizigd.service", *names)

    def configure(self, model="demo", ram="512MiB", **sections):
        """Writes the file; sections as http={"workers": 1}."""
        directory = model if model.startswith("/") else f"/srv/models/{model}"
        sections = {"model": {"dir": directory}, "memory": {"ram": ram}} | sections
        sections["http"] = {"listen": [f"127.0.0.1:{PORT}"]} | sections.get("http", {})
        self.machine.write(CONFIG, json.dumps(sections))  # JSON is YAML

    def drop_in(self, text, unit="colizigd.service"):
        place = DROP_INS.format(unit)
        number = len(list(self.machine.path(place).glob("*")))
        self.machine.write(f"{place}/{number}.conf", text)
        self.systemctl("daemon-reload")

    def script(self, **script):
        """The scripted engine in place of the real one."""
        self.machine.write("/srv/fake/fake.json", json.dumps(script))
        shutil.copy(DEMO_TOKENIZER, self.machine.path("/srv/fake/tokenizer.json"))
        self.drop_in(FAKE)

    def start(self):
        self.systemctl("start", "colizigd")

    def stop(self):
        """Seconds it took."""
        began = time.monotonic()
        self.systemctl("stop", "colizigd")
        return time.monotonic() - began

    def processes(self):
        return self.machine.unit_pids()

    def one(self, name):
        (pid,) = self.processes()[name]
        return pid

    def running(self):
        done = self.machine.run("colizigctl", "status", "--json", check=False)
        return json.loads(done.stdout)["engine"]["running"] if done.returncode == 0 else 0

    def log(self, since=0):
        return self.machine.journal()[since:]

    def await_log(self, pattern, since=0, seconds=10):
        until(lambda: re.search(pattern, self.log(since)), seconds, f"for {pattern}")

    def reset(self):
        self.systemctl("stop", *reversed(UNITS))
        for unit in UNITS:
            shutil.rmtree(self.machine.path(DROP_INS.format(unit)), ignore_errors=True)
        self.systemctl("daemon-reload")
        self.systemctl("reset-failed")
        self.configure()


@pytest.fixture
def service(machine):
    one = Service(machine)
    one.reset()
    yield one
    with contextlib.suppress(ProcessLookupError):  # a failed test may leave something stopped
        for pids in one.processes().values():
            for pid in pids:
                os.kill(pid, signal.SIGCONT)


def status_of(pid):
    """/proc/PID/status as name -> text."""
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as text:
        return dict(line.rstrip("\n").split(":\t", 1) for line in text)


# ---- the files ----

def test_systemd_has_nothing_to_say_about_the_units(machine):
    where = [f"/usr/local/lib/systemd/system/{unit}" for unit in UNITS]
    done = machine.run("systemd-analyze", "verify", "--man=no", *where)
    assert done.stdout + done.stderr == ""


@pytest.mark.parametrize("more, words", [
    ([], r"`colizigd\.service` as it is installed: \*\*([0-9.]+)\*\*"),
    (["no-network.conf"], r"with `no-network\.conf`: \*\*([0-9.]+)\*\*"),
], ids=["installed", "no-network"])
def test_the_documented_exposure_is_what_systemd_says(tmp_path, more, words):
    shutil.copy(daemon.ROOT / "systemd/colizigd.service", tmp_path)
    with open(tmp_path / "colizigd.service", "a", encoding="utf-8") as unit:
        for name in more:
            unit.write((daemon.ROOT / "systemd" / name).read_text())
    done = subprocess.run(["systemd-analyze", "security", "--offline=yes", "--no-pager",
                           tmp_path / "colizigd.service"], capture_output=True, text=True,
                          timeout=20, check=True, env=dict(os.environ, LC_ALL="C.UTF-8"))
    said = re.search(r"Overall exposure level for \S+: ([0-9.]+) ", done.stdout)[1]
    documented = re.search(words, (daemon.ROOT / "docs/systemd.md").read_text())[1]
    assert said == documented


# ---- start ----

def test_the_shipped_unit_starts_is_ready_and_serves(service):
    service.start()  # returns once READY=1 came
    state = service.show("ActiveState", "SubState", "StatusText", "Type", "NRestarts", "User",
                         "MemorySwapMax", "OOMPolicy")
    assert state == {"ActiveState": "active", "SubState": "running", "Type": "notify",
                     "StatusText": f"serving demo on 127.0.0.1:{PORT}", "NRestarts": "0",
                     "User": "colizig", "MemorySwapMax": "0", "OOMPolicy": "continue"}
    assert service.client.get("/readyz").status == 200
    assert service.client.chat("hello", max_tokens=4).usage()["completion_tokens"] == 4
    assert {name: len(pids) for name, pids in service.processes().items()} == \
        {"colizigd": 1, "colizig-worker": 2, "colizig-door": 1}
    asked = service.machine.run("colizigctl", "status", "--json")
    assert json.loads(asked.stdout)["phase"] == "serving"
    service.await_log(r"(?m)^supervisor: ready listen=")  # journald took the priority off


def test_ready_comes_only_after_loading_and_loading_may_outlast_the_start_timeout(service):
    service.script(load_ms=3000)
    service.configure(model="/srv/fake")
    service.drop_in("[Service]\nTimeoutStartSec=1s\n")
    service.systemctl("start", "--no-block", "colizigd")
    until(lambda: service.show("StatusText").startswith("loading the model"))
    assert service.show("ActiveState") == "activating"
    assert service.client.get("/readyz").status == 503
    until(lambda: service.show("ActiveState") != "activating")
    assert service.show("ActiveState", "NRestarts") == {"ActiveState": "active", "NRestarts": "0"}


@pytest.mark.parametrize("settings, status, words", [
    ({"engine": {"queue": "many"}}, 2, r"colizigd\.yaml:1:\d+: engine\.queue"),
    ({"model": "/srv/broken"}, 3, r"(config|tokenizer)\.json"),
    ({"ram": "16MiB"}, 4, "ram"),
], ids=["settings", "checkpoint", "budget"])
def test_what_cannot_get_better_is_not_tried_again(service, settings, status, words):
    service.machine.write("/srv/broken/config.json", "{")
    service.drop_in("[Service]\nRestartSec=50ms\n")
    service.configure(**settings)
    since = len(service.log())
    assert service.systemctl("start", "colizigd", check=False).returncode != 0
    assert service.show("ActiveState", "ExecMainStatus", "NRestarts") == \
        {"ActiveState": "failed", "ExecMainStatus": str(status), "NRestarts": "0"}
    time.sleep(0.3)  # several times RestartSec
    assert service.show("ActiveState", "NRestarts") == {"ActiveState": "failed", "NRestarts": "0"}
    service.await_log(words, since)
    assert not service.processes()


# ---- the sandbox ----

PROBE = """
import ctypes, errno, json, mmap, os, resource, socket
libc = ctypes.CDLL(None, use_errno=True)
found, held = {}, ctypes.create_string_buffer(64)

def attempt(name, what):
    try:
        what()
        found[name] = "done"
    except OSError as error:
        found[name] = errno.errorcode[error.errno]

def call(*arguments):
    if libc.syscall(*arguments) < 0:
        raise OSError(ctypes.get_errno(), "")

def write(path):
    return lambda: open(path, "w").close()

for path in ("/etc/x", "/etc/colizig/x", "/usr/x", "/home/x", "/root/x", "/srv/models/x", "/x",
             "/var/log/x", "/run/x", "/var/lib/colizig/x", "/run/colizig/x", "/tmp/x"):
    attempt("write " + path, write(path))
for path in "/dev/kmsg", "/dev/mem", "/proc/1/status", "/proc/meminfo", "/proc/self/status":
    attempt("read " + path, lambda: open(path).close())
attempt("write /proc/sys", write("/proc/sys/vm/swappiness"))
attempt("write /sys/fs/cgroup", lambda: os.mkdir("/sys/fs/cgroup/x"))
for family in "AF_INET", "AF_INET6", "AF_UNIX", "AF_NETLINK", "AF_PACKET", "AF_VSOCK":
    attempt(family, lambda: socket.socket(getattr(socket, family), socket.SOCK_DGRAM).close())
attempt("write and execute", lambda: mmap.mmap(-1, 4096, prot=7).close())
attempt("a user namespace", lambda: call(272, 0x10000000))
attempt("mount", lambda: call(165, b"a", b"/tmp", b"tmpfs", 0, None))
attempt("ptrace", lambda: call(101, 0, 0, 0, 0))
attempt("chown", lambda: os.chown("/var/lib/colizig/x", os.getuid(), os.getgid()))
attempt("setuid", lambda: os.setuid(os.getuid()))
attempt("a key", lambda: call(248, b"user", b"x", b"y", 1, -3))
attempt("set-user-id", lambda: os.chmod("/var/lib/colizig/x", 0o4755))
attempt("other architectures", lambda: call(135, 0xffffffff + 8))
attempt("landlock", lambda: call(444, None, 0, 1))
attempt("seccomp", lambda: call(317, 2, 0, ctypes.byref(ctypes.c_uint32(0x7fff0000))))
attempt("rlimits", lambda: resource.setrlimit(resource.RLIMIT_CORE, (0, 0)))
attempt("mlock", lambda: call(149, ctypes.c_void_p(ctypes.addressof(held)), 64))
json.dump(found, open("/var/lib/colizig/probe.json", "w"))
"""

ALLOWED = ["write /var/lib/colizig/x", "write /run/colizig/x", "write /tmp/x", "read /proc/meminfo",
           "read /proc/self/status", "AF_INET", "AF_INET6", "AF_UNIX", "seccomp", "rlimits",
           "mlock"]


def test_the_unit_refuses_what_it_should_and_grants_what_the_daemon_needs(service):
    machine = service.machine
    machine.write("/run/machine/probe.py", PROBE)
    service.drop_in("[Service]\nExecStartPre=/usr/bin/python3 /run/machine/probe.py\n")
    service.start()
    found = json.loads(machine.path("/var/lib/colizig/probe.json").read_text())
    granted = {name for name, result in found.items() if result == "done"}
    assert granted - {"landlock"} == set(ALLOWED), found
    # Where this kernel knows Landlock, or not: never by order of the filter.
    assert found["landlock"] in ("done", "ENOSYS", "EOPNOTSUPP")
    for path in "/etc/x", "/etc/colizig/x", "/usr/x", "/home/x", "/srv/models/x", "/var/log/x":
        assert found["write " + path] == "EROFS", found
    for name in "chown", "setuid", "a user namespace", "write and execute", "a key":
        assert found[name] == "EPERM", found
    for family in "AF_NETLINK", "AF_PACKET", "AF_VSOCK":
        assert found[family] == "EAFNOSUPPORT", found
    assert not machine.path("/tmp/x").exists(), "its /tmp is its own"


def test_every_process_is_colizig_without_privileges_behind_a_filter(service):
    service.start()
    machine = service.machine
    passwd = machine.run("getent", "passwd", "colizig").stdout.split(":")
    assert passwd[6].strip().endswith("nologin")
    for name, pids in service.processes().items():
        for pid in pids:
            status = status_of(pid)
            assert status["Uid"].split() == [passwd[2]] * 4, name
            assert status["Gid"].split() == [passwd[3]] * 4, name
            assert status["NoNewPrivs"] == "1" and status["Seccomp"] == "2", name
            for kind in "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb":
                assert int(status[kind], 16) == 0, (name, kind)
    for path, mode in ("/var/lib/colizig", 0o750), ("/run/colizig", 0o755):
        about = machine.path(path).stat()
        assert (about.st_uid, about.st_gid, about.st_mode & 0o777) == \
            (int(passwd[2]), int(passwd[3]), mode), path
    # Not even root writes there in the service's view of the files.
    done = machine.run("sh", "-c", "exec nsenter -m -t $0 touch /etc/x",
                       service.show("MainPID"), check=False)
    assert done.returncode != 0 and "Read-only file system" in done.stderr


# ---- reload ----

def test_a_reload_puts_an_edit_into_effect_without_a_restart(service):
    service.start()
    before = service.processes()
    service.configure(engine={"queue": 7}, log={"level": "debug"})
    service.systemctl("reload", "colizigd")
    service.await_log(r"reload: done applied=(engine\.queue,log\.level|log\.level,engine\.queue) "
                      r"workers=kept engine=adjusted")
    assert service.processes() == before
    service.client.get("/livez")
    service.await_log(r"route=/livez")  # which only debug shows
    service.configure(engine={"queue": 7}, log={"level": "debug"}, http={"body": "1MiB"})
    service.systemctl("reload", "colizigd")
    service.await_log(r"reload: done applied=http\.body workers=replaced engine=kept", seconds=20)
    after = service.processes()
    assert (after["colizigd"], after["colizig-door"]) == \
        (before["colizigd"], before["colizig-door"])
    assert not set(after["colizig-worker"]) & set(before["colizig-worker"])
    until(lambda: service.show("ActiveState", "SubState", "NRestarts") ==
          {"ActiveState": "active", "SubState": "running", "NRestarts": "0"})
    assert service.show("StatusText").startswith("serving demo")
    assert service.client.chat("hello", max_tokens=2).status == 200


def test_a_bad_edit_is_said_and_changes_nothing(service):
    service.start()
    before, since = service.processes(), len(service.log())
    said = r"reload failed; nothing changed: .*colizigd\.yaml:1:\d+: engine\.queue"
    service.configure(engine={"queue": "many"})
    service.systemctl("reload", "colizigd", check=False)
    service.await_log(said, since)
    until(lambda: re.search(said, service.show("StatusText")))
    until(lambda: service.show("ActiveState", "SubState", "NRestarts") ==
          {"ActiveState": "active", "SubState": "running", "NRestarts": "0"})
    assert service.processes() == before
    assert service.client.chat("hello", max_tokens=2).status == 200


# ---- what hangs or dies ----

def test_a_stopped_engine_is_started_again(service):
    service.configure(engine={"stall_timeout": "1s"})
    service.start()
    assert service.client.chat("hello", max_tokens=2).status == 200
    main, engine = service.one("colizigd"), service.one("colizig-door")
    since = len(service.log())
    service.await_log("engine started")
    time.sleep(1.2)  # a first pulse
    os.kill(engine, signal.SIGSTOP)
    service.await_log("engine is silent and is killed", since, 15)
    until(lambda: service.show("StatusText").startswith("serving"), 15)
    service.client.await_status("/readyz", 200)
    assert service.one("colizig-door") != engine
    assert service.one("colizigd") == main and service.show("NRestarts") == "0"
    assert service.client.chat("hello", max_tokens=2).status == 200


def test_a_stopped_supervisor_is_started_again_by_the_watchdog(service):
    service.drop_in("[Service]\nWatchdogSec=1s\nTimeoutAbortSec=500ms\nRestartSec=50ms\n")
    service.start()
    before = {pid for pids in service.processes().values() for pid in pids}
    os.kill(service.one("colizigd"), signal.SIGSTOP)
    until(lambda: service.show("NRestarts") == "1", 15, "for the watchdog")
    until(lambda: service.show("ActiveState") == "active", 15)
    after = {pid for pids in service.processes().values() for pid in pids}
    assert len(after) == 4 and not before & after
    assert service.client.chat("hello", max_tokens=2).status == 200


def test_a_watchdog_of_one_second_is_fed_during_work(service):
    service.drop_in("[Service]\nWatchdogSec=1s\n")
    service.configure(engine={"threads": 2})
    service.start()
    began = time.monotonic()
    while time.monotonic() < began + 2.5:
        assert service.client.chat("hello", max_tokens=64).status == 200
    assert service.show("NRestarts", "ActiveState") == {"NRestarts": "0", "ActiveState": "active"}


# ---- stop ----

def test_stop_lets_an_open_stream_finish_and_leaves_nothing(service):
    service.script(token_ms=10)
    service.configure(model="/srv/fake")
    service.start()
    pids = [pid for pids in service.processes().values() for pid in pids]
    with service.client.stream("hello", max_tokens=100) as stream:
        stream.read(3)
        stopping = threading.Thread(target=service.stop)
        stopping.start()
        stream.rest()
        stopping.join()
        assert stream.done and stream.finish() == "length"
    assert service.show("ActiveState", "Result", "ExecMainStatus") == \
        {"ActiveState": "inactive", "Result": "success", "ExecMainStatus": "0"}
    assert not service.processes()
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)
    assert not service.client.listens()
    assert not service.machine.path("/run/colizig/admin.sock").exists()


def test_stop_cuts_an_endless_stream_and_tells_its_client(service):
    service.script(token_ms=10)
    service.configure(model="/srv/fake", http={"drain_timeout": "1s"})
    service.start()
    with service.client.stream("hello", max_tokens=4000) as stream:
        stream.read(3)
        stopping = threading.Thread(target=service.stop)
        began = time.monotonic()
        stopping.start()
        stream.rest()
        assert not stream.finish() and "error" in stream.events[-1], stream.events[-1]
        stopping.join()
        assert 0.9 < time.monotonic() - began < 10
    assert service.show("Result", "ExecMainStatus") == {"Result": "success", "ExecMainStatus": "0"}


@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "whole"])
def test_stop_in_a_long_prefill_tells_the_client(service, streamed):
    """The real engine in the middle of a prompt that takes far longer than drain_timeout."""
    service.configure(http={"drain_timeout": "1s"}, engine={"threads": 1, "kernels": "scalar",
                                                              "prefill_rows": 256})
    service.start()
    with service.client.connect(30) as connection:
        connection.send("POST", "/v1/completions",
                        {"prompt": "the " * 4000, "max_tokens": 2, "stream": streamed})
        until(lambda: service.running() == 1)
        took = service.stop()
        assert took < 10
        assert service.show("Result", "ExecMainStatus") == \
            {"Result": "success", "ExecMainStatus": "0"}
        if streamed:
            stream = daemon.Stream(connection).rest()
            assert stream.answer.status == 503 or "error" in stream.events[-1]
        else:
            assert connection.answer().status == 503


def test_a_drain_longer_than_the_stop_timeout_asks_for_its_time(service):
    service.script(token_ms=20)
    service.configure(model="/srv/fake", http={"drain_timeout": "30s"})
    service.drop_in("[Service]\nTimeoutStopSec=1s\n")
    service.start()
    with service.client.stream("hello", max_tokens=150) as stream:
        stream.read(3)
        stopping = threading.Thread(target=service.stop)
        stopping.start()
        stream.rest()
        stopping.join()
        assert stream.finish() == "length"
    assert service.show("Result", "ExecMainStatus") == {"Result": "success", "ExecMainStatus": "0"}


# ---- sockets ----

def http_socket(service):
    service.drop_in(f"[Socket]\nListenStream=\nListenStream=127.0.0.1:{PORT}\n",
                    "colizigd-http.socket")
    service.systemctl("start", "colizigd-http.socket")


def test_clients_wait_in_systemds_socket_while_the_daemon_restarts(service):
    """Also without any network of the daemon's own."""
    service.drop_in(service.machine.path("/no-network.conf").read_text())
    service.drop_in("[Service]\nRestartSec=300ms\n")
    http_socket(service)
    assert not service.processes()
    assert service.client.get("/livez").status == 200  # the first client starts it
    service.client.await_status("/readyz", 200)
    with service.machine.network():
        inside = os.readlink("/proc/thread-self/ns/net")
    assert os.readlink(f"/proc/{service.one('colizigd')}/ns/net") != inside

    statuses, done = [], threading.Event()

    def visit():
        while not done.is_set():
            try:
                statuses.append(service.client.get("/livez", timeout=20).status)
            except OSError as error:
                statuses.append(error)
            time.sleep(0.005)

    visitors = [threading.Thread(target=visit) for _ in range(4)]
    for visitor in visitors:
        visitor.start()
    try:
        for _ in range(2):
            service.systemctl("restart", "colizigd")
        until(lambda: len(statuses) > 20)
        assert set(statuses) == {200}  # whoever had connected before the stop was answered too
        for _ in range(2):  # with a client on the way, it is that which brings the daemon back
            before = service.one("colizigd")
            os.kill(before, signal.SIGKILL)
            until(lambda: service.processes().get("colizigd", [before]) != [before], 20)
            until(lambda: service.show("ActiveState") == "active", 20)
    finally:
        done.set()
        for visitor in visitors:
            visitor.join()
    # Refused: never. Cut short: only what a killed worker had in its hands.
    assert not any(isinstance(one, ConnectionRefusedError) for one in statuses), statuses
    assert len([one for one in statuses if one != 200]) <= 2 * len(visitors), statuses
    assert service.client.chat("hello", max_tokens=2).status == 200


def test_a_waiting_client_does_not_start_a_broken_daemon_for_ever(service):
    """It stays in the socket unread, so systemd tries again, until the unit's limit of starts."""
    service.configure(engine={"queue": "many"})
    http_socket(service)
    since = len(service.log())
    with service.client.connect():
        until(lambda: service.machine.show("colizigd-http.socket", "ActiveState") == "failed", 30)
    assert service.machine.show("colizigd-http.socket", "Result") == "service-start-limit-hit"
    assert not service.processes()
    assert service.log(since).count("is no whole number") <= 10
    service.configure()
    service.systemctl("reset-failed")  # as documented
    service.systemctl("start", "colizigd-http.socket")
    assert service.client.get("/livez").status == 200


def test_the_admin_socket_of_systemd_is_for_its_group_and_outlives_the_daemon(service):
    machine, path = service.machine, "/run/colizig/admin.sock"
    service.systemctl("start", "colizigd-admin.socket")
    about = machine.path(path).stat()
    gid = int(machine.run("getent", "group", "colizig").stdout.split(":")[2])
    assert about.st_mode & 0o777 == 0o660 and about.st_gid == gid
    service.start()
    assert machine.run("colizigctl", "status").returncode == 0
    member = ["setpriv", "--reuid=65534", "--clear-groups"]
    assert machine.run(*member, f"--regid={gid}", "colizigctl", "status").returncode == 0
    stranger = machine.run(*member, "--regid=65534", "colizigctl", "status", check=False)
    assert stranger.returncode != 0 and "may not be opened by this user" in stranger.stderr
    service.systemctl("stop", "colizigd")
    assert machine.path(path).exists() and not service.processes()
    machine.run("colizigctl", "status")  # whoever asks starts it
    assert service.show("ActiveState") in ("activating", "active")
