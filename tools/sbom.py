"""`nox -s sbom`: CycloneDX bills of materials in build/sbom: one of the wheel with what it needs, one of each image that this engine has.
What is listed is what is installed, asked of Python and dpkg where it is installed; a container for that has no network."""

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import DisjunctiveLicense
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL

OUT = Path("build") / "sbom"
# Runs where the packages are, so with the standard library alone.
LOOK = """
import importlib.metadata, json, re, shutil, subprocess
found = []
for entry in importlib.metadata.distributions():
    name = re.sub(r"[-_.]+", "-", entry.metadata["Name"]).lower()
    licence = entry.metadata.get("License-Expression") or entry.metadata.get("License") or ""
    found.append(["pypi", name, entry.version, licence if len(licence) < 80 else ""])
if shutil.which("dpkg-query"):
    form = "${Package}\\t${Version}\\t${Architecture}\\n"
    done = subprocess.run(["dpkg-query", "-W", "-f", form], capture_output=True, text=True)
    found += [["deb", *line.split("\\t")] for line in done.stdout.splitlines()]
print(json.dumps(sorted(map(list, {tuple(entry) for entry in found}))))
"""


def bom(subject: Component, found: Iterable[list[str]]) -> str:
    """The bill as strict CycloneDX 1.6. Raises ValueError if it is not, which would be a mistake of ours."""
    page = Bom()
    page.metadata.component = subject
    for kind, name, version, more in found:
        if name == subject.name:
            continue
        url = PackageURL(kind, "debian" if kind == "deb" else None, name, version, {"arch": more} if kind == "deb" else None)
        licences = [DisjunctiveLicense(name=more)] if kind == "pypi" and more else []
        part = Component(name=name, version=version, purl=url, bom_ref=str(url), licenses=licences, type=ComponentType.LIBRARY)
        page.components.add(part)
        page.register_dependency(subject, [part])
    text = JsonV1Dot6(page).output_as_string(indent=1)
    if wrong := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text):
        raise ValueError(str(wrong))
    return text + "\n"


def of_wheel(out: Path) -> Path:
    """Of the environment that this runs in, into which the wheel has been installed."""
    done = subprocess.run([sys.executable, "-I", "-c", LOOK], capture_output=True, text=True, check=True)
    found = [entry for entry in json.loads(done.stdout) if entry[0] == "pypi"]
    version = next((entry[2] for entry in found if entry[1] == "warpwave"), "0")
    subject = Component(name="warpwave", version=version, type=ComponentType.APPLICATION, bom_ref="warpwave")
    needed = requirements("warpwave", {entry[1] for entry in found})
    path = out / "warpwave.cdx.json"
    path.write_text(bom(subject, [entry for entry in found if entry[1] in needed]), encoding="utf-8")
    return path


def requirements(name: str, installed: set[str]) -> set[str]:
    """What a package needs, and what that needs: beside it lie the tools that wrote this."""
    import importlib.metadata

    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    found: set[str] = set()
    waiting = [name]
    while waiting:
        for line in importlib.metadata.requires(waiting.pop()) or ():
            need = Requirement(line)
            known = canonicalize_name(need.name)
            if known in installed - found and (need.marker is None or need.marker.evaluate({"extra": ""})):
                found.add(known)
                waiting.append(known)
    return found


def of_images(out: Path) -> list[Path]:
    """Of each image that warpwave has built here. Raises Exception if no engine answers, in the SDK's words."""
    import docker

    client = docker.from_env()
    written = []
    for image in client.images.list(filters={"label": "io.warpwave.requirements"}):
        for tag in image.tags:
            told = client.containers.run(
                tag, ["python3", "-c", LOOK], network_mode="none", remove=True, cap_drop=["ALL"], read_only=True, entrypoint=[]
            )
            subject = Component(name=tag.partition(":")[0], version=image.id, type=ComponentType.CONTAINER, bom_ref=tag)
            path = out / f"{tag.replace('/', '-').replace(':', '-')}.cdx.json"
            path.write_text(bom(subject, json.loads(told)), encoding="utf-8")
            written.append(path)
    return written


def main() -> int:
    """Write what can be written, and say what could not."""
    OUT.mkdir(parents=True, exist_ok=True)
    written = [of_wheel(OUT)]
    try:
        written += of_images(OUT)
    except Exception as error:  # the SDK's and its HTTP library's: whichever, the wheel's is there
        print(f"no image was looked at: {str(error).splitlines()[0][:200]}")
    for path in written:
        print(f"{path}: {len(json.loads(path.read_text())['components'])} components")
    return 0


if __name__ == "__main__":
    sys.exit(main())
