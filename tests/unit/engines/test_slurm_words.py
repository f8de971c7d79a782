"""What sbatch and the runtimes get, word by word, and that no value of a hosts file is ever read by a shell."""

import shlex
import subprocess
from dataclasses import replace
from datetime import datetime

import pytest
from engine_requests import having, make_options

from warpwave.config.hosts import Host, Slurm
from warpwave.config.targets import load_targets
from warpwave.engines.slurm.queue import Entry, Status, ask_accounting, ending, look, not_begun, read_entry, read_status
from warpwave.engines.slurm.script import (
    _INSIDE,
    Places,
    Scratch,
    batch_script,
    exported,
    layout_of,
    leg_file,
    protections,
    start_command,
    variables_of,
)
from warpwave.engines.slurm.site import Done, Site
from warpwave.engines.slurm.submit import hopeless, minutes, not_submitted, sbatch_words
from warpwave.errors import ConfigError, ExitCode, UsageError
from warpwave.records import Cap, Declared, Exit, RunRecord, Verdict
from warpwave.records.isolated import isolated
from warpwave.run.attempt import diagnose, worth_another

PLACES = Places("/s/tree", "/s/tree/kernel-package", "/s/leg/results")
GUARD = isolated("", "/warpwave", "warpwave.inside.watchdog", "60", "5", "1000", "10")[1:]
HOSTILE = [
    "$(touch pwned)",
    "`touch pwned`",
    "'; touch pwned; '",
    '"; touch pwned; "',
    "a b\tc",
    "*",
    "~",
    "\\",
    "$HOME",
    "!!",
    "ü€\u2028",
    "-x",
]


@pytest.fixture
def options(tmp_path):
    return make_options("run-1", tmp_path / "out", tmp_path, target_s=60.0, grace_s=5.0, cap=Cap(1000, 10))


def host(container, **more):
    return Host(name="cuda", target="cuda", slurm=Slurm(partition="h100"), container=container, **more)


def test_sbatch_gets_each_value_as_one_word(options):
    slurm = Slurm(partition="h100;x", account="me", qos="high", gpus=2, options=("--constraint=a b", "--reservation=$(x)"))

    assert sbatch_words(slurm, options, "warpwave-run-1-cuda", "90") == [
        "--parsable",
        "--job-name=warpwave-run-1-cuda",
        "--comment=warpwave-run-1-cuda",
        "--output=/dev/null",
        "--ntasks=1",
        "--no-requeue",
        "--export=LANG",
        "--signal=B:USR1@35",
        "--time=90",
        "--partition=h100;x",
        "--account=me",
        "--qos=high",
        "--gpus=2",
        "--constraint=a b",
        "--reservation=$(x)",
    ]


def test_a_gres_replaces_the_number_of_cards(options):
    words = sbatch_words(Slurm(gres="gpu:h100:1"), options, "n", "90")

    assert [word for word in words if word.startswith(("--gres", "--gpus"))] == ["--gres=gpu:h100:1"]
    assert not [word for word in sbatch_words(Slurm(gpus=0), options, "n", "90") if word.startswith(("--gres", "--gpus"))]


@pytest.mark.parametrize(
    ("text", "expected"), [("30:00", 30), ("1:00:00", 60), ("2-00:00:00", 2880), ("infinite", 0), ("n/a", 0), ("", 0), ("5", 0)]
)
def test_a_time_limit_is_read_as_slurm_prints_it(text, expected):
    assert minutes(text) == expected


def test_without_a_container_the_python_starts_under_a_guard(options):
    words = start_command(host("none"), load_targets()["cuda"], PLACES, "/opt/python", options)

    guard = isolated("/opt/python", "/s/tree", "warpwave.inside.watchdog", "60", "5", "1000", "10", "/s/leg/results/job.json")

    assert words == list(guard)
    assert protections(host("none"), ()) == ("container=none",)


def test_apptainer_gets_three_mounts_no_network_and_its_vendors_flag(options):
    site = host("apptainer", image="/images/cuda.sif")
    words = start_command(site, load_targets()["cuda"], PLACES, "python3", options)

    assert words == [
        *["apptainer", "exec", "--containall", "--cleanenv", "--no-eval", "--no-privs", "--pwd", "/tmp"],
        *["--net", "--network", "none", "--workdir", Scratch()],
        *["--mount", "type=bind,source=/s/tree/warpwave,destination=/warpwave/warpwave,ro"],
        *["--mount", "type=bind,source=/s/tree/kernel-package,destination=/packages,ro"],
        *["--mount", "type=bind,source=/s/leg/results,destination=/results"],
        *["--nv", "/images/cuda.sif", "python3", *GUARD, "/results/job.json"],
    ]
    assert "--rocm" in start_command(site, load_targets()["rocm"], PLACES, "python3", options)
    assert protections(site, ()) == ("seccomp=unconfined",)


def test_what_the_user_gives_up_in_apptainer_is_left_out_and_recorded(options):
    site = host("apptainer", image="/images/cuda.sif")
    words = start_command(site, load_targets()["cuda"], PLACES, "python3", having(options, weaken=("network=host", "writable-root")))

    assert "--net" not in words
    assert "--writable-tmpfs" in words
    assert protections(site, ("network=host",)) == ("seccomp=unconfined", "network=host")
    with pytest.raises(UsageError, match="user=root"):
        protections(site, ("user=root",))


def test_pyxis_gets_the_same_mounts_and_says_what_it_lacks(options):
    site = host("enroot", image="docker://me/cuda:13")
    words = start_command(
        site,
        load_targets()["cuda"],
        PLACES,
        "python3",
        having(options, variables={"A_SECRET": "value"}, declared=Declared(variables={"THEIRS_X": "1"})),
    )

    # The names only: each user of the node can read a command line.
    names = "A_SECRET LOGNAME PYTHONDONTWRITEBYTECODE PYTHONPATH PYTHONUNBUFFERED TRITON_CACHE_DIR TRITON_DEFAULT_FP_FUSION USER"
    mounts = "/s/tree/warpwave:/warpwave/warpwave:ro,/s/tree/kernel-package:/packages:ro,/s/leg/results:/results"
    assert words == [
        *["srun", "--export=ALL", "--ntasks=1", "--no-container-mount-home", "--no-container-remap-root", "--no-container-entrypoint"],
        *["--container-readonly", "--container-workdir=/tmp", "--container-env=NVIDIA_DRIVER_CAPABILITIES"],
        *["--container-image=docker://me/cuda:13", Scratch(f"--container-mounts={mounts},", ":/tmp")],
        *["/bin/sh", "-c", _INSIDE, "sh", names, "python3", *GUARD, "/results/job.json"],
    ]
    assert protections(site, ()) == ("seccomp=unconfined", "network=host", "ipc=host")


CHOSEN = {
    "LD_PRELOAD": "/results/x.so",
    "BASH_ENV": "/results/x.sh",
    "SLURM_CONF": "/results/c",
    "PYTHONPATH": "/mine",
    "MINE": "a 'b' $c\nd",
}


@pytest.mark.parametrize("container", ["apptainer", "enroot", "pyxis"])
def test_no_variable_of_a_container_steers_the_node(container):
    """Neither the user's nor warpwave's; a target's own, such as those that enroot's hooks read, may keep their names."""
    target = load_targets()["cuda"]
    names = exported(host(container, image="/i.sif"), target, PLACES, CHOSEN)

    assert not (set(CHOSEN) | {"USER", "PYTHONPATH", "TRITON_CACHE_DIR"}) & set(names)
    assert {name for name in names if not name.startswith(("APPTAINERENV_", "WARPWAVE_INSIDE_"))} <= set(target.environment)


def test_what_pyxis_starts_has_the_variables_by_their_names(options):
    site, target = host("pyxis", image="/i.sqsh"), load_targets()["cuda"]
    chosen = {name: value for name, value in CHOSEN.items() if name in ("PYTHONPATH", "MINE")}
    words = start_command(site, target, PLACES, "python3", having(options, variables=chosen))
    names = words[words.index(_INSIDE) + 2]
    printed = subprocess.run(
        ["/bin/sh", "-c", _INSIDE, "sh", names, "env", "-0"],
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin:/bin", **exported(site, target, PLACES, chosen)},
    ).stdout
    found = dict(line.split("=", 1) for line in printed.split("\0") if line)

    assert {name: found.get(name) for name in ("MINE", "USER", "NVIDIA_DRIVER_CAPABILITIES")} == {
        "MINE": CHOSEN["MINE"],
        "USER": "warpwave",
        "NVIDIA_DRIVER_CAPABILITIES": target.environment["NVIDIA_DRIVER_CAPABILITIES"],
    }
    assert found["PYTHONPATH"] == "/warpwave:/mine"
    assert not [name for name in found if name.startswith("WARPWAVE_INSIDE_")]


@pytest.mark.parametrize("container", ["apptainer", "enroot"])
def test_a_folder_that_a_mount_cannot_name_is_refused(container, options):
    places = replace(PLACES, results="/s/leg,type=bind,source=/etc,destination=/x")

    with pytest.raises(ConfigError, match="cannot be mounted"):
        start_command(host(container, image="/i.sif"), load_targets()["cuda"], places, "python3", options)


def test_the_inside_sees_mounts_in_a_container_and_real_paths_without():
    inside, outside = (layout_of(host(name, image="/i.sif"), PLACES, "ops", "lib") for name in ("apptainer", "none"))

    assert (inside.harness, inside.kernels, inside.output) == ("/warpwave", "/packages/ops/lib", "/results")
    assert (outside.harness, outside.kernels, outside.output) == ("/s/tree", "/s/tree/kernel-package/ops/lib", "/s/leg/results")
    assert variables_of(host("none"), load_targets()["cuda"], PLACES, {"PYTHONPATH": "/mine"})["PYTHONPATH"] == "/s/tree:/mine"


def sourced(text, script, *variables):
    """What a shell prints after it has read a leg's file."""
    return subprocess.run(["bash", "-c", f"{text}\n{script}"], capture_output=True, text=True, env=dict(variables)).stdout


@pytest.mark.parametrize("value", HOSTILE)
def test_a_hostile_value_stays_one_word(value, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = leg_file(["program", value, Scratch("a=", value)], {"A": value}, modules=(), cards="")
    shown = sourced(text.replace('"$scratch"', "/scratch"), 'printf "%s\\0" "${command[@]}" "$A"')
    leg = subprocess.run(
        ["bash", "-c", batch_script(value).partition("scratch=")[0] + 'printf "%s\\0" "$leg"'], capture_output=True, text=True
    )

    assert shown.split("\0")[:-1] == ["program", value, f"a=/scratch{value}", value]
    assert leg.stdout.split("\0")[:-1] == [value]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("value", HOSTILE)
def test_over_ssh_each_word_is_quoted(value, tmp_path):
    """What ssh runs there is one line for a shell: `sh -c LINE` stands for it here."""
    done = Site(("sh", "-c"), "login").run(["printf", "%s\\0", value])

    assert done.text == f"{value}\0"


def test_the_cards_are_those_that_slurm_gave():
    """If Slurm set none of the vendors' variables, its own list decides; otherwise nothing changes."""
    text = leg_file([], {}, modules=(), cards="THE_VISIBLE_DEVICES")
    shown = 'echo "$THE_VISIBLE_DEVICES $OTHER_VISIBLE_DEVICES"'
    path = ("PATH", "/usr/bin:/bin")

    assert sourced(text, shown, path, ("SLURM_JOB_GPUS", "2,3")) == "2,3 \n"
    assert sourced(text, shown, path, ("SLURM_JOB_GPUS", "2,3"), ("OTHER_VISIBLE_DEVICES", "0")) == " 0\n"


@pytest.mark.parametrize("sent", [False, True])
def test_the_script_is_valid_bash(sent):
    assert subprocess.run(["bash", "-n"], input=batch_script("/a b", sent), text=True).returncode == 0


def test_what_relays_no_signal_is_asked_by_a_folder_that_follows_no_link(tmp_path):
    """The package can write to its results: a link that it plants there leads nowhere."""
    text = batch_script(str(tmp_path))
    halt = next(line for line in text.splitlines() if line.startswith("halt()"))
    (tmp_path / "results").mkdir()
    (tmp_path / "mine").write_text("kept")
    (tmp_path / "results" / ".stop").symlink_to(tmp_path / "mine")
    subprocess.run(["bash", "-c", f"cd {shlex.quote(str(tmp_path))}; relays=; {halt}; halt; rm results/.stop; halt"], check=True)

    assert (tmp_path / "mine").read_text() == "kept"
    assert (tmp_path / "results" / ".stop").is_dir()
    assert "relays=" in leg_file([], {}, modules=(), cards="", relays=False).splitlines()


# What Slurm says of a job, as verdicts and as words for the user.

HOST = Host(name="cuda", target="cuda", slurm=Slurm(partition="h100"), container="none")
NOW = datetime(2026, 11, 23, 12, 0)
RAN = Status(started=True, node="n1", code=130)


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
