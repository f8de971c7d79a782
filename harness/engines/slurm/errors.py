"""Turn what sbatch says into errors with three parts: what happened, what it usually means, what to do."""

from __future__ import annotations

import re

from harness.config.hosts import Host
from harness.engines.slurm.queue import Entry
from harness.errors import InfrastructureError, UsageError, WarpwaveError

# What sbatch says, the part of hosts.yml that it is about, what it means, and what lists the right values. The first that fits counts.
_MISTAKES = (
    (
        r"invalid partition|partition name",
        "slurm.partition",
        "The cluster has no partition of that name.",
        "`sinfo -s` lists them",
    ),
    (
        r"invalid account|account/partition",
        "slurm.account",
        "Your user may not charge jobs there to that account.",
        "`sacctmgr show assoc user=$USER` lists yours",
    ),
    (
        r"invalid qos|QOS specification",
        "slurm.qos",
        "The cluster has no such quality of service, or your account may not use it.",
        "`sacctmgr show qos` lists them",
    ),
    (
        r"time limit|--time",
        "slurm.time",
        "The time is not written as Slurm wants it, or is longer than the partition allows.",
        "`sinfo -o '%P %l'` lists the limits",
    ),
    (
        r"invalid generic resource|gres|node configuration is not available|feature specification|more processors",
        "slurm.gpus, slurm.gres or slurm.options",
        "No node of the partition has what the job asks for.",
        "`sinfo -o '%P %G %f'` lists what nodes have",
    ),
    (
        r"unrecognized option|invalid option|requires an argument|invalid argument",
        "slurm.options",
        "sbatch there does not know that option, or not that value.",
        "`sbatch --help` lists them",
    ),
)
_SILENT = re.compile(r"unable to contact|connection (refused|timed out)|socket timed out|zero bytes|slurm_persist", re.IGNORECASE)
_LIMIT = re.compile(r"accounting/QOS policy|submit limit|job violates|too many|limit (reached|exceeded)", re.IGNORECASE)


def is_silent(said: str) -> bool:
    """Return whether a command of Slurm says that the controller did not answer."""
    return bool(_SILENT.search(said))


def not_submitted(host: Host, said: str, code: int) -> WarpwaveError:
    """Return the error for an sbatch that did not accept a job. It repeats sbatch's own words."""
    words = re.sub(r"^((sbatch|srun): )?error: ", "", said) or f"exit code {code} without a word"
    happened = f"{host.name}: Slurm refused the job: {words}."
    if code == 127:
        meaning = "The machine is no login node of a Slurm cluster, or Slurm is not in the PATH of a command over ssh."
        return InfrastructureError(happened, meaning, "Name a login node with `ssh:`, and try `ssh LOGIN-NODE sbatch --version`.")
    if is_silent(said):
        meaning = "Slurm's controller (slurmctld) is down, restarts, or cannot be reached from here."
        return InfrastructureError(happened, meaning, "`scontrol ping` tells; when it answers, continue with --resume.")
    if "Immediate execution impossible" in said:
        meaning = "All cards of the partition are in use, or other jobs wait for them."
        return InfrastructureError(happened, meaning, "A run waits for its turn; `squeue -p PARTITION` shows who is before it.")
    if _LIMIT.search(said):
        meaning = "The account or its QOS has reached a limit: of jobs, of cards, or of time."
        return InfrastructureError(
            happened, meaning, "`squeue --me` lists your jobs. Wait for them or ask for less; then continue with --resume."
        )
    for pattern, key, meaning, listed in _MISTAKES:
        if re.search(pattern, said, re.IGNORECASE):
            return UsageError(happened, meaning, f"Correct {host.name}.{key} in hosts.yml; {listed}.")
    return InfrastructureError(
        happened, "The site's Slurm, or a plugin of the site, does not accept it.", "Ask the site, with these words."
    )


def hopeless(host: Host, job: str, entry: Entry) -> UsageError:
    """Return the error for a job that would wait for ever."""
    return UsageError(
        f"{host.name}: Slurm job {job} could never start ({entry.reason}); it was cancelled.",
        "The job asks for more than its partition, account or QOS may ever give: most often a longer time.",
        f"Set {host.name}.slurm.time in hosts.yml to less; `scontrol show partition` and `sacctmgr show qos` list the limits.",
    )
