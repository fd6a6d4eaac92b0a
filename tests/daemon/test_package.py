"""make install, make uninstall and the Debian package: what they put down, keep and take away."""
import gzip
import hashlib
import json
import os
import re
import shutil
import stat
import subprocess

import pytest

import machine as machines
import server as daemon
from machine import until

pytestmark = pytest.mark.slow

PORT = 18401
CONFIG = "/etc/colizig/colizigd.yaml"
UNITS = ["colizigd.service", "colizigd-http.socket", "colizigd-admin.socket"]


def make(*arguments):
    subprocess.run(["make", "-s", f"B={os.path.relpath(daemon.BUILD, daemon.ROOT)}",
                    *arguments], check=True, cwd=daemon.ROOT,
                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, timeout=90)


def files(root):
    return {str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir()}


# ---- make install ----

@pytest.mark.parametrize("prefix", ["/usr/local", "/opt/colizig"], ids=["local", "opt"])
def test_install_puts_down_everything_and_uninstall_takes_all_but_settings(tmp_path, prefix):
    place = prefix.removeprefix("/")
    make("install", f"DESTDIR={tmp_path}", f"PREFIX={prefix}")
    there = files(tmp_path)
    wanted = {"sbin/colizigd", "bin/colizigctl", "lib/sysusers.d/colizigd.conf",
              "lib/tmpfiles.d/colizigd.conf", "share/man/man8/colizigd.8",
              "share/man/man1/colizigctl.1", "share/man/man5/colizigd.yaml.5",
              "share/doc/colizig/systemd.md", "share/doc/colizig/LICENSE",
              "share/doc/colizig/examples/colizigd.yaml",
              "share/doc/colizig/examples/no-network.conf"}
    wanted |= {f"lib/systemd/system/{unit}" for unit in UNITS}
    assert {f"{place}/{path}" for path in wanted} | {CONFIG[1:]} <= there
    for page in (daemon.ROOT / "docs").glob("*.[1-8]"):
        assert f"{place}/share/man/man{page.suffix[1:]}/{page.name}" in there
    unit = (tmp_path / place / "lib/systemd/system/colizigd.service").read_text()
    assert f"\nExecStart={prefix}/sbin/colizigd --config {CONFIG}\n" in unit
    for path in there:
        mode = (tmp_path / path).stat().st_mode & 0o7777
        assert mode == (0o755 if "bin/" in path else 0o644), path

    (tmp_path / CONFIG[1:]).write_text("# mine\n")
    make("install", f"DESTDIR={tmp_path}", f"PREFIX={prefix}")
    assert (tmp_path / CONFIG[1:]).read_text() == "# mine\n"
    make("uninstall", f"DESTDIR={tmp_path}", f"PREFIX={prefix}")
    assert files(tmp_path) == {CONFIG[1:]}
    assert (tmp_path / CONFIG[1:]).read_text() == "# mine\n"


# ---- the package ----

@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """The package, and a directory with what is in it."""
    if not shutil.which("dpkg-shlibdeps"):
        pytest.skip("needs dpkg-dev")
    make("deb")
    version = re.search(r"(?m)^VERSION := (\S+)", (daemon.ROOT / "Makefile").read_text())[1]
    (found,) = daemon.BUILD.glob(f"colizig_{version}-1_*.deb")
    tree = tmp_path_factory.mktemp("package") / "tree"
    subprocess.run(["dpkg-deb", "-R", found, tree], check=True, timeout=30)
    return found, tree


def control(tree):
    return dict(re.findall(r"(?m)^([A-Z][\w-]+): (.*)$", (tree / "DEBIAN/control").read_text()))


def test_the_package_is_what_debian_expects_of_one(package):
    found, tree = package
    about = control(tree)
    assert about["Package"] == "colizig" and about["Version"].endswith("-1")
    needed = re.findall(r"NEEDED\s+(lib[a-z0-9-]+)",
                        subprocess.run(["objdump", "-p", tree / "usr/sbin/colizigd"], check=True,
                                       capture_output=True, text=True, timeout=30).stdout)
    for library in set(needed) - {"libm"}:  # each comes with a package of about its name
        assert library.rstrip("0123456789-") in about["Depends"] or \
            library == "libc", (library, about["Depends"])
    assert "libc6 (>=" in about["Depends"] and "systemd" in about["Depends"]

    doc = tree / "usr/share/doc/colizig"
    assert "License: Expat" in (doc / "copyright").read_text()
    with gzip.open(doc / "changelog.Debian.gz", "rt") as text:
        assert text.readline().startswith(f"colizig ({about['Version']}) ")
    assert (tree / "DEBIAN/conffiles").read_text() == CONFIG + "\n"
    for page in "man8/colizigd.8.gz", "man1/colizigctl.1.gz", "man5/colizigd.yaml.5.gz":
        assert (tree / "usr/share/man" / page).exists()
    for path in tree.rglob("*"):
        assert not path.stat().st_mode & (stat.S_IWOTH | stat.S_IWGRP | stat.S_ISUID), path
        assert "/usr/local" not in str(path)
    assert b"/usr/local" not in (tree / "usr/lib/systemd/system/colizigd.service").read_bytes()
    sums = dict(reversed(line.split("  ", 1)) for line in
                (tree / "DEBIAN/md5sums").read_text().splitlines())
    assert set(sums) == {path for path in files(tree) if path.startswith("usr/")}
    for path, md5 in sums.items():
        assert hashlib.md5((tree / path).read_bytes()).hexdigest() == md5
    owners = subprocess.run(["dpkg-deb", "-c", found], check=True, capture_output=True, text=True,
                            timeout=30).stdout
    assert all(" root/root " in line for line in owners.splitlines())


def higher(tree, workdir, revision, settings=None):
    """The package again, as a higher version, perhaps with other default settings."""
    again = workdir / f"tree-{revision}"
    shutil.copytree(tree, again)
    text = (again / "DEBIAN/control").read_text()
    (again / "DEBIAN/control").write_text(re.sub(r"(?m)^(Version: .*)-1$", rf"\1-{revision}", text))
    if settings:
        (again / CONFIG[1:]).write_text(settings)
    made = workdir / f"colizig-{revision}.deb"
    subprocess.run(["dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "-b", again, made],
                   check=True, stdout=subprocess.DEVNULL, timeout=60)
    return made


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("machine")
    (workdir / "tree").mkdir()
    one = machines.Machine(workdir, workdir / "tree", daemon.MODELS)
    yield one
    one.close()


def test_the_life_of_a_package(machine, package, tmp_path):
    """Installed, configured, upgraded twice, removed, purged."""
    found, tree = package

    def install(deb, *flags):
        shutil.copy(deb, machine.path("/run/machine/colizig.deb"))
        # The manual's index, which other packages' triggers make, takes longer than all the rest.
        return machine.run("dpkg", "--no-triggers", *flags, "-i", "/run/machine/colizig.deb")

    def service(*names):
        return machine.show("colizigd.service", *names)

    install(found)
    assert service("ActiveState", "UnitFileState") == \
        {"ActiveState": "inactive", "UnitFileState": "disabled"}, "there is no model yet"
    for socket in UNITS[1:]:
        assert machine.show(socket, "UnitFileState") == "disabled"
    uid = int(machine.run("id", "-u", "colizig").stdout)
    for place in "/var/lib/colizig", "/run/colizig":
        assert machine.path(place).stat().st_uid == uid
    assert machine.run("dpkg", "--verify", "colizig").stdout == ""

    edited = json.dumps({"model": {"dir": "/srv/models/demo"}, "memory": {"ram": "512MiB"},
                         "http": {"listen": [f"127.0.0.1:{PORT}"]}})
    machine.write(CONFIG, edited)
    drop_in = "/etc/systemd/system/colizigd.service.d/mine.conf"
    machine.write(drop_in, "[Service]\nNice=5\n")
    machine.systemctl("enable", "--now", UNITS[2])  # sockets first, as documented
    machine.systemctl("enable", "--now", UNITS[0])
    client = machine.client(PORT)
    assert client.chat("hello", max_tokens=2).status == 200
    main = service("MainPID")

    # The shipped settings are as before: nothing to ask, the edit stays, the new version runs.
    install(higher(tree, tmp_path, 2))
    assert machine.path(CONFIG).read_text() == edited
    assert machine.path(drop_in).read_text() == "[Service]\nNice=5\n"
    assert service("ActiveState", "UnitFileState") == \
        {"ActiveState": "active", "UnitFileState": "enabled"}
    assert service("MainPID") not in (main, "0")
    assert client.chat("hello", max_tokens=2).status == 200

    # They changed too: the edit still stays unless the administrator says otherwise.
    machine.systemctl("stop", *reversed(UNITS))
    install(higher(tree, tmp_path, 3, "# other defaults\n"), "--force-confdef")
    assert machine.path(CONFIG).read_text() == edited
    assert machine.path(CONFIG + ".dpkg-dist").read_text() == "# other defaults\n"
    assert service("ActiveState") == "inactive", "what was stopped stays so"

    machine.write("/var/lib/colizig/kept", "")
    machine.systemctl("start", *UNITS[:1])
    machine.run("dpkg", "--no-triggers", "-r", "colizig")
    until(lambda: not machine.unit_pids())
    assert service("LoadState") == "not-found"
    assert not machine.path("/etc/systemd/system/multi-user.target.wants/colizigd.service").exists()
    assert not machine.path("/usr/sbin/colizigd").exists()
    assert machine.path(CONFIG).read_text() == edited
    assert machine.path("/var/lib/colizig/kept").exists()

    machine.run("dpkg", "--no-triggers", "-P", "colizig")
    assert not machine.path("/etc/colizig").exists()
    assert not machine.path("/var/lib/colizig").exists()
    assert machine.path(drop_in).exists()
    assert machine.run("id", "-u", "colizig").returncode == 0, "its number is not given away"
