"""Turn what ssh says into messages for the user: what happened, what it means, what to do. Makes no calls."""

from __future__ import annotations

from collections.abc import Sequence

from harness.engines.ssh.command import Place
from harness.errors import InfrastructureError, UnreachableError

_TRY = "`ssh {} true` must work without a question"
# What ssh prints, what it means, and what to do. The first that fits counts.
_CAUSES = (
    (
        ("remote host identification has changed", "host key verification failed", "host key is known", "host key has changed"),
        "The machine's host key is unknown to this user, or is not the one that it had: it was installed anew, or it is another machine.",
        "Compare the key with what the machine's administrator says, then connect once by hand: `ssh {}`. warpwave never skips this check.",
    ),
    (
        ("permission denied", "too many authentication failures", "no supported authentication", "sign_and_send_pubkey"),
        "The machine refused this user's keys. warpwave never asks for a password.",
        f"Add a key there (`ssh-copy-id {{}}`), or load yours (`ssh-add`); {_TRY}.",
    ),
    (
        ("could not resolve", "name or service not known", "temporary failure in name resolution"),
        "No machine has this name, and ~/.ssh/config gives none to it.",
        "Fix the name in hosts.yml, or add it to ~/.ssh/config.",
    ),
    (
        ("bad configuration option", "can't open user config", "unsupported option", "bad owner or permissions"),
        "ssh cannot read its configuration.",
        "Fix what the message names in ~/.ssh/config, or in the file of `ssh_config`.",
    ),
    (
        ("connection refused", "timed out", "no route", "unreachable", "connection closed", "connection reset", "kex_exchange"),
        "The machine is off or hangs, a firewall is between, or no ssh server listens there.",
        f"Check that it is up; {_TRY}.",
    ),
)


def not_reached(place: Place, said: str) -> UnreachableError:
    """Report that ssh could not connect. `said` is what it printed."""
    low = said.lower()
    words = f": {_last(said)}" if said.strip() else ""
    found = next((cause[1:] for cause in _CAUSES if any(word in low for word in cause[0])), None)
    meaning, remedy = found or ("ssh ended before the machine answered.", f"Look at what `ssh -v {{}} true` prints; {_TRY}.")
    return UnreachableError(f"{place.name} cannot be reached with ssh{words}.", meaning, remedy.replace("{}", place.destination))


def too_slow(place: Place, seconds: float) -> UnreachableError:
    """Report that the machine took the connection and then said nothing."""
    return UnreachableError(
        f"{place.name} did not answer within {seconds:g} s.",
        "It takes connections, but hangs: it is out of memory, its disk is gone, or its ssh server has stopped.",
        f"`ssh {place.destination} true` shows whether it answers later; then run again.",
    )


def no_ssh() -> InfrastructureError:
    """Report that this machine has no ssh."""
    return InfrastructureError(
        "There is no program `ssh` on this machine.",
        "warpwave reaches other machines with the system's own OpenSSH.",
        "Install it: `sudo apt-get install openssh-client`.",
    )


def no_shell(place: Place, said: str) -> InfrastructureError:
    """Report that the other side is no shell, or printed something else."""
    return InfrastructureError(
        f"{place.name} does not run commands: {_last(said) or 'it printed nothing'}.",
        "The account there has no POSIX shell, is limited to one command, or its start-up files end the session.",
        f"`echo 'echo ok' | ssh {place.destination} sh -s` must print ok.",
    )


def no_engine_there(place: Place, user: str, refused: str, programs: Sequence[str]) -> InfrastructureError:
    """Report that there is no socket to use. `refused` is one that exists; `programs` are the engines that are installed."""
    if refused:
        return InfrastructureError(
            f"{user} may not use the engine at {refused} on {place.name}.",
            "An engine runs there, but this user is not in the group that its socket belongs to.",
            f"On {place.name}: `sudo usermod -aG docker {user}`, then log in again; or use a rootless engine (`engine: podman`).",
        )
    installed = f" ({' and '.join(programs)} {'are' if len(programs) > 1 else 'is'} installed)" if programs else ""
    looked = (
        f"no socket of an engine at {place.socket}" if place.socket else f"no {place.engine or 'container'} engine that runs{installed}"
    )
    return InfrastructureError(
        f"{place.name} has {looked}.",
        "It is not installed or not started, or its socket is in an unusual place.",
        f"On {place.name}: `sudo systemctl start docker`, or install Podman; or name the socket in hosts.yml (`socket: /path`).",
    )


def not_forwarded(place: Place, said: str) -> InfrastructureError:
    """Report that ssh connects, but does not pass the engine's socket on."""
    return InfrastructureError(
        f"The engine's socket on {place.name} cannot be reached through ssh: {_last(said) or 'the connection was closed'}.",
        "The ssh server there forbids forwarding to sockets, or the engine stopped a moment ago.",
        f"On {place.name}: `AllowStreamLocalForwarding yes` in sshd_config (it is the default), and check that the engine runs.",
    )


def _last(said: str) -> str:
    """Return the last lines that say something, in one line. Text from another machine reaches a terminal: printable characters only."""
    trimmed = (line.strip().rstrip(".") for line in said.splitlines())
    lines = [line for line in trimmed if line and not line.startswith(("Warning: Permanently", "@@@"))]
    text = "; ".join(lines[-2:])
    return "".join(character if character.isprintable() else "?" for character in text)[-300:].rstrip(". ")
