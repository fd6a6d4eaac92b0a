"""scripts/demo as a newcomer meets it, in a tree of its own where everything is already built."""
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import time
import urllib.request

import pytest

import server

LONGEST = 90  # seconds: a sanitizer on a busy machine


def tree(root):
    """What the demo needs of a clone; make finds nothing to do."""
    (root / "scripts").mkdir(parents=True)
    (root / "build").mkdir()
    (root / "tests/data").mkdir(parents=True)
    shutil.copy(server.ROOT / "scripts/demo", root / "scripts")
    (root / "scripts/packages").write_text("#!/bin/sh\n")
    (root / "scripts/packages").chmod(0o755)
    (root / "Makefile").write_text("all: ;\n")
    for name in ("colizigd", "colizigctl"):
        (root / "build" / name).symlink_to(server.BUILD / name)
    (root / "tests/data/models").symlink_to(server.ROOT / "tests/data/models")
    return root


@pytest.fixture
def clone(tmp_path):
    return tree(tmp_path / "clone")


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def demo(root, *args):
    return subprocess.run([root / "scripts/demo", *map(str, args)], capture_output=True, text=True,
                          timeout=LONGEST, check=False)


def conversation(text):
    """[(question, answer)] as it is printed."""
    return re.findall(r"^> (.+)\n(.*)$", text, re.MULTILINE)


def test_the_demo_holds_the_conversation_that_the_readme_shows(clone):
    said = demo(clone, "--once", "--port", free_port())
    assert (said.returncode, said.stderr) == (0, "")
    shown = (server.ROOT / "README.md").read_text("utf-8")
    assert len(conversation(said.stdout)) == 5
    assert conversation(said.stdout) == conversation(shown)


def test_a_clone_may_lie_deep_and_be_named_with_blanks(tmp_path):
    said = demo(tree(tmp_path / ("deep" * 30) / "a clone"), "--once", "--port", free_port())
    assert (said.returncode, said.stderr) == (0, "")


def test_a_port_in_use_is_told_whatever_an_earlier_run_logged(clone):
    (clone / "build/demo.log").write_text("engine: ready listen=127.0.0.1:8080\n")
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        said = demo(clone, "--once", "--port", other.getsockname()[1])
    assert said.returncode == 1
    assert "another program has this port" in said.stderr
    assert "colizigd answers" not in said.stdout


@pytest.mark.parametrize("args, word", [
    (["--port", "0"], "'0'"), (["--port", "65536"], "'65536'"), (["--port", "-1"], "'-1'"),
    (["--port", "http"], "'http'"), (["--port"], "needs a number"), (["--model", "x"], "'x'"),
    (["--model"], "needs"), (["--frob"], "--frob")])
def test_wrong_flags_are_named_before_anything_is_built(clone, args, word):
    said = demo(clone, *args)
    assert (said.returncode, said.stdout) == (2, "")
    assert said.stderr.startswith("demo: ") and word in said.stderr


def test_a_build_folder_that_cannot_be_written_is_named(clone):
    shutil.rmtree(clone / "build")
    (clone / "build").write_text("a file, which stops root too\n")
    said = demo(clone, "--once")
    assert said.returncode == 1
    assert said.stderr == f"demo: {clone}/build cannot be written\n"


def heed_hangups():
    """Under nohup they are ignored, and no shell can change that for itself."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_what_ends_the_demo_ends_its_daemon(clone, sent):
    port = free_port()
    with subprocess.Popen([clone / "scripts/demo", "--port", str(port)], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, start_new_session=True,
                          preexec_fn=heed_hangups) as running:
        try:
            for line in running.stdout:
                if line.startswith("Serving until"):
                    break
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=20) as ready:
                assert ready.status == 200
            if sent == signal.SIGINT:
                os.killpg(running.pid, sent)  # as Ctrl-C does
            else:
                running.send_signal(sent)
            rest, _ = running.communicate(timeout=LONGEST)
            assert "Traceback" not in rest
        finally:
            if running.poll() is None:
                os.killpg(running.pid, signal.SIGKILL)
    assert members(running.pid) == []


def members(group):
    """Who is still there of a process group; given a moment to go."""
    for _ in range(50):
        left = []
        for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if int(fields[2]) == group and fields[0] != "Z":
                left.append(stat.parent.name)
        if not left:
            break
        time.sleep(0.1)
    return left
