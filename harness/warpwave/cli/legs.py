"""The names on the command line → the legs of a run: what runs, where, with which options."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from warpwave import console
from warpwave.config.hosts import Host, load_hosts
from warpwave.config.names import check_names, find_hosts, hosts_file
from warpwave.config.package import find_root
from warpwave.config.pyproject import load_environment
from warpwave.config.targets import Target, load_builds, load_toolchains
from warpwave.config.toolchains import chosen, legs, split_legs
from warpwave.errors import ConfigError, InfrastructureError, UsageError
from warpwave.options import RunOptions
from warpwave.records import Shard
from warpwave.run import commit_of
from warpwave.run.inputs import snapshot_of
from warpwave.run.legs import Leg


def on_toolchains(target: Target, options: Mapping[str, Any]) -> list[Target]:
    """Return a leg of the target for each toolchain that the options name; the target as it is if they name none."""
    names, versions = options.get("toolchains", ()), options.get("tritons", ())
    if not names and not versions:
        return [target]
    known = load_toolchains(options.get("overlay"))
    return legs([target], chosen(known, names, versions, partial(newest, options)), known)


def newest(options: Mapping[str, Any], index: str = "") -> str:
    """Return the newest release of Triton that can be had; from an index of its own, the newest build, finished or not. Raises
    InfrastructureError if the package index cannot be asked."""
    from warpwave.engines.packages.environments import releases

    wheels = Path(index) if index and Path(index).is_dir() else load_builds(options["overlay"])[0].wheelhouse
    found = releases(options["python"], wheels, "" if wheels else index)
    if not found:
        meaning = "The newest one there was asked for."
        raise InfrastructureError(f"{wheels} has no wheel of Triton.", meaning, "Give another folder, or name a release.")
    return found[-1]


def all_hosts(options: Mapping[str, Any], targets: dict[str, Target]) -> list[Host]:
    """Return every leg of the hosts file that the options mean. Raises ConfigError if there is no hosts file, or it is not valid."""
    path, trusted = hosts_file(options)
    if path is None:
        meaning = "It says where each leg runs; it is looked for beside the kernels and in ~/.config/warpwave."
        raise ConfigError("There is no hosts.yml.", meaning, "Write one (docs/guides/hosts.md), or name it: --hosts FILE.")
    return list(load_hosts(path, targets, trusted=trusted).values())


def say_runs_here(names: Sequence[str], kernels: Path) -> None:
    """Say that a command compares on this machine, if a hosts file has a leg for what it runs."""
    kernels = kernels.resolve()
    path = find_hosts(kernels, find_root(kernels)) if kernels.is_dir() else None
    text = path.read_text(errors="replace") if path else ""
    if found := [name for name in names if re.search(rf"(^|[\s{{,:\"']){re.escape(name)}([\s}},:\"']|$)", text, re.MULTILINE)]:
        console.say(f"{', '.join(found)}: this command runs here; {path} counts for `warpwave run` and `doctor --hosts`.", err=True)


def chosen_targets(options: Mapping[str, Any], targets: dict[str, Target]) -> list[tuple[Target, Host | None]]:
    """Return what the names mean, in their order: a leg of the hosts file, else every leg of that target, else the target, here. With
    `--here`, nothing has a host, and a target's name means the target. A leg's name still means its target, by that name. Raises UsageError
    if a name is unknown, and ConfigError if the hosts file is not valid."""
    path, trusted = hosts_file(options)
    known = options["here"] and set(options["names"]) <= set(targets)  # then the file says nothing that matters
    hosts = load_hosts(path, targets, trusted=trusted) if path and not known else {}
    chosen: dict[str, tuple[Target, Host | None]] = {}
    # The targets, and the legs that names such as `cpu@triton-3.8` mean.
    named = split_legs(targets, options["names"], load_toolchains(options.get("overlay")), partial(newest, options))
    for name in options["names"]:
        found = [hosts[name]] if name in hosts else [host for host in hosts.values() if host.target == name]
        if options["here"] and name in targets:
            found = []
        for host in found:
            target = replace(targets[host.target], name=host.name, entry=host.target)
            chosen[host.name] = (target, None if options["here"] else host)
        if not found:
            if name not in named:
                check_names([name], options.get("overlay"))
            chosen[name] = (named[name], None)
    return [(leg, host) for target, host in chosen.values() for leg in on_toolchains(target, options)]


def legs_of(chosen: Sequence[tuple[Target, Host | None]], asked: RunOptions) -> list[Leg]:
    """Return the legs of a run: each target with the options that its host changes, and one leg for each shard. All have one commit and one
    snapshot, taken now. Raises UsageError if an option cannot be used with a leg's host."""
    legs = []
    package = asked.package
    asked = replace(asked, package=replace(package, commit=package.commit or commit_of(package.kernels), snapshot=snapshot_of(asked)))
    for target, host in chosen:
        if host is None:
            legs.append(Leg(target, asked))
            continue
        _check_options(host, asked)
        _check_secrets(host, asked)
        options = _on_host(asked, host)
        machines = [replace(host, ssh=ssh, also=()) for ssh in (host.ssh, *host.also)]
        shards = max(host.shards, len(machines))
        if shards == 1:
            legs.append(Leg(target, options))
        for number in range(1, shards + 1) if shards > 1 else ():
            own = machines[(number - 1) % len(machines)]
            part = Shard(number, shards)
            folder = asked.where.out / "shards" / f"{number}of{shards}"
            run_id = f"{asked.where.run_id}-{number}of{shards}"
            legs.append(Leg(target, options.placed(host=own, shard=part, out=folder, whole=asked.where.out, run_id=run_id)))
    return legs


def _on_host(asked: RunOptions, host: Host) -> RunOptions:
    build = replace(
        asked.build,
        base_image=asked.build.base_image or host.build.base_image or None,
        network=asked.build.network or host.build.network or None,
        args={**host.build.args, **asked.build.args},
        weaken=tuple(dict.fromkeys((*asked.build.weaken, *host.weaken))),
    )
    # What the user's own file sets is the user's; what a package's file sets is the package's.
    mine, theirs = (host.environment, {}) if host.trusted else ({}, host.environment)
    package, where = asked.package, asked.where
    declared = replace(package.declared, variables={**theirs, **package.declared.variables})
    package = replace(package, variables={**mine, **package.variables}, declared=declared)
    options = replace(asked, build=build, package=package)
    return options.placed(
        host=host, engine=host.runs_with or where.engine, python=host.python or where.python, gpu=where.gpu or host.gpu or None
    )


def _check_secrets(host: Host, asked: RunOptions) -> None:
    """Refuse to send what the user gives, and the package does not have, to a machine that the package's own file names."""
    if host.trusted or not host.ssh:
        return
    build = asked.build
    files = {f"build.{name}": getattr(build, name) for name in ("pip_config", "wheelhouse", "ca_bundle")}
    given = [f"--env {name}" for name in asked.package.variables]
    given += [f"build.args.{name}" for name in build.args]
    given += [name for name, value in files.items() if value]
    own = {path.resolve() for path in load_environment(asked.package.kernels).requirements}
    given += ["--requirements"] if any(path not in own for path in asked.package.install.requirements) else []
    given += [f"--with {name}" for name in asked.package.install.named]
    if given:
        happened = f"{', '.join(given)} would go to {host.ssh}, which the package's own hosts.yml names for {host.name}."
        remedy = "Leave it out; or, if you trust that machine, name the file (--hosts FILE) or put the leg into your own."
        raise UsageError(happened, "The author of the package chose that machine, and can read there what you send.", remedy)


def _check_options(host: Host, asked: RunOptions) -> None:
    """Refuse options that describe this machine for a leg on another one."""
    for option, value in (("--engine", asked.where.engine), ("--python", asked.where.python)):
        if value and host.runs_with:
            happened = f"{option} {value} was given, and the hosts file says where {host.name} runs: {host.where}."
            raise UsageError(happened, f"{option} describes this machine.", f"Leave {option} out, or add --here to run on this machine.")
    if host.slurm and host.container != "none" and not host.image:
        raise ConfigError(
            f"hosts.yml: {host.name}.image: found nothing, allowed is an image for {host.container}: a file on the nodes, or an address.",
            "A Slurm site builds no image from the target's Dockerfile.",
            "Build one from docker/*.Dockerfile, as docs/guides/slurm.md shows, and give its path.",
        )
    if asked.where.shard and (host.shards > 1 or host.also):
        meaning = "A shard cannot be divided again."
        raise UsageError(f"--shard was given, and the hosts file divides {host.name} already.", meaning, "Leave --shard out.")
