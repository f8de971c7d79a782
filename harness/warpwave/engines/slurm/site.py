"""Run commands where Slurm is: on this machine, or on a login node over the system's ssh. Each command is a list of words. Over ssh it
becomes one line for the login shell, which may be any: bash, fish and tcsh quote differently."""

from __future__ import annotations

import os
import shlex
import subprocess
import textwrap
from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import IO, Union

from warpwave.engines.ssh.command import surroundings
from warpwave.errors import InfrastructureError

_CALL_S = 60.0
_END_S = 10.0
_PIECE = 900  # letters of one word: tcsh takes no long ones
_SAID = 600  # characters of an error message that are shown
LOST = 255  # ssh's own exit code if there is no connection


class SiteLostError(InfrastructureError):
    """The machine with Slurm's commands does not answer. A job that was submitted goes on without us."""


@dataclass(frozen=True)
class Done:
    """How a command ended: its exit code, its output, and what it said on standard error, in one line."""

    code: int
    out: bytes
    said: str

    @property
    def text(self) -> str:
        """The output as text."""
        return self.out.decode("utf-8", "replace")


@dataclass(frozen=True)
class Site:
    """Where commands run. `ssh` is the command line of ssh up to the destination; empty: this machine. `before` are words before each."""

    ssh: tuple[str, ...] = ()
    name: str = "this machine"
    before: tuple[str, ...] = ()

    def node_of(self, job: str) -> Site:
        """Return the node of a running job: each command there is a short step of that job."""
        step = ("srun", "--quiet", "--overlap", f"--jobid={job}", "--nodes=1", "--ntasks=1", "--export=ALL")
        return replace(self, name=f"the node of Slurm job {job}", before=step)

    def run(self, words: Sequence[str], given: Union[bytes, IO[bytes]] = b"", limit_s: float = _CALL_S) -> Done:
        """Run a command to its end, with `given` as its standard input. Raises SiteLostError if it cannot be started, ssh has no
        connection, or the time is up."""
        with self.start(words, stdin=subprocess.PIPE if isinstance(given, bytes) else given) as process:
            try:
                out, error = process.communicate(given if isinstance(given, bytes) else None, timeout=limit_s)
            except subprocess.TimeoutExpired:
                raise self.unreachable(f"it did not answer `{words[0]}` within {limit_s:g} s") from None
        said = " ".join(error.decode("utf-8", "replace").split())[-_SAID:]
        if self.ssh and process.returncode == LOST:
            raise self.unreachable(said or "ssh ended without a word")
        return Done(process.returncode, out, said)

    def script(self, text: str, *arguments: str, given: Union[bytes, IO[bytes]] = b"", limit_s: float = _CALL_S) -> Done:
        """Run a fixed script of bash. Its arguments are words of their own, and never part of its text."""
        return self.run(["bash", "-c", text, "warpwave", *arguments], given, limit_s)

    @contextmanager
    def start(
        self, words: Sequence[str], stdin: Union[int, IO[bytes]] = subprocess.DEVNULL, stderr: int = subprocess.PIPE
    ) -> Iterator[subprocess.Popen[bytes]]:
        """Start a command; at the end of the block it has ended. It has a session of its own, so Ctrl-C does not reach it. Raises
        SiteLostError if it cannot be started."""
        words = [*self.before, *words]
        if self.ssh:  # one line for any login shell: what varies in it are letters, digits and + / = only
            encoded = b64encode(shlex.join(words).encode(errors="surrogateescape")).decode()
            line = ["""sh -c 'eval "$(printf %s "$@" | base64 -d)"' warpwave""", *textwrap.wrap(encoded, _PIECE)]
            words = [*self.ssh, " ".join(line)]
        variables = {**(surroundings() if self.ssh else os.environ), "LC_ALL": "C", "SLURM_TIME_FORMAT": "standard"}
        try:
            process = subprocess.Popen(words, env=variables, start_new_session=True, stdin=stdin, stdout=subprocess.PIPE, stderr=stderr)
        except OSError as error:
            raise self.unreachable(f"`{words[0]}` cannot be started: {error.strerror}") from None
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    stream.close()
            process.wait(_END_S)

    def unreachable(self, why: str) -> SiteLostError:
        """Return the error for a site that does not answer."""
        if not self.ssh:
            meaning = "This machine is no login node of a Slurm cluster, or its commands are not in PATH."
            remedy = "Run this on a login node; or name one with `ssh: LOGIN-NODE` beside `slurm:` in hosts.yml."
            return SiteLostError(f"Slurm's commands cannot be used on this machine: {why}.", meaning, remedy)
        return SiteLostError(
            f"{self.name} cannot be reached over ssh: {why}.",
            "The machine is down, or ssh has no key or no known host for it. A job that was submitted goes on; it ends by its time limit.",
            f"Try `ssh {shlex.quote(self.name)} true`. When it works without a question, --resume follows the job or collects its results.",
        )
