"""Starting and stopping a daemon of our own, and a plain HTTP client that hides nothing."""
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import time

from admin import Admin

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = pathlib.Path(os.environ.get("COLIZIG_BUILD", ROOT / "build"))
MODELS = ROOT / "build/models"
SANITIZER = BUILD.name in ("san", "tsan")
START_SECONDS = 30


class Server:
    """A running daemon: where it listens, what it logged, which processes it has."""

    def __init__(self, binary, model_dir, workdir, settings, arguments=(), wait="readyz",
                 more_environment=None):
        """model_dir None: arguments name a file that says it, and where to listen."""
        self.log_path = workdir / "log"
        self.log_file = open(self.log_path, "wb")
        command = [binary, "--set", f"admin.socket={workdir}/admin.sock"]
        if model_dir:
            command += ["--set", f"state.dir={workdir}/state",
                        "--model", model_dir, "--listen", "127.0.0.1:0"]
        for key, value in settings.items():
            for one in value if isinstance(value, (list, tuple)) else [value]:
                command += ["--set", f"{key}={one}"]
        self.process = subprocess.Popen([str(word) for word in [*command, *arguments]],
                                        stdin=subprocess.DEVNULL, stdout=self.log_file,
                                        stderr=self.log_file,
                                        env={**environment(), **(more_environment or {})})
        self.pid = self.process.pid
        try:
            self.port = self._await_port()
            self.base = f"http://127.0.0.1:{self.port}"
            if wait:
                self.await_status(f"/{wait}", 200)
        except BaseException:
            self.stop()
            raise

    def log(self):
        return self.log_path.read_text(errors="replace")

    def _await_port(self):
        """The socket is bound by the supervisor before anything else is ready."""
        inodes = None
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise RuntimeError(f"exited with {self.process.returncode}: {self.log()}")
            inodes = socket_inodes(self.pid)
            for line in open("/proc/net/tcp").read().splitlines()[1:]:
                field = line.split()
                if field[3] == "0A" and field[9] in inodes:
                    return int(field[1].split(":")[1], 16)
            time.sleep(0.02)
        raise RuntimeError(f"no listening socket: {self.log()}")

    def await_status(self, path, status, seconds=START_SECONDS):
        """Several times in a row: the engine tells one worker after the other that it is ready."""
        deadline = time.monotonic() + seconds
        last, in_a_row = None, 0
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise RuntimeError(f"exited with {self.process.returncode}: {self.log()}")
            try:
                last = self.get(path).status
            except OSError as error:
                last = error
            in_a_row = in_a_row + 1 if last == status else 0
            if in_a_row == 12:
                return
            if in_a_row == 0:
                time.sleep(0.02)
        raise RuntimeError(f"{path} is {last}, not {status}: {self.log()}")

    def await_log(self, pattern, seconds=5, start=0):
        """The match, once the log past start holds it."""
        deadline = time.monotonic() + seconds
        while True:
            found = re.search(pattern, self.log()[start:])
            if found:
                return found
            if time.monotonic() > deadline:
                raise AssertionError(f"no {pattern!r} in the log: {self.log()[start:]}")
            time.sleep(0.02)

    def children(self):
        """name -> pids, by the name each role gives itself; one just born is waited for."""
        deadline = time.monotonic() + 5
        while True:
            found = self._children_now()
            if all(name.startswith("colizig-") for name in found) or time.monotonic() > deadline:
                return found
            time.sleep(0.01)

    def _children_now(self):
        found = {}
        for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
            try:
                text = stat.read_text()
            except OSError:
                continue
            pid, rest = text.split(" ", 1)
            name = rest[1:rest.rindex(")")]
            if int(rest[rest.rindex(")") + 2:].split()[1]) == self.pid:
                found.setdefault(name, []).append(int(pid))
        return found

    def signal(self, number):
        self.process.send_signal(number)

    def await_requests(self, n, seconds=10):
        """Until the engine has n requests, running and waiting."""
        deadline = time.monotonic() + seconds
        while True:
            with Admin(self) as admin:
                stats = admin.data("stats")
            if stats["running"] + stats["waiting"] == n:
                return
            assert time.monotonic() < deadline, f"{stats} is not {n} requests"
            time.sleep(0.02)

    def stop(self, seconds=20):
        """SIGTERM, then the exit status. A second one would end the drain at once."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.wait(seconds)

    def wait(self, seconds=20):
        """The exit status; a daemon that does not stop is killed and fails the test."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"did not stop within {seconds} s: {self.log()}") from None
        finally:
            self.log_file.close()
            assert "Sanitizer" not in self.log() and "runtime error:" not in self.log(), self.log()

    # ---- requests ----

    def connect(self, timeout=10, address=None):
        """From an address of its own when one is given: 127.0.0.2 and the like are ours too."""
        return Connection(self.port, timeout, address)

    def request(self, method, path, body=None, headers=None, timeout=20):
        with self.connect(timeout) as connection:
            connection.send(method, path, body, headers)
            return connection.answer(method)

    def get(self, path, **more):
        return self.request("GET", path, **more)

    def post(self, path, body, **more):
        return self.request("POST", path, body, **more)

    def chat(self, content="hello", timeout=20, **fields):
        return self.post("/v1/chat/completions", chat_body(content, **fields), timeout=timeout)

    def complete(self, prompt="hello", timeout=20, **fields):
        return self.post("/v1/completions", {"prompt": prompt, "temperature": 0, **fields},
                         timeout=timeout)

    def stream(self, content="hello", path="/v1/chat/completions", timeout=10, **fields):
        """An open stream, its headers read."""
        body = chat_body(content, **fields) if "chat" in path else \
            {"prompt": content, "temperature": 0, **fields}
        connection = self.connect(timeout)
        connection.send("POST", path, {**body, "stream": True})
        return Stream(connection)


def environment():
    """A worker gives up the file system, and with it /proc, which the search for leaks at its
    end would need; the unit tests search."""
    return dict(os.environ, ASAN_OPTIONS="detect_leaks=0:abort_on_error=0")


def socket_inodes(pid):
    inodes = set()
    try:
        for fd in os.listdir(f"/proc/{pid}/fd"):
            try:
                target = os.readlink(f"/proc/{pid}/fd/{fd}")
            except OSError:
                continue
            if target.startswith("socket:["):
                inodes.add(target[8:-1])
    except OSError:
        pass
    return inodes


def chat_body(content="hello", **fields):
    return {"messages": [{"role": "user", "content": content}], "temperature": 0, **fields}


class Answer:
    def __init__(self):
        self.status, self.headers, self.body, self.closed = 0, {}, b"", False

    def json(self):
        return json.loads(self.body.decode())

    def error(self):
        """The error object, its shape checked."""
        error = self.json()["error"]
        assert isinstance(error["message"], str) and error["message"]
        assert isinstance(error["type"], str)
        assert error["param"] is None or isinstance(error["param"], str)
        assert error["code"] is None or isinstance(error["code"], str)
        return error

    def text(self):
        choice = self.json()["choices"][0]
        return choice["message"]["content"] if "message" in choice else choice["text"]

    def finish(self):
        return self.json()["choices"][0]["finish_reason"]

    def usage(self):
        return self.json()["usage"]


class Connection:
    """HTTP/1.1 on a socket; framing errors are exceptions."""

    def __init__(self, port, timeout=10, address=None):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout,
                                               (address, 0) if address else None)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.port, self.buffer = port, b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.socket.close()

    def send(self, method, path, body=None, headers=None):
        if isinstance(body, (dict, list)):
            body = json.dumps(body)
        if isinstance(body, str):
            body = body.encode()
        lines = {"Host": f"127.0.0.1:{self.port}"}
        if body is not None:
            lines |= {"Content-Type": "application/json", "Content-Length": str(len(body))}
        lines |= headers or {}
        head = f"{method} {path} HTTP/1.1\r\n"
        head += "".join(f"{k}: {v}\r\n" for k, v in lines.items() if v is not None)
        self.socket.sendall(head.encode("latin-1") + b"\r\n" + (body or b""))

    def send_raw(self, data):
        self.socket.sendall(data)

    def _fill(self):
        data = self.socket.recv(65536)
        if not data:
            raise ConnectionError(f"closed; unread: {self.buffer[:200]!r}")
        self.buffer += data

    def _line(self):
        while b"\r\n" not in self.buffer:
            self._fill()
        line, self.buffer = self.buffer.split(b"\r\n", 1)
        return line

    def _take(self, n):
        while len(self.buffer) < n:
            self._fill()
        data, self.buffer = self.buffer[:n], self.buffer[n:]
        return data

    def head(self):
        answer = Answer()
        while True:
            version, status, *_ = self._line().split(b" ")
            assert version in (b"HTTP/1.1", b"HTTP/1.0")
            headers = {}
            while line := self._line():
                name, value = line.decode("latin-1").split(":", 1)
                headers[name.lower()] = value.strip()
            if int(status) >= 200:
                answer.status, answer.headers = int(status), headers
                answer.closed = headers.get("connection", "").lower() == "close"
                return answer

    def chunk(self):
        """One chunk of a chunked body, b"" for the last."""
        size = int(self._line(), 16)
        data = self._take(size)
        assert self._take(2) == b"\r\n"
        return data

    def answer(self, method="GET"):
        answer = self.head()
        if method == "HEAD" or answer.status == 204:
            return answer
        if "content-length" in answer.headers:
            answer.body = self._take(int(answer.headers["content-length"]))
        else:
            assert answer.headers.get("transfer-encoding") == "chunked"
            while data := self.chunk():
                answer.body += data
        return answer

    def at_end(self):
        """True when the other side closed and nothing is left to read."""
        try:
            return not self.buffer and self.socket.recv(1) == b""
        except ConnectionResetError:
            return True


class Stream:
    """Server-sent events, each line checked."""

    def __init__(self, connection):
        self.connection = connection
        self.answer = connection.head()
        self.events, self.pending, self.done, self.broken = [], b"", False, False
        if self.answer.status != 200:
            self.answer.body = connection._take(int(self.answer.headers["content-length"]))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.connection.close()

    def next(self):
        """The next event's object, None after the end."""
        while b"\n\n" not in self.pending:
            try:
                data = self.connection.chunk()
            except ConnectionError:
                self.broken = True
                return None
            if not data:
                assert self.pending == b"", f"cut event {self.pending!r}"
                return None
            self.pending += data
        event, self.pending = self.pending.split(b"\n\n", 1)
        line = event.decode("utf-8")  # every line is whole characters
        assert line.startswith("data: ") and "\n" not in line and "\r" not in line, line
        assert not self.done, f"after [DONE]: {line}"
        if line == "data: [DONE]":
            self.done = True
            return self.next()
        self.events.append(json.loads(line[6:]))
        return self.events[-1]

    def read(self, n):
        """Up to n events more."""
        for _ in range(n):
            if self.next() is None:
                break
        return self

    def rest(self):
        while self.next() is not None:
            pass
        return self

    def choices(self):
        return [choice for event in self.events for choice in event.get("choices", [])]

    def text(self, index=0):
        return "".join(choice["delta"].get("content", "") if "delta" in choice else choice["text"]
                       for choice in self.choices() if choice["index"] == index)

    def finish(self, index=0):
        reasons = [choice["finish_reason"] for choice in self.choices()
                   if choice["index"] == index and choice["finish_reason"]]
        assert len(reasons) <= 1
        return reasons[0] if reasons else None
