"""What is asked of another machine and made of its answers. A script stands in for ssh; a real server is in tests/integration."""

import stat
import subprocess

import pytest

from warpwave.config.hosts import Host
from warpwave.engines.choose import load_engine
from warpwave.engines.protocol import Answer
from warpwave.engines.ssh import command as ask
from warpwave.engines.ssh import tunnel
from warpwave.engines.ssh.command import Place, There, answer_of, checked, look, not_reached, place_in, place_of, surroundings
from warpwave.engines.ssh.command import ssh as ssh_command
from warpwave.engines.ssh.tunnel import opened
from warpwave.errors import ConfigError, InfrastructureError, UnreachableError

PLACE = Place("card", "card")


@pytest.fixture
def ssh(tmp_path, monkeypatch):
    """Put a script of this text in the place of ssh."""

    def ssh(text: str) -> None:
        path = tmp_path / "bin" / "ssh"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", f"{path.parent}:/usr/bin:/bin")

    return ssh


SAID = {
    "Host key verification failed.": "host key is unknown",
    "WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!": "host key is unknown",
    "me@card: Permission denied (publickey).": "refused this user's keys",
    "ssh: Could not resolve hostname card: Name or service not known": "No machine has this name",
    "ssh: connect to host card port 22: Connection refused": "is off or hangs",
    "Connection timed out during banner exchange": "is off or hangs",
    "/home/me/.ssh/config: line 3: Bad configuration option: foo": "cannot read its configuration",
    "something new": "ended before the machine answered",
}


@pytest.mark.parametrize(("said", "meaning"), SAID.items())
def test_what_ssh_says_is_explained(ssh, said, meaning):
    ssh(f"echo '{said}' >&2; exit 255")
    with pytest.raises(UnreachableError) as refused:
        look(PLACE)

    assert "card cannot be reached with ssh: " in refused.value.happened
    assert meaning in refused.value.meaning
    assert "{" not in refused.value.remedy


def test_a_machine_cannot_write_to_the_terminal():
    error = not_reached(PLACE, "\x1b[2Jevil\x07 " + "x" * 10_000)

    assert error.happened.isprintable()
    assert len(error.happened) < 400


def test_a_machine_that_hangs_is_given_up(ssh, monkeypatch):
    monkeypatch.setattr(ask, "ANSWER_S", 0.2)
    ssh("exec sleep 30")
    with pytest.raises(UnreachableError, match="did not answer within"):
        ask.talk(PLACE, "echo", 0.2)


def test_no_ssh_at_all(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InfrastructureError, match="no program `ssh`"):
        look(PLACE)


def test_docker_host_takes_the_same_way(ssh, monkeypatch):
    """Where Docker would be used, and not where the hosts file names an engine of this machine."""
    ssh("echo 'Host key verification failed.' >&2; exit 255")
    monkeypatch.setenv("DOCKER_HOST", "ssh://me@h100")
    for host in (None, Host(name="cpu", target="cpu")):
        with pytest.raises(UnreachableError, match="h100 cannot be reached with ssh"):
            load_engine("docker", host)
    with pytest.raises(InfrastructureError, match=r"Docker cannot be used at unix:///no\.sock"):
        load_engine("docker", Host(name="cpu", target="cpu", socket="/no.sock"))


FOUND = "ww:uid 1000\nww:user me\nww:files 4096\nww:processes 500\n"


@pytest.mark.parametrize(
    ("said", "there"),
    [
        ("ww:socket /run/docker.sock\nww:end", There(1000, 4096, 500, "/run/docker.sock")),
        ("ww:start /run/user/1000\nww:end", There(1000, 4096, 500, start="/run/user/1000")),
        ("ww:socket /s\nww:node 44 /dev/kfd\nww:node x y\nww:end", There(1000, 4096, 500, "/s", nodes=(("/dev/kfd", 44),))),
    ],
)
def test_an_answer_is_read(ssh, said, there):
    ssh(f"cat >/dev/null; printf 'Welcome!\\n{FOUND}{said}\\n'".replace("\n", "\\n"))

    assert look(PLACE) == there


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("ww:refused /var/run/docker.sock\nww:end", "me may not use the engine at /var/run/docker.sock on card"),
        ("ww:program docker\nww:end", "card has no container engine that runs (docker is installed)"),
        ("ww:socket /run/a:/etc/passwd\nww:end", "card has no container engine"),
        ("", "card does not run commands"),
    ],
)
def test_an_answer_that_is_of_no_use(ssh, said, words):
    """Which of them it is decides what to do; a path with a colon would mean another one to ssh."""
    ssh(f"cat >/dev/null; printf '{FOUND}{said}\\n'".replace("\n", "\\n"))
    with pytest.raises(InfrastructureError) as refused:
        look(PLACE)

    assert words in refused.value.happened
    assert not isinstance(refused.value, UnreachableError)


def test_values_of_the_hosts_file_are_no_shell_text(ssh, tmp_path):
    touched = tmp_path / "touched"
    ssh("sh -s")
    hostile = f"/x'; touch {touched}; echo '$(touch {touched})`touch {touched}`"
    with pytest.raises(InfrastructureError, match="no socket of an engine at"):
        look(Place("card", "card", engine=hostile, socket=hostile), [f"/dev/$(touch {touched})", f"/dev/x; touch {touched}"])

    assert not touched.exists()


def test_device_nodes_are_found_by_their_pattern(ssh, tmp_path):
    (tmp_path / "sock").touch()
    ssh("sh -s")
    found = look(Place("card", "card", socket=str(tmp_path / "sock")), ["/dev/nul*", "/dev/none*", "/etc/pass*"])

    assert found.nodes == (("/dev/null", 0),)
    assert found.socket == str(tmp_path / "sock")


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        (["printf", "a b\\n%s", "it's"], Answer("a b\nit's")),
        (["sh", "-c", "echo broken; exit 3"], Answer("broken\n", "refused")),
        (["no-such-tool"], Answer(trouble="absent")),
    ],
)
def test_a_question_of_the_doctor_is_asked_there(ssh, command, answer):
    """The remote shell gets each word as one word, and the exit code comes back."""
    ssh("sh -s")
    found = answer_of(PLACE, command, 10.0)

    assert found.trouble == answer.trouble
    assert found.text == answer.text or (answer.trouble == "absent" and "not found" in found.text)


def test_a_tunnel_that_forwards_nothing(ssh):
    """The other side is ready, and the socket of this side is not there: forwarding is forbidden, or the path is taken."""
    ssh("sh -s")
    with pytest.raises(InfrastructureError, match="cannot be reached through ssh"):
        opened(PLACE, There(0, -1, -1, socket="/run/x.sock"))


def test_a_tunnel_ends_with_its_client(ssh, tmp_path):
    """The shell at the other end waits for the end of its input, so it ends however the client did."""
    ssh(f'for word; do case $word in /*:*) : > "${{word%%:*}}" ;; esac; done; echo $$ > {tmp_path}/pid; sh -s; echo gone > {tmp_path}/gone')
    made = opened(PLACE, There(0, -1, -1, socket="/run/x.sock"))
    assert not made.is_broken()
    made.close()

    assert made.is_broken()
    assert (tmp_path / "gone").read_text() == "gone\n"
    assert not made.path.parent.exists()


def test_a_tunnel_is_repaired(ssh):
    ssh('for word; do case $word in /*:*) : > "${word%%:*}" ;; esac; done; sh -s')
    made = opened(PLACE, There(0, -1, -1, socket="/run/x.sock"))
    path, process = made.path, made._process
    assert isinstance(process, subprocess.Popen)
    process.kill()
    process.wait()
    assert made.is_broken()
    made.open()

    assert not made.is_broken()
    assert made.path == path
    made.close()


def test_a_machine_that_is_never_ready(ssh, monkeypatch):
    monkeypatch.setattr(tunnel, "ANSWER_S", 0.2)
    ssh("exec sleep 30")
    with pytest.raises(UnreachableError, match="did not answer within"):
        opened(PLACE, There(0, -1, -1, socket="/run/x.sock"))


# The command line of ssh: what it forbids, and that nothing of a hosts file is read as an option or by a shell.


def test_a_leg_becomes_one_command():
    """The destination is the last word before the command, and what weakens a connection is switched off."""
    host = Host(name="cuda", target="cuda", ssh="me@h100-01", ssh_config="/home/me/own config", engine="podman", socket="/run/x.sock")
    words = ssh_command(place_of(host), "-L", "/tmp/a:/run/x.sock")
    settings = {words[place + 1] for place, word in enumerate(words) if word == "-o"}

    assert words[0:4] == ["ssh", "-T", "-F", "/home/me/own config"]
    assert words[-6:] == ["-L", "/tmp/a:/run/x.sock", "--", "me@h100-01", "sh", "-s"]
    assert {"BatchMode=yes", "ForwardAgent=no", "ForwardX11=no", "ControlMaster=no", "ConnectTimeout=10"} <= settings
    assert not [setting for setting in settings if "HostKey" in setting or "KnownHosts" in setting]


@pytest.mark.parametrize(
    "name", ["-oProxyCommand=touch /tmp/x", "user@-oProxyCommand=x", "a b", "a;id", "$(id)", "`id`", "a\nb", "", "a|b", "'a'", "ssh://-x"]
)
def test_what_is_no_destination_never_reaches_ssh(name):
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
    place = place_in(address)

    assert (place.destination, place.socket, place.engine) == (destination, socket, "docker")


@pytest.mark.parametrize("address", ["ssh://", "ssh://me:hunter2@h100", "tcp://h100", "ssh://h100:port", "ssh://-oProxyCommand=x"])
def test_docker_host_without_a_machine(address):
    with pytest.raises(ConfigError) as refused:
        place_in(address)

    assert "hunter2" not in str(refused.value)


def test_ssh_reads_the_command_as_it_is_meant(tmp_path):
    (tmp_path / "config").write_text(
        "Host card\n HostName 192.0.2.1\n ForwardAgent yes\n LocalCommand touch /tmp/x\n PermitLocalCommand yes\n"
    )
    words = ssh_command(Place("card", "card", configuration=str(tmp_path / "config")))
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
