"""Every process of a running daemon is narrowed, and all that it must do works even so."""
import json
import os
import pathlib
import re
import signal
import socket

import pytest

import server

# What seccomp and Landlock the machine has, processes say themselves; where it has none, these
# tests have nothing to look at.
CHILDREN = ("colizig-worker", "colizig-door")
PROMPT = [5, 6, 7, 8] * 8


def status_of(pid):
    """Fields of /proc/PID/status."""
    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    return dict(line.split(":\t", 1) for line in lines if ":\t" in line)


def limits_of(pid):
    text = pathlib.Path(f"/proc/{pid}/limits").read_text()
    return {line[:26].strip(): line[26:].split()[:2] for line in text.splitlines()[1:]}


def said(daemon):
    """What each process said in its log of its own sandbox."""
    return re.findall(r"(supervisor|worker\[\d\]|engine): .*(landlock=\S+.*)", daemon.log())


def need_seccomp(daemon):
    if "seccomp=none" in daemon.log():
        pytest.skip("this kernel or container has no filters of system calls")


def answer_of(daemon):
    answer = daemon.post("/v1/completions", {"prompt": PROMPT, "max_tokens": 8, "temperature": 0})
    assert answer.status == 200, (answer.body, daemon.log())
    return answer.text()


def ask_admin(daemon, command):
    with socket.socket(socket.AF_UNIX) as admin:
        admin.settimeout(10)
        admin.connect(str(daemon.log_path.with_name("admin.sock")))
        admin.sendall(json.dumps({"id": 1, "cmd": command}).encode() + b"\n")
        with admin.makefile() as lines:
            return json.loads(lines.readline())["data"]


def filters(pid):
    return int(status_of(pid)["Seccomp_filters"])


@pytest.fixture(scope="module")
def real(start_real):
    return start_real("tiny-fp8", http__workers=2)


def test_each_process_runs_under_a_filter_without_new_privileges(real):
    need_seccomp(real)
    assert answer_of(real)
    pids = [pid for name in CHILDREN for pid in real.children()[name]]
    assert len(pids) == 3
    for pid in [real.pid, *pids]:
        status = status_of(pid)
        assert status["Seccomp"] == "2", (pid, status)
        assert status["NoNewPrivs"] == "1"
        assert limits_of(pid)["Max core file size"] == ["0", "0"]
    # The supervisor's own, and another one on top of that in each child.
    assert {filters(pid) - filters(real.pid) for pid in pids} == {1}
    for pid in pids:
        # Every thread of the engine too, those for reading and computing included.
        for thread in pathlib.Path(f"/proc/{pid}/task").iterdir():
            assert "Seccomp:\t2" in (thread / "status").read_text()
    assert len(said(real)) == 4


def test_children_have_no_rights_of_root(real):
    for pid in real.children()["colizig-worker"]:
        assert int(status_of(pid)["CapPrm"], 16) == 0
    dac_read_search, ipc_lock = 1 << 2, 1 << 14
    for pid in real.children()["colizig-door"]:
        assert int(status_of(pid)["CapPrm"], 16) & ~(dac_read_search | ipc_lock) == 0


def test_the_supervisor_still_reads_what_its_children_hold(real):
    status = ask_admin(real, "status")
    for child in [status["engine"], *status["workers"]]:
        assert child["anonymous_bytes"] > 0 and child["descriptors"] > 0
        assert child["seccomp"] is ("seccomp=on" in real.log())
        assert child["landlock"] == int(re.search(r"engine: narrowed landlock=(\d*)",
                                                  real.log()).group(1) or 0)


# ---- nothing that is configured asks for what is refused ----

CLASSES = ("scalar", "avx2", "avx512")


def has_cpu(kernels):
    flags = pathlib.Path("/proc/cpuinfo").read_text()
    return {"scalar": True, "avx2": " avx2" in flags and " f16c" in flags,
            "avx512": " avx512vl" in flags and " avx512dq" in flags}[kernels]


def test_an_answer_is_the_same_under_every_class_of_kernels(real, start_real):
    whole = answer_of(real)
    for kernels in filter(has_cpu, CLASSES):
        daemon = start_real("tiny-fp8", http__workers=1, engine__kernels=kernels,
                            engine__threads=3, memory__expert_slots=7)
        assert answer_of(daemon) == whole
        assert daemon.stop() == 0


@pytest.mark.parametrize("settings", [{"engine__io": "buffered"}, {"memory__lock": "true"}])
def test_an_answer_is_the_same_under_every_way_of_memory_and_io(real, start_real, settings):
    try:
        daemon = start_real("tiny-fp8", http__workers=1, memory__expert_slots=7, **settings)
    except RuntimeError as why:
        if "memory.lock" in str(why) and "LimitMEMLOCK" in str(why):
            pytest.skip("this machine lets nobody lock memory")
        raise
    assert answer_of(daemon) == answer_of(real)
    assert daemon.stop() == 0


def test_a_checkpoint_of_symlinks_into_blobs_is_read(start_real, real):
    """As Hugging Face caches keep them: the blobs lie outside the folder of the model."""
    shard = next((server.MODELS / "tiny-symlinks").glob("*.safetensors"))
    assert shard.is_symlink() and shard.resolve().parent != shard.parent.resolve()
    daemon = start_real("tiny-symlinks", http__workers=1)
    assert answer_of(daemon) == answer_of(real)
    assert daemon.stop() == 0


# ---- what dies ----

def test_children_that_are_started_again_are_narrowed_too(real):
    need_seccomp(real)
    for name in CHILDREN:
        old = set(real.children()[name])
        start = len(real.log())
        os.kill(min(old), signal.SIGKILL)
        real.await_log("serving listeners" if name == "colizig-worker" else "model is loaded",
                       seconds=30, start=start)
        (fresh,) = set(real.children()[name]) - old
        assert status_of(fresh)["Seccomp"] == "2"
    real.await_status("/readyz", 200)
    assert answer_of(real)


def test_a_reload_checks_in_a_child_that_is_narrowed(real):
    start = len(real.log())
    real.signal(signal.SIGHUP)
    real.await_log("the new config|reload", seconds=20, start=start)
    assert "Bad system call" not in real.log()[start:]
    assert answer_of(real)


def test_a_refused_call_ends_the_engine_and_the_log_says_so(start_fake):
    fake = start_fake({"socket_on_text": "xyzzy", "n_tokens": 3}, http__workers=1)
    need_seccomp(fake)
    assert fake.chat("hello").status == 200
    answer = fake.chat("xyzzy")
    assert answer.status == 503
    line = fake.await_log(r"error supervisor: engine died.*").group()
    assert "Bad system call" in line and "its sandbox refused a system call" in line
    fake.await_status("/readyz", 200)
    assert fake.chat("hello").status == 200


def test_an_abort_is_still_an_abort(start_fake):
    fake = start_fake({"crash_on_text": "xyzzy"}, http__workers=1)
    assert fake.chat("xyzzy").status == 503
    fake.await_log(r"engine died signal=6 \(Aborted\)")
    assert not list(pathlib.Path("/tmp").glob("core*colizig*"))


def test_a_worker_that_is_refused_a_call_is_named(start_fake):
    fake = start_fake(http__workers=1)
    (worker,) = fake.children()["colizig-worker"]
    os.kill(worker, signal.SIGSYS)  # as the kernel would
    line = fake.await_log(r"error supervisor: worker 0 died.*").group()
    assert "Bad system call" in line
    fake.await_status("/readyz", 200)


# ---- state.dir ----

def test_the_folder_of_state_is_made(real):
    state = real.log_path.with_name("state")
    assert state.is_dir() and state.stat().st_mode & 0o007 == 0


def test_a_state_folder_that_cannot_be_made_is_told_at_start(start_fake, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RuntimeError,
                       match=r"exited with 2(.|\n)*state\.dir .*/file/state cannot be made"):
        start_fake(arguments=("--set", f"state.dir={tmp_path}/file/state"))
