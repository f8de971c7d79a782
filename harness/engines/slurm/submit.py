"""Submit a job: the words that sbatch gets, and the script that it gets on its standard input."""

from __future__ import annotations

import math
import re

from harness.config.hosts import Host, Slurm
from harness.engines.slurm.errors import not_submitted
from harness.engines.slurm.script import batch_script
from harness.engines.slurm.site import Site
from harness.options import RunOptions

_WRITING_S = 30.0  # on top of the grace: Slurm sends its signal up to this much late
_COLLECT_S = 60.0  # for the client to collect results from the node
_SUBMIT_S = 120.0  # a busy controller keeps sbatch waiting
# Writes the job's id to the leg in the same step, so that no client can die between the two. A site's sbatch may print more than the id.
_SUBMIT = r"""
leg=$1; shift
said=$(sbatch "$@") || exit
id=$(printf '%s\n' "$said" | grep -Ex '[0-9]+(;.*)?' | tail -n 1); id=${id%%;*}
[ -n "$id" ] || { printf '%s\n' "$said" >&2; exit 1; }
printf '%s\n' "$id" >"$leg/id.new" && mv -- "$leg/id.new" "$leg/id"
printf '%s\n' "$id"
"""


def submit(site: Site, host: Host, options: RunOptions, leg: str, place: str, name: str) -> str:
    """Submit the job of a leg, and return its id. `leg` is its folder where sbatch runs, `place` the one on the node.

    Raises:
        InfrastructureError: Slurm does not answer, or has no room for it.
        UsageError: the leg names a partition, an account or something else that Slurm does not have.
    """
    assert host.slurm is not None
    time = host.slurm.time or _time(site, host.slurm, options)
    words = sbatch_words(host.slurm, options, name, time)
    sent = host.slurm.stage == "sbcast"
    given = batch_script(place, sent).encode(errors="surrogateescape")
    done = site.script(_SUBMIT, leg, *words, given=given, limit_s=_SUBMIT_S)
    number = done.text.strip().rpartition("\n")[2]
    if done.code != 0 or not re.fullmatch(r"\d+", number):
        raise not_submitted(host, done.said, done.code)
    return number


def sbatch_words(slurm: Slurm, options: RunOptions, name: str, time: str) -> list[str]:
    """Return the options of sbatch, each one word. `time` is the job's limit."""
    words = ["--parsable", f"--job-name={name}", f"--comment={name}", "--output=/dev/null", "--ntasks=1", "--no-requeue"]
    # No variable of the caller's reaches the job. LANG alone, and not NONE: with NONE, Slurm would run the user's login files first.
    lead_s = options.grace_s + _WRITING_S + (_COLLECT_S if slurm.stage == "sbcast" else 0.0)
    words += ["--export=LANG", f"--signal=B:USR1@{math.ceil(lead_s)}", f"--time={time}"]
    return [*words, *resources(slurm), *slurm.options]


def resources(slurm: Slurm) -> list[str]:
    """Return the options, of sbatch and srun, that say where a job runs and with how many cards."""
    chosen = {"partition": slurm.partition, "account": slurm.account, "qos": slurm.qos, "gres": slurm.gres}
    words = [f"--{key}={value}" for key, value in chosen.items() if value]
    return words + ([f"--gpus={slurm.gpus}"] if slurm.gpus and not slurm.gres else [])


def _time(site: Site, slurm: Slurm, options: RunOptions) -> str:
    """Return the time limit of a job whose host names none, in minutes: what the run may take, but no more than its partition allows."""
    wanted = math.ceil((options.limit_s + 2 * (options.grace_s + _WRITING_S)) / 60)
    listed = [line.partition("|") for line in site.run(["sinfo", "-h", "-o", "%P|%l"]).text.splitlines()]
    chosen = slurm.partition.split(",")
    limits = [minutes(limit) for name, _, limit in listed if name.rstrip("*") in chosen or (name.endswith("*") and not slurm.partition)]
    return str(min([wanted, *(limit for limit in limits if limit)]))


def minutes(text: str) -> int:
    """Return a time limit as Slurm prints it, `days-hours:minutes:seconds`, in whole minutes; 0 if there is none, as for `infinite`."""
    days, _, rest = text.strip().rpartition("-")
    parts = rest.split(":")
    if not all(part.isdigit() for part in [days or "0", *parts]) or not 2 <= len(parts) <= 3:
        return 0
    hours, mins = (int(parts[0]), int(parts[1])) if len(parts) == 3 else (0, int(parts[0]))
    return int(days or 0) * 1440 + hours * 60 + mins


def job_name(options: RunOptions, leg: str) -> str:
    """Return the name of a job, by which a later client finds it."""
    return re.sub(r"[^\w.+-]", "-", f"warpwave-{options.run_id}-{leg}", flags=re.ASCII)
