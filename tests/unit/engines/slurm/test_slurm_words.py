"""What sbatch and the runtimes get, word by word, and that no value of a hosts file is ever read by a shell."""

from __future__ import annotations

import shlex
import subprocess
from dataclasses import replace

import pytest

from warpwave.config.hosts import Host, Slurm
from warpwave.config.targets import load_targets
from warpwave.engines.slurm.script import (
    _IMAGES_PATH,
    Places,
    Scratch,
    batch_script,
    layout_of,
    leg_file,
    protections,
    start_command,
    variables_of,
)
from warpwave.engines.slurm.site import Site
from warpwave.engines.slurm.submit import job_name, minutes, sbatch_words
from warpwave.errors import ConfigError, UsageError
from warpwave.options import Cap, RunOptions
from warpwave.records.isolated import isolated

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
    return RunOptions("run-1", tmp_path / "out", tmp_path, limit_s=60.0, grace_s=5.0, cap=Cap(1000, 10))


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


def test_a_jobs_name_is_a_plain_word(options):
    assert job_name(replace(options, run_id="run 1;x"), "my leg") == "warpwave-run-1-x-my-leg"


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
    words = start_command(site, load_targets()["cuda"], PLACES, "python3", replace(options, weaken=("network=host", "writable-root")))

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
        replace(options, variables={"A_SECRET": "value"}, package_variables={"THEIRS_X": "1"}),
    )

    own = "USER,LOGNAME,TRITON_CACHE_DIR,PYTHONUNBUFFERED,PYTHONDONTWRITEBYTECODE,TRITON_DEFAULT_FP_FUSION,NVIDIA_DRIVER_CAPABILITIES"
    names = f"{own},A_SECRET,PYTHONPATH"  # the names only: each user of the node can read a command line
    mounts = "/s/tree/warpwave:/warpwave/warpwave:ro,/s/tree/kernel-package:/packages:ro,/s/leg/results:/results"
    assert words == [
        *["srun", "--export=ALL", "--ntasks=1", "--no-container-mount-home", "--no-container-remap-root", "--no-container-entrypoint"],
        *["--container-readonly", "--container-workdir=/tmp", "--container-image=docker://me/cuda:13", f"--container-env={names}"],
        *[Scratch(f"--container-mounts={mounts},", ":/tmp"), "/bin/sh", "-c", _IMAGES_PATH, "sh", "python3", *GUARD, "/results/job.json"],
    ]
    assert protections(site, ()) == ("seccomp=unconfined", "network=host", "ipc=host")


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
    text = leg_file(["program", value, Scratch("a=", value)], {"A": value}, prefix="", modules=(), cards="")
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
    text = leg_file([], {}, prefix="", modules=(), cards="THE_VISIBLE_DEVICES")
    shown = 'echo "$THE_VISIBLE_DEVICES $OTHER_VISIBLE_DEVICES"'
    path = ("PATH", "/usr/bin:/bin")

    assert sourced(text, shown, path, ("SLURM_JOB_GPUS", "2,3")) == "2,3 \n"
    assert sourced(text, shown, path, ("SLURM_JOB_GPUS", "2,3"), ("OTHER_VISIBLE_DEVICES", "0")) == " 0\n"


def test_a_runtime_with_a_prefix_gets_slurms_cards_too():
    text = leg_file([], {"A": "b"}, prefix="APPTAINERENV_", modules=(), cards="")
    shown = sourced(text, "env | grep ^APPT", ("PATH", "/usr/bin:/bin"), ("THE_VISIBLE_DEVICES", "1"))

    assert sorted(shown.split()) == ["APPTAINERENV_A=b", "APPTAINERENV_THE_VISIBLE_DEVICES=1"]


def test_a_module_that_cannot_be_loaded_is_noted(tmp_path):
    text = leg_file([], {}, prefix="", modules=("cuda/13; x",), cards="")
    shown = sourced(text, "", ("PATH", "/usr/bin:/bin"))
    defined = 'module() { printf "%s|" "$@"; return 1; }; note() { echo "note $*"; }\n'

    assert shown == ""
    assert sourced(defined + text, "") == "load|cuda/13; x|note broken module load failed\n"


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
    assert "relays=" in leg_file([], {}, prefix="", modules=(), cards="", relays=False).splitlines()
