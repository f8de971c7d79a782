"""What Slurm says of a job, as verdicts and as words for the user."""

from __future__ import annotations

from datetime import datetime

import pytest

from warpwave.config.hosts import Host, Slurm
from warpwave.engines.slurm.queue import Entry, Status, ask_accounting, ending, look, not_begun, read_entry, read_status
from warpwave.engines.slurm.site import Done
from warpwave.engines.slurm.submit import hopeless, not_submitted
from warpwave.errors import ExitCode
from warpwave.options import Cap
from warpwave.records import Exit, RunRecord, Verdict
from warpwave.run.attempt import diagnose, worth_another

HOST = Host(name="cuda", target="cuda", slurm=Slurm(partition="h100"), container="none")
NOW = datetime(2026, 11, 23, 12, 0)
RAN = Status(started=True, node="n1", code=130)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("PENDING|Priority|2026-11-23T14:05:00|30:00|", "pending: Priority, estimated 14:05"),
        ("PENDING|Resources|2026-11-24T01:00:00|30:00|", "pending: Resources, estimated 01:00 on 2026-11-24"),
        ("PENDING|None|N/A|30:00|", "pending"),
        ("RUNNING|None|2026-11-23T11:00:00|30:00|n1", "running"),
        ("CONFIGURING|None|2026-11-23T11:00:00|30:00|n1", "configuring, estimated 11:00"),
    ],
)
def test_a_state_is_shown_in_one_phrase(line, words):
    assert read_entry(line).words(NOW) == words


@pytest.mark.parametrize("line", ["", "slurm_load_jobs error: Invalid job id specified", "a|b|c|d|e", "PENDING|x|y"])
def test_what_is_no_state_is_none(line):
    assert read_entry(line) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", Status()),
        ("started 1 12 n1 0,1\n", Status(started=True, node="n1", cards="0,1")),
        ("started 1 12 n1\nsignal limit\nended 130 2\n", Status(started=True, node="n1", signal="limit", code=130)),
        ("broken module load failed\nstarted 1 12 n1\nended 1 2", Status(started=True, node="n1", broken="module load failed", code=1)),
        ("ended x\nended 99999\n\x00 junk\n", Status()),
    ],
)
def test_a_status_file_is_read_and_not_believed(text, expected):
    assert read_status(text) == expected


@pytest.mark.parametrize(
    ("status", "entry", "reason", "again"),
    [
        (RAN, Entry("TIMEOUT", limit="30:00"), "Slurm ended job 7 at its time limit of 30:00 (state TIMEOUT)", False),
        (
            Status(started=True, signal="limit", code=130),
            Entry("FAILED", limit="30:00"),
            "Slurm ended job 7 at its time limit of 30:00 (the job was asked to stop shortly before)",
            False,
        ),
        (
            Status(started=True, signal="limit", code=130),
            Entry("PREEMPTED", nodes="n1"),
            "Slurm preempted job 7 (state PREEMPTED): a job of higher priority took its place on n1",
            True,
        ),
        (Status(started=True), Entry("NODE_FAIL", nodes="n1"), "the node failed under Slurm job 7 on n1 (state NODE_FAIL)", True),
        (RAN, Entry("CANCELLED"), "Slurm job 7 was cancelled by someone else (state CANCELLED)", False),
        (Status(), Entry("CANCELLED"), "Slurm job 7 was cancelled by someone else (state CANCELLED)", False),
        (Status(started=True, signal="term", code=130), None, "Slurm job 7 was cancelled by someone else (it was asked to stop)", False),
        (Status(), Entry("FAILED"), "Slurm job 7 ended before it began to work; Slurm's last state of it is FAILED", False),
        (Status(started=True), None, "Slurm job 7 ended without saying how; Slurm does not know it any more", False),
        (Status(True, "n1", missing="apptainer", code=127), Entry("FAILED"), "Slurm job 7: the node n1 has no program 'apptainer'", False),
    ],
)
def test_what_slurm_does_to_a_job_is_infra_in_its_own_words(status, entry, reason, again):
    ended = ending("7", status, entry, False, 1.0, Cap())
    found = diagnose(ended, None, 60.0, "")
    record = RunRecord("r", "cuda", "l", found.verdict, found.reason, found.hint, "", 1.0, "", "", (), exit=ended)

    assert (found.verdict, found.reason) == (Verdict.INFRA, reason)
    assert "--resume" in found.hint or "hosts.yml" in found.hint
    assert worth_another(record, None) is again


@pytest.mark.parametrize(
    ("status", "entry", "interrupted", "expected"),
    [
        (Status(started=True, code=0), None, False, Exit(0, 1.0)),
        (Status(started=True, code=139), Entry("FAILED"), False, Exit(139, 1.0)),
        (RAN, Entry("CANCELLED"), True, Exit(130, 1.0, interrupted=True)),
        (Status(started=True, code=124), Entry("FAILED"), False, Exit(124, 1.0, timed_out=True)),
        (Status(started=True), Entry("OUT_OF_MEMORY"), False, Exit(137, 1.0, oom_killed=True)),
    ],
)
def test_other_endings_are_the_kernels_or_the_users(status, entry, interrupted, expected):
    assert ending("7", status, entry, interrupted, 1.0, Cap()) == expected


def test_a_container_that_does_not_start_is_infra_in_its_own_words():
    """Only its runtime has spoken then. What has begun, or was ended by a limit, keeps its own ending."""
    failed, node = Exit(255, 1.0), Status(True, "n1", code=255)
    ended = not_begun(failed, "7", node, "apptainer", ["INFO: x", "FATAL: could not open image /a.sif\x1b."])
    found = diagnose(ended, None, 60.0, "")

    said = "The container (apptainer) of Slurm job 7 did not start on n1: INFO: x; FATAL: could not open image /a.sif?"
    assert (found.verdict, found.reason) == (Verdict.INFRA, said)
    assert "image:" in found.hint
    for other in (Exit(0, 1.0), Exit(124, 1.0, timed_out=True), Exit(130, 1.0, interrupted=True), Exit(1, 1.0, error="known")):
        assert not_begun(other, "7", node, "none", []) == other


def test_results_over_their_limit_are_named():
    assert "the limit is 4 GiB, and 50000 files" in ending("7", Status(started=True, code=122), None, False, 1.0, Cap()).exceeded


SUBMISSION = "sbatch: error: Batch job submission failed: "


@pytest.mark.parametrize(
    ("said", "code", "key"),
    [
        (f"{SUBMISSION}Unable to contact slurm controller (connect failure)", ExitCode.INFRASTRUCTURE, "scontrol ping"),
        (f"{SUBMISSION}Invalid partition name specified", ExitCode.USAGE, "slurm.partition"),
        (f"{SUBMISSION}Invalid account or account/partition combination specified", ExitCode.USAGE, "slurm.account"),
        (f"{SUBMISSION}Invalid qos specification", ExitCode.USAGE, "slurm.qos"),
        ("sbatch: error: Invalid --time specification", ExitCode.USAGE, "slurm.time"),
        (f"{SUBMISSION}Requested node configuration is not available", ExitCode.USAGE, "slurm.gres"),
        (f"{SUBMISSION}Job violates accounting/QOS policy (job submit limit)", ExitCode.INFRASTRUCTURE, "squeue --me"),
        ("sbatch: error: the site's plugin does not like you", ExitCode.INFRASTRUCTURE, "Ask the site"),
    ],
)
def test_sbatchs_own_words_are_repeated_with_what_to_do(said, code, key):
    error = not_submitted(HOST, said, 1)

    assert error.exit_code is code
    assert said.removeprefix("sbatch: error: ") in error.happened
    assert key in error.remedy


def test_a_machine_without_slurm_is_named():
    assert "no login node" in not_submitted(HOST, "bash: sbatch: command not found", 127).meaning


def test_a_job_that_can_never_start_is_the_users_mistake():
    assert hopeless(HOST, "7", Entry("PENDING", "PartitionTimeLimit")).exit_code is ExitCode.USAGE


class Answering:
    """A site with one answer."""

    def __init__(self, out, code=0):
        self.done = Done(code, out, "")

    def script(self, *_, **__):
        return self.done

    run = script


@pytest.mark.parametrize(
    ("out", "entry", "gone", "trouble"),
    [
        (b"? 0 RUNNING|None|N/A|30:00|n1\n\n--\nout\n--\nput", Entry("RUNNING", "None", None, "30:00", "n1"), False, ""),
        (b"? 1 slurm_load_jobs error: Invalid job id specified\n\n--\n", None, True, "slurm_load_jobs error: Invalid job id specified"),
        (b"? 0 \n\n--\n", None, True, ""),
        (b"? 1 Unable to contact slurm controller\n\n--\n", None, False, "Unable to contact slurm controller"),
        (b"? 127 bash: squeue: command not found\n\n--\n", None, False, "bash: squeue: command not found"),
    ],
)
def test_one_look_tells_a_job_that_is_gone_from_a_controller_that_is_silent(out, entry, gone, trouble):
    seen = look(Answering(b"= started 1 7 n1\n" + out), "/f", "7", True, 0)

    assert (seen.entry, seen.gone, seen.trouble, seen.status.started) == (entry, gone, trouble, True)
    assert seen.output == (b"out\n--\nput" if entry else b"")


def test_accounting_is_asked_where_a_site_has_it():
    assert ask_accounting(Answering(b"CANCELLED by 1000|00:30:00|n1\n"), "7") == Entry("CANCELLED", limit="00:30:00", nodes="n1")
    assert ask_accounting(Answering(b"", 1), "7") is None
    assert ask_accounting(Answering(b"Slurm accounting storage is disabled"), "7") is None
