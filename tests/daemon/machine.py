"""A machine of its own for tests of the installed service: systemd as PID 1 in namespaces, over an
overlay of this machine, so that units, users and packages are real and nothing is changed outside.

Needs root, cgroup2 and an overlay file system; where one is missing, tests skip and say which."""
import contextlib
import ctypes
import functools
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import time

import pytest

import server

BOOT = pathlib.Path(__file__).with_name("machine-boot")
LIBC = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNET = 0x40000000
PR_SET_PDEATHSIG = 1
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
CANNOT = 77
BOOT_SECONDS = 30
CGROUP = "colizig-test-"


def until(condition, seconds=10, what=""):
    """The condition's value, once it is true."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"waited {seconds} s in vain {what}"
        time.sleep(0.02)
    return value


def own_cgroup():
    """A new, empty cgroup2 below the one that this process is in."""
    mount = re.search(r"(?m)^\d+ \d+ \S+ (\S+) (\S+) .* - cgroup2 ",
                      pathlib.Path("/proc/self/mountinfo").read_text())
    own = re.search(r"(?m)^0::(.*)$", pathlib.Path("/proc/self/cgroup").read_text())
    if not mount or not own:
        pytest.skip("no cgroup2 is mounted")
    root, point = mount.groups()
    parent = pathlib.Path(point) / os.path.relpath(own[1], root)
    for stale in parent.glob(CGROUP + "*"):  # of a run that was killed
        if not pathlib.Path("/proc", stale.name.removeprefix(CGROUP)).exists():
            remove_cgroup(stale)
    mine = parent / f"{CGROUP}{os.getpid()}"
    try:
        mine.mkdir()
    except OSError as error:
        pytest.skip(f"cannot make a cgroup2: {error}")
    return mine


def remove_cgroup(top):
    """Ends whatever is left in it. The kernel needs a moment to let go of the dead."""
    with contextlib.suppress(OSError):
        (top / "cgroup.kill").write_text("1")
    deadline = time.monotonic() + 5
    while top.exists() and time.monotonic() < deadline:
        for path, _, _ in os.walk(top, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(path)
        time.sleep(0.01)


class Machine:
    """A booted one. Paths and commands are its own, not this machine's."""

    def __init__(self, workdir, tree, models):
        if os.geteuid() != 0:
            pytest.skip("needs root")
        for tool in "/lib/systemd/systemd", "unshare", "nsenter", "ip":
            if not shutil.which(tool):
                pytest.skip(f"needs {tool}")
        scratch = workdir / "scratch"
        scratch.mkdir()
        self.cgroup = own_cgroup()
        self.boot_log = workdir / "boot.log"
        self.init = 0
        try:
            with open(self.boot_log, "wb") as log:
                self.process = subprocess.Popen(
                    ["unshare", "-m", "-p", "-f", "-i", "-u", "-n", "-C", "--kill-child",
                     BOOT, scratch, tree, models],
                    preexec_fn=self._enter, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            self._await_boot()
        except BaseException:
            self.close()
            raise

    def _enter(self):
        """In the child: into the cgroup first, so that the namespace begins there; and not to
        outlive the tests."""
        (self.cgroup / "cgroup.procs").write_text(str(os.getpid()))
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

    def _await_boot(self):
        deadline = time.monotonic() + BOOT_SECONDS
        while time.monotonic() < deadline:
            status = self.process.poll()
            said = self.boot_log.read_text(errors="replace")
            if status == CANNOT or status is not None and "unshare:" in said:
                pytest.skip(said.strip().splitlines()[-1])
            assert status is None, f"boot ended with {status}: {said}"
            self.init = self._find_init()
            if self.init and self.path("/run/systemd/private").exists() and \
                    self.run("systemctl", "is-active", "multi-user.target",
                             check=False).stdout.strip() == "active":
                return
            time.sleep(0.05)
        raise AssertionError(f"did not boot in {BOOT_SECONDS} s: {self.console()}")

    def _find_init(self):
        """unshare's only child, once it is systemd."""
        pid = self.process.pid
        children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        if not children:
            return 0
        with contextlib.suppress(OSError):
            if pathlib.Path(f"/proc/{children[0]}/comm").read_text() == "systemd\n":
                return int(children[0])
        return 0

    def close(self):
        """Ends everything in it, whatever state it is in."""
        process = getattr(self, "process", None)
        if process and process.poll() is None:
            process.kill()  # and with it PID 1, and with that all others
            process.wait()
        remove_cgroup(self.cgroup)
        assert not self.cgroup.exists(), "processes outlive their machine"

    # ---- inside ----

    def path(self, path):
        return pathlib.Path(f"/proc/{self.init}/root{path}")

    def write(self, path, text, mode=0o644):
        target = self.path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        target.chmod(mode)

    def run(self, *command, check=True, timeout=40):
        done = subprocess.run(["nsenter", "-t", str(self.init), "-a", "--", *map(str, command)],
                              capture_output=True, text=True, timeout=timeout, check=False,
                              stdin=subprocess.DEVNULL, cwd="/", errors="replace",
                              env={"PATH": PATH, "LC_ALL": "C.UTF-8",
                                   "SYSTEMD_COLORS": "0", "SYSTEMD_PAGER": ""})
        assert not check or done.returncode == 0, \
            f"{command} ended with {done.returncode}: {done.stdout}{done.stderr}{self.journal()}"
        return done

    def systemctl(self, *arguments, **more):
        return self.run("systemctl", *arguments, **more)

    def show(self, unit, *names):
        """Properties of a unit, as systemctl show writes them."""
        lines = self.systemctl("show", unit, "-p", ",".join(names)).stdout.splitlines()
        found = dict(line.split("=", 1) for line in lines)
        return found[names[0]] if len(names) == 1 else found

    def journal(self, unit="colizigd.service"):
        return self.run("journalctl", "-q", "--no-pager", "-o", "cat", "-u", unit,
                        check=False).stdout

    def console(self):
        """What systemd itself said, and what it knows of the units that failed."""
        text = self.boot_log.read_text(errors="replace")
        if self.init:
            with contextlib.suppress(OSError):
                text += self.path("/dev/console").read_text(errors="replace")
        return text

    def unit_pids(self, unit="colizigd.service"):
        """name -> pids out here of the processes of a unit."""
        found = {}
        for procs in self.cgroup.glob(f"system.slice/{unit}/**/cgroup.procs"):
            for pid in procs.read_text().split():
                with contextlib.suppress(OSError):
                    name = pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
                    found.setdefault(name, []).append(int(pid))
        return found

    @contextlib.contextmanager
    def network(self):
        """Sockets that this thread makes meanwhile are of the machine's network."""
        with open("/proc/thread-self/ns/net") as before, \
                open(f"/proc/{self.init}/ns/net") as inside:
            _setns(inside)
            try:
                yield
            finally:
                _setns(before)

    def client(self, port):
        return Client(self, port)


def _setns(namespace):
    if LIBC.setns(namespace.fileno(), CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")


class Client(server.Server):
    """Requests to a daemon in the machine, which systemd starts and stops."""

    def __init__(self, machine, port):  # pylint: disable=super-init-not-called
        self.machine, self.port = machine, port
        self.process, self.log = None, functools.partial(machine.journal)

    def connect(self, timeout=10):
        with self.machine.network():
            return server.Connection(self.port, timeout)

    def await_status(self, path, status, seconds=server.START_SECONDS):
        last = None

        def right():
            nonlocal last
            try:
                last = self.get(path).status
            except OSError as error:
                last = error
            return last == status
        until(right, seconds, f"{path} was {last}")

    def listens(self):
        with contextlib.suppress(OSError), self.machine.network(), \
                socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False
