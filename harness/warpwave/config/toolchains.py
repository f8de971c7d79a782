"""Choose toolchains, and make a leg of each target on each: the same target under another name, such as `cpu@triton-3.8`."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from warpwave.config.targets import Target
from warpwave.errors import UsageError
from warpwave.records.run import MARK, Toolchain, Toolchains

NEWEST = "newest"
Newest = Callable[[str], str]
"""Takes a package index or a folder of wheels (empty: the one that pip uses), and returns the newest Triton that it has."""
_VERSION = re.compile(r"\d+(\.\d+)*[A-Za-z0-9.+]*")


def chosen(known: Toolchains, names: Sequence[str], versions: Sequence[str], newest: Newest) -> list[Toolchain]:
    """Return the named toolchains, and one for each release of Triton. Raises UsageError if a name is unknown, or a version is none."""
    found = []
    for name in names:
        if name not in known.named:
            meaning = "The name is misspelt, or the file that defines it was not given with --targets."
            remedy = f"Choose from: {', '.join(known.named)}. Or give a release of Triton, as in --triton 3.8.0."
            raise UsageError(f"There is no toolchain named {name!r}.", meaning, remedy)
        toolchain = known.named[name]
        found.append(replace(toolchain, triton=newest(toolchain.index)) if toolchain.triton == NEWEST else toolchain)
    for version in versions:
        exact = newest("") if version == NEWEST else version
        if not _VERSION.fullmatch(exact):
            meaning = "A release looks like 3.8.0."
            raise UsageError(f"{version!r} is not a release of Triton.", meaning, f"Give one, or `{NEWEST}`, or a toolchain's name.")
        found.append(Toolchain(name=f"triton-{exact}", triton=exact))
    return list({toolchain.name: toolchain for toolchain in found}.values())


def one(known: Toolchains, text: str, newest: Newest) -> Toolchain:
    """Return the toolchain of that name, or the one with that release of Triton. Raises UsageError if it is neither."""
    release = text not in known.named and (text == NEWEST or _VERSION.fullmatch(text))
    names, versions = ((), (text,)) if release else ((text,), ())
    return chosen(known, names, versions, newest)[0]


def split_legs(targets: dict[str, Target], names: Sequence[str], known: Toolchains, newest: Newest) -> dict[str, Target]:
    """Return the targets, and for each of the names that is a leg's, such as `cpu@triton-3.8`, that leg. Raises UsageError if the leg's
    toolchain is unknown."""
    found = dict(targets)
    for name in names:
        target, mark, toolchain = name.partition(MARK)
        if mark and name not in found and target in targets:
            release = toolchain.removeprefix("triton-")
            text = release if toolchain not in known.named and _VERSION.fullmatch(release) else toolchain
            found[name] = replace(leg(targets[target], one(known, text, newest), known), name=name)
    return found


def legs(targets: Sequence[Target], toolchains: Sequence[Toolchain], known: Toolchains) -> list[Target]:
    """Return a leg for each target and toolchain; the targets as they are if there is no toolchain. Raises UsageError if a toolchain cannot
    compile for a target."""
    return [leg(target, toolchain, known) for target in targets for toolchain in toolchains] if toolchains else list(targets)


def leg(target: Target, toolchain: Toolchain, known: Toolchains) -> Target:
    """Return the target on a toolchain, under a name of its own. Raises UsageError if the toolchain cannot compile for it."""
    _check(target, toolchain, known)
    image, arguments = target.image, dict(target.image.build_args)
    if toolchain.triton or toolchain.packages:
        triton = toolchain.triton or arguments.get("TRITON_VERSION", "")
        arguments |= {"TRITON_VERSION": triton, "TOOLCHAIN": " ".join([*([f"triton=={triton}"] if triton else []), *toolchain.packages])}
    wanted = {"TRITON_INDEX": toolchain.index, "TORCH_VERSION": toolchain.torch, "TORCH_INDEX": toolchain.torch_index}
    arguments |= {name: value for name, value in wanted.items() if value}
    if toolchain.base_image:
        image = replace(image, base=toolchain.base_image, digest=None)
    return replace(
        target,
        name=f"{target.name}{MARK}{toolchain.name}",
        entry=target.kind,
        image=replace(image, build_args=arguments),
        environment={**target.environment, **toolchain.environment},
        toolchain=toolchain,
    )


def _check(target: Target, toolchain: Toolchain, known: Toolchains) -> None:
    """Refuse a Triton that needs the vendor's own linker where there is none: a target with a card has it in its image."""
    if target.needs_card or not toolchain.triton or _numbers(toolchain.triton) >= _numbers(known.linker.triton):
        return
    if needing := [card.name for card in target.architectures if card.backend in known.linker.backends]:
        meaning = f"Triton before {known.linker.triton} calls {known.linker.needs}, which PyPI does not have."
        remedy = f"Use Triton {known.linker.triton} or later, or a targets file with a target that compiles for other architectures."
        raise UsageError(f"{target.name}: Triton {toolchain.triton} cannot compile for {', '.join(needing)} here.", meaning, remedy)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in [*re.findall(r"\d+", version), 0, 0, 0][:3])
