"""The command line of ssh: what it forbids, and that nothing of a hosts file is read as an option or by a shell."""

from __future__ import annotations

import subprocess

import pytest

from warpwave.config.hosts import Host
from warpwave.engines.ssh.command import Place, checked, place_in, place_of, ssh, surroundings
from warpwave.errors import ConfigError


def test_a_leg_becomes_one_command():
    """The destination is the last word before the command, and what weakens a connection is switched off."""
    host = Host(name="cuda", target="cuda", ssh="me@h100-01", ssh_config="/home/me/own config", engine="podman", socket="/run/x.sock")
    words = ssh(place_of(host), "-L", "/tmp/a:/run/x.sock")
    settings = {words[place + 1] for place, word in enumerate(words) if word == "-o"}

    assert words[0:4] == ["ssh", "-T", "-F", "/home/me/own config"]
    assert words[-6:] == ["-L", "/tmp/a:/run/x.sock", "--", "me@h100-01", "sh", "-s"]
    assert {"BatchMode=yes", "ForwardAgent=no", "ForwardX11=no", "ControlMaster=no", "ConnectTimeout=10"} <= settings
    assert not [setting for setting in settings if "HostKey" in setting or "KnownHosts" in setting]


@pytest.mark.parametrize(
    "name", ["-oProxyCommand=touch /tmp/x", "user@-oProxyCommand=x", "a b", "a;id", "$(id)", "`id`", "a\nb", "", "a|b", "'a'", "ssh://-x"]
)
def test_what_is_no_destination_never_reaches_ssh(name):
    """An option, a shell's text or two words are refused."""
    with pytest.raises(ConfigError, match="no destination for ssh"):
        checked(name)


@pytest.mark.parametrize(
    ("address", "destination", "socket"),
    [
        ("ssh://h100", "h100", ""),
        ("ssh://me@h100", "me@h100", ""),
        ("ssh://me@h100:2222", "ssh://me@h100:2222", ""),
        ("ssh://h100/run/user/1000/docker.sock", "h100", "/run/user/1000/docker.sock"),
    ],
)
def test_docker_host_names_a_machine(address, destination, socket):
    """With its user, port and socket."""
    place = place_in(address)

    assert (place.destination, place.socket, place.engine) == (destination, socket, "docker")


@pytest.mark.parametrize("address", ["ssh://", "ssh://me:hunter2@h100", "tcp://h100", "ssh://h100:port", "ssh://-oProxyCommand=x"])
def test_docker_host_without_a_machine(address):
    """The message never repeats a password."""
    with pytest.raises(ConfigError) as refused:
        place_in(address)

    assert "hunter2" not in str(refused.value)


def test_ssh_reads_the_command_as_it_is_meant(tmp_path):
    """OpenSSH itself says what it makes of the words."""
    (tmp_path / "config").write_text(
        "Host card\n HostName 192.0.2.1\n ForwardAgent yes\n LocalCommand touch /tmp/x\n PermitLocalCommand yes\n"
    )
    words = ssh(Place("card", "card", configuration=str(tmp_path / "config")))
    try:
        said = subprocess.run([words[0], "-G", *words[1:]], capture_output=True, text=True, env=surroundings()).stdout
    except FileNotFoundError:
        pytest.skip("there is no ssh on this machine")
    settings = dict(line.split(" ", 1) for line in said.splitlines() if " " in line)

    assert (settings["hostname"], settings["batchmode"], settings["forwardagent"]) == ("192.0.2.1", "yes", "no")
    assert (settings["permitlocalcommand"], settings["controlmaster"], settings["stricthostkeychecking"]) == ("no", "false", "ask")


def test_nothing_asks_for_a_password(monkeypatch):
    """No window is opened, and messages are in the language that warpwave reads."""
    monkeypatch.setenv("SSH_ASKPASS", "/usr/bin/ask")
    monkeypatch.setenv("SSH_ASKPASS_REQUIRE", "force")
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")

    assert {name: value for name, value in surroundings().items() if name.startswith(("SSH_ASK", "LC_"))} == {"LC_ALL": "C"}
