"""`nox -s update_pins`: pin what goes into the images by hash: packages in docker/locks/, base images in docker/targets.yml.

Each target and Python has two locks, each from one index: torch and what it needs from the torch index (`…-torch.txt`), the rest from the
default index. If an index, an engine or a registry does not answer, this names it and leaves the old pin as it is.

`nox -s update_pins -- --check` changes nothing and asks no server. It prints a line for each base image without a digest and for each set
of packages without a lock of the right version. Exit code 0: everything is pinned. 1: something is not, or could not be refreshed.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Optional

import yaml

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
DOCKER = ROOT / "docker"
PYTHONS = ("3.12", "3.11")  # of the base images in targets.yml, and of Debian 12
HOST_PYTHON = "3.12"  # of the jobs on hosted runners
DEVCONTAINER = ROOT / ".devcontainer" / "devcontainer.json"
HOST_LOCK = ROOT / ".github" / f"comment-py{HOST_PYTHON}.txt"
MACHINES = ("x86_64", "aarch64")
GLIBCS = ("2_28", "2_27", "2_17")
BASE = ("pytest>=8,<10", "numpy>=1.26,<3")  # as in install.sh
# The vendors' torch asks for a Triton of its own, which is not installed: install.sh says why.
NOT_TORCHS = re.compile(r"(pytorch-)?triton")

Resolve = Callable[[tuple[str, ...], str, str, Optional[str]], Optional[dict[str, tuple[str, str]]]]


def resolve(wanted: tuple[str, ...], python: str, machine: str, index: str | None) -> dict[str, tuple[str, str]] | None:
    """What pip would install: version and hash by name; None where the index does not answer or has nothing that fits."""
    platforms = [word for glibc in GLIBCS for word in ("--platform", f"manylinux_{glibc}_{machine}")]
    options = ["--dry-run", "--quiet", "--ignore-installed", "--only-binary=:all:", "--python-version", python, *platforms]
    source = ["--index-url", index, "--retries", "1", "--timeout", "15"] if index else []
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "pip", "install", *options, "--target", folder, "--report", str(report), *source, *wanted]
        done = subprocess.run(command, capture_output=True, text=True, env=_alone(os.environ, index))
        if done.returncode:
            print(f"  {' '.join(wanted)}: {(done.stderr.strip().splitlines() or ['pip failed'])[-1]}")
            return None
        entries = json.loads(report.read_text())["install"]
    found = {entry["metadata"]["name"].lower(): (entry["metadata"]["version"], _hash(entry)) for entry in entries}
    return {name: pin for name, pin in found.items() if not (index and NOT_TORCHS.match(name))}


def _alone(environment: Mapping[str, str], index: str | None) -> dict[str, str]:
    """Without a second source of the caller's: whoever has the higher version there would win, and its hash would be locked."""
    kept = {name: value for name, value in environment.items() if name not in ("PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS")}
    return {**kept, "PIP_CONFIG_FILE": os.devnull} if index else kept


def _hash(entry: Mapping[str, Any]) -> str:
    return str(entry["download_info"]["archive_info"]["hashes"]["sha256"])


def lock(wanted: tuple[str, ...], python: str, index: str | None, ask: Resolve = resolve) -> str | None:
    """A lock file, a package a line; another machine's wheels are in it where it has the same versions."""
    first = ask(wanted, python, MACHINES[0], index)
    if first is None:
        return None
    hashes = {name: [digest] for name, (_, digest) in first.items()}
    for machine in MACHINES[1:]:
        other = ask(wanted, python, machine, index) or {}
        if {name: version for name, (version, _) in other.items()} == {name: version for name, (version, _) in first.items()}:
            for name, (_, digest) in other.items():
                hashes[name] += [digest] if digest not in hashes[name] else []
    head = f"# {' '.join(wanted)} for Python {python}; by `nox -s update_pins`. Installed with --require-hashes, from one index.\n"
    return head + "".join(
        f"{name}=={first[name][0]} {' '.join(f'--hash=sha256:{digest}' for digest in hashes[name])}\n" for name in sorted(first)
    )


def update_locks(targets: Mapping[str, Any], folder: Path, ask: Resolve = resolve) -> list[str]:
    """Write every lock that can be made; the names of those that could not."""
    missing: dict[str, None] = {}  # targets may share a lock
    known: dict[tuple[object, ...], str | None] = {}  # targets with the same packages are asked about once
    for name, target in targets.items():
        versions = target["image"]["build_args"]
        rest = (f"triton=={versions['TRITON_VERSION']}", *BASE, *versions.get("EMULATOR", "").split())
        for python in PYTHONS:
            kinds = {"": (rest, None), "-torch": ((f"torch=={versions['TORCH_VERSION']}",), versions["TORCH_INDEX"])}
            for kind, (wanted, index) in kinds.items():
                path = folder / f"{target['image'].get('locks', name)}-py{python}{kind}.txt"
                key = (wanted, python, index)
                if key not in known:
                    known[key] = lock(wanted, python, index, ask)
                if (text := known[key]) is None:
                    missing[path.name] = None
                else:
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_text(text)
    return list(missing)


def update_host_lock(path: Path, ask: Resolve = resolve) -> list[str]:
    """Lock what warpwave itself needs, for the job that comments on pull requests: it holds a token that may write."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = (*project["build-system"]["requires"], *(need for need in project["project"]["dependencies"] if "python_version" not in need))
    text = lock(wanted, HOST_PYTHON, None, ask)
    if text is not None:
        path.write_text(text)
    return [] if text else [f".github/{path.name}"]


def with_digest(text: str, base: str, digest: str) -> str:
    """targets.yml with this digest below each `base:` line of that image; comments and order stay."""
    line = re.compile(rf"^( +)base: {re.escape(base)}[ \t]*(#.*)?\n(?:\1digest: .*\n)?", re.MULTILINE)
    return line.sub(lambda found: f"{found[1]}base: {base}{' ' + found[2] if found[2] else ''}\n{found[1]}digest: {digest}\n", text)


def registry(image: str) -> str:
    """The digest that a registry has for a tag now. Raises Exception if the engine or the registry does not answer, in the SDK's words."""
    import docker

    return str(docker.from_env(timeout=60).images.get_registry_data(image).id)


def update_digests(file: Path, ask: Callable[[str], str] = registry) -> list[str]:
    """Write the digest of every base image that can be asked for; a sentence for each that cannot."""
    text = file.read_text()
    trouble = []
    for base in dict.fromkeys(target["image"]["base"] for target in yaml.safe_load(text)["targets"].values()):
        try:
            text = with_digest(text, base, ask(base))
        except Exception as error:  # of the SDK, of requests, of the engine: whichever, the old digest stays
            trouble.append(f"{base}: {str(error).splitlines()[0][:200]}")
    if text != file.read_text():
        file.write_text(text)
    return trouble


def unpinned(targets: Mapping[str, Any], locks: Path = DOCKER / "locks", host: Path = HOST_LOCK, editor: Path = DEVCONTAINER) -> list[str]:
    """Return a sentence for each thing that goes into an image, or is installed beside a token, and has no hash. Asks no server."""
    found = []
    for name, target in targets.items():
        image = target["image"]
        if not image.get("digest"):
            found.append(f"docker/targets.yml: {image['base']}, the base image of {name}, has no digest")
        versions = image["build_args"]
        for python in PYTHONS:
            for kind, package, version in (("", "triton", "TRITON_VERSION"), ("-torch", "torch", "TORCH_VERSION")):
                lock = locks / f"{image.get('locks', name)}-py{python}{kind}.txt"
                wanted = f"{package}=={versions[version]}"
                if not lock.exists():
                    found.append(f"docker/locks/{lock.name}: missing, so {wanted} and what comes with it is installed without hashes")
                elif f"\n{wanted} --hash=" not in lock.read_text():
                    found.append(f"docker/locks/{lock.name}: does not hold {wanted}, which docker/targets.yml names")
    if not host.exists():
        found.append(f".github/{host.name}: missing, so the job that comments on pull requests cannot install by hash")
    image = re.search(r'"image": "([^"]+)"', editor.read_text())
    if image and "@sha256:" not in image[1]:
        found.append(f".devcontainer/{editor.name}: {image[1]} has no digest")
    return list(dict.fromkeys(found))  # targets may share a lock


def check(targets: Mapping[str, Any]) -> int:
    """Print what is not pinned, by name; 1 if there is anything."""
    found = unpinned(targets)
    for sentence in found:
        print(f"not pinned: {sentence}")
    print(f"{len(found)} not pinned; `nox -s update_pins` pins what it can reach" if found else "everything is pinned")
    return int(bool(found))


def main(arguments: Sequence[str] | None = None) -> int:
    """Pin what can be pinned, or only check; 1 if something is not pinned, or could not be refreshed, so that nobody takes it for fresh."""
    parser = argparse.ArgumentParser(description="Pin what goes into the images by hash.", allow_abbrev=False)
    parser.add_argument("--check", action="store_true", help="name what is not pinned; change nothing, ask no server")
    file = DOCKER / "targets.yml"
    targets = yaml.safe_load(file.read_text())["targets"]
    if parser.parse_args(arguments).check:
        return check(targets)
    missing = [f"docker/locks/{name}" for name in update_locks(targets, DOCKER / "locks")]
    missing += update_host_lock(HOST_LOCK)
    trouble = update_digests(file)
    for name in missing:
        print(f"not refreshed: {name}: its index does not answer, or has no such wheel; the file is as it was")
    for sentence in trouble:
        print(f"not refreshed: the digest of {sentence}; docker/targets.yml is as it was")
    return int(bool(missing or trouble))


if __name__ == "__main__":
    sys.exit(main())
