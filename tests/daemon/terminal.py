"""A program on a terminal of its own, typed to and read as a person would."""
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time

import server

CTRL_C, CTRL_D = "\x03", "\x04"


def environment(home, **more):
    kept = {key: value for key, value in server.environment().items()
            if key not in ("NO_COLOR", "XDG_STATE_HOME", "XDG_RUNTIME_DIR", "LC_ALL")}
    return {**kept, "HOME": str(home), "TERM": "xterm", "LANG": "C.UTF-8", **more}


class Terminal:
    def __init__(self, command, home, columns=100, rows=40, **env):
        self.fd, other = pty.openpty()
        fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.process = subprocess.Popen(
            [str(word) for word in command], stdin=other, stdout=other, stderr=other,
            env=environment(home, **env), start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        os.close(other)
        self.pid = self.process.pid
        self.output, self.seen = "", 0  # all of it; how far expect() came
        self._raw = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(15)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        os.close(self.fd)

    def _read(self, seconds):
        """False at the end, or when nothing came."""
        if not select.select([self.fd], [], [], seconds)[0]:
            return False
        try:
            data = os.read(self.fd, 65536)
        except OSError:  # the other side is closed
            return False
        self._raw += data
        self.output = self._raw.decode("utf-8", errors="replace")
        return bool(data)

    def expect(self, pattern, seconds=20):
        """The match; what came before it is behind us."""
        deadline = time.monotonic() + seconds
        while True:
            found = re.compile(pattern, re.S).search(self.output, self.seen)
            if found:
                self.seen = found.end()
                return found
            if time.monotonic() > deadline:
                raise AssertionError(f"no {pattern!r} in {self.output[self.seen:]!r}")
            if not self._read(0.1) and self.process.poll() is not None and not self._read(0.1):
                if not re.compile(pattern, re.S).search(self.output, self.seen):
                    raise AssertionError(f"ended without {pattern!r}: "
                                         f"{self.output[self.seen:]!r}")

    def type(self, text):
        os.write(self.fd, text.encode())

    def enter(self, text):
        self.type(text + "\r")

    def resize(self, columns, rows=40):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def wait(self, seconds=20):
        """The exit status, everything read."""
        deadline = time.monotonic() + seconds
        while self.process.poll() is None and time.monotonic() < deadline:
            self._read(0.05)
        while self._read(0.05):
            pass
        return self.process.wait(1)

    def echoes(self):
        return bool(termios.tcgetattr(self.fd)[3] & termios.ECHO)
