"""The admin socket as a client sees it: JSON lines on a Unix socket."""
import json
import socket
import time


def admin_path(server):
    return server.log_path.parent / "admin.sock"


def until(condition, seconds=10):
    """The condition's first value that counts as true."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)
    return value


class Admin:
    def __init__(self, server, timeout=10):
        self.path = str(admin_path(server))
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(timeout)
        self.socket.connect(self.path)
        self.file = self.socket.makefile("rwb")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        try:
            self.file.close()
        except OSError:
            pass  # what was not sent yet is nobody's any more
        self.socket.close()

    def send(self, data):
        self.file.write(data)
        self.file.flush()

    def receive(self):
        line = self.file.readline()
        assert line.endswith(b"\n"), f"closed after {line!r}"
        return json.loads(line)

    def at_end(self):
        return self.file.readline() == b""

    def ask(self, command, number=7, **fields):
        """The whole answer, its shape checked."""
        self.send(json.dumps({"id": number, "cmd": command, **fields}).encode() + b"\n")
        answer = self.receive()
        assert answer["id"] == number
        if answer["ok"]:
            assert "error" not in answer
        else:
            assert set(answer["error"]) == {"kind", "message"}, answer
        return answer

    def data(self, command, **fields):
        answer = self.ask(command, **fields)
        assert answer["ok"], answer
        return answer["data"]

    def error(self, command, **fields):
        answer = self.ask(command, **fields)
        assert not answer["ok"], answer
        return answer["error"]
