"""ssh as people have it: jump hosts, kept connections, banners, talkative start-up files, other login shells, a home without room."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from own_sshd import OwnSshd, missing

from warpwave.config.hosts import Host
from warpwave.engines.remote.engine import connect
from warpwave.engines.slurm.site import Site
from warpwave.engines.ssh.command import answer_of, place_of, ssh

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(missing()), reason=missing())]
HOSTILE = ["a b", "'; touch pwned; '", "$(touch pwned)", "!!", "\\\\n\\'", "line\nline", "*", "~", "%h", "`id`", "ü", ""]
# What runs in place of the login shell, as the server would start it.
SHELLS = {
    "a plain one": 'exec /bin/sh -c "$SSH_ORIGINAL_COMMAND"',
    "one that greets": 'echo "Welcome to the cluster"; echo "quota: 7 %%" >&2; exec /bin/sh -c "$SSH_ORIGINAL_COMMAND"',
    "fish": 'exec fish -c "$SSH_ORIGINAL_COMMAND"',
    "tcsh": 'exec tcsh -c "$SSH_ORIGINAL_COMMAND"',
    "no home": 'HOME=/proc exec /bin/sh -c "$SSH_ORIGINAL_COMMAND"',
}


@pytest.fixture
def server():
    own = OwnSshd()
    yield own
    own.stop()


def leg(config: str) -> Host:
    address = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    return Host(name="cpu", target="cpu", ssh="card", ssh_config=config, socket=address.removeprefix("unix://"))


def works(host: Host) -> None:
    """The engine answers through the tunnel, and a question keeps its words."""
    engine = connect(host)
    try:
        assert engine.info()["NCPU"] > 0
    finally:
        engine.close()
    answer = answer_of(place_of(host), ["printf", "%s.", "a b", "'$HOME'"], 5.0)
    assert "a b.'$HOME'." in answer.text


@pytest.mark.parametrize("shell", SHELLS)
def test_any_login_shell_will_do(shell, engine, server):
    """Words reach a program there as they are, also where the login shell quotes in another way or prints something first."""
    if shell in ("fish", "tcsh") and not shutil.which(shell):
        pytest.skip(f"no {shell} here")
    server.start(f"ForceCommand {SHELLS[shell]}")
    host = leg(server.config)
    works(host)
    site = Site(tuple(ssh(place_of(host), command=())), "card")
    done = site.script('for word; do printf "%s\\0" "$word"; done; cat', *HOSTILE, given=b"given")

    assert done.code == 0, done.said
    assert done.text.endswith("".join(f"{word}\0" for word in HOSTILE) + "given")


CONFIGS = {
    "a command of its own": "RemoteCommand tmux attach",
    "a terminal": "RequestTTY force",
    "an agent and a forward": "ForwardAgent yes\n  LocalForward 127.0.0.1:1 127.0.0.1:1",
    "an include": "Include {folder}/more",
    "a banner": "LogLevel INFO",
    "a jump host": "ProxyJump jump",
}


@pytest.mark.parametrize("what", CONFIGS)
def test_any_configuration_will_do(what, engine, server):
    (server.folder / "banner").write_text("AUTHORIZED USERS ONLY\n")
    (server.folder / "more").write_text("  ServerAliveInterval 60\n")
    server.start(f"Banner {server.folder / 'banner'}")
    config = Path(server.config)
    lines = CONFIGS[what].format(folder=server.folder)
    jump = config.read_text().replace("Host card", "Host jump")
    config.write_text(f"{config.read_text()}  {lines}\n{jump}")
    works(leg(str(config)))


def test_a_kept_connection_is_used_and_keeps_nothing_of_ours(engine, server):
    """A site may ask for a second factor, which only the user's own connection has passed."""
    server.start()
    config = Path(server.config)
    config.write_text(f"{config.read_text()}  ControlMaster auto\n  ControlPath {server.folder}/m\n  ControlPersist yes\n")
    subprocess.run(["ssh", "-F", str(config), "-N", "-f", "card"], check=True, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        Path(server.folder / "authorized").write_text("")  # no new connection gets in
        host = leg(str(config))
        works(host)
        engine = connect(host)
        engine._tunnel._process.kill()
        engine._tunnel._process.wait()
        assert engine.info()["NCPU"] > 0  # connected anew, through the same connection
        folder = engine._tunnel.path.parent
        engine.close()
        assert not folder.exists()
        held = subprocess.run(["ss", "-lx"], capture_output=True, text=True).stdout
        assert str(folder) not in held
    finally:
        subprocess.run(["ssh", "-F", str(config), "-O", "exit", "card"], capture_output=True)


def test_docker_host_over_ssh_runs_a_package(engine, built, offline, server, tmp_path):
    """DOCKER_HOST=ssh://… takes the same way, with the user's own configuration."""
    server.start()
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "ssh"
    program.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {server.config} "$@"\n')
    program.chmod(0o755)
    (tmp_path / "ops").mkdir()
    (tmp_path / "ops" / "test_ones.py").write_text("import torch\ndef test_ones(): assert torch.ones(2).sum() == 2\n")
    socket = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock").removeprefix("unix://")
    environment = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}", "DOCKER_HOST": f"ssh://card{socket}"}
    words = ["run", "cpu", "--engine", "docker", "--kernels", "ops", "--stage", "test", "--out", "out"]
    done = subprocess.run(
        [sys.executable, "-m", "warpwave", *words, *offline],
        cwd=tmp_path,
        env={**environment, "PYTHONPATH": str(Path.cwd() / "harness")},
        capture_output=True,
        text=True,
        timeout=300,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert '"engine": "ssh"' in (tmp_path / "out" / "raw" / "cpu" / "run.json").read_text()
