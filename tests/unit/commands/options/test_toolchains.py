"""Toolchains as data: their names, what may be said of them, and the legs that they make."""

from __future__ import annotations

import pytest

from warpwave.__main__ import _run_cli
from warpwave.config.targets import load_targets, load_toolchains
from warpwave.config.toolchains import chosen, leg, legs, one, split_legs
from warpwave.errors import ConfigError, UsageError
from warpwave.records.run import Toolchain, plain_target


def no_newest(index: str) -> str:
    raise AssertionError("nobody asked for the newest")


def test_each_target_on_each_toolchain():
    """In the order of the command line, each under its own name."""
    known = load_toolchains()
    found = legs([load_targets()[name] for name in ("cpu", "cuda")], chosen(known, ["triton-3.8"], ["3.9.0"], no_newest), known)

    assert [target.name for target in found] == ["cpu@triton-3.8", "cpu@triton-3.9.0", "cuda@triton-3.8", "cuda@triton-3.9.0"]
    assert [plain_target(target.name, target.toolchain.name) for target in found] == ["cpu", "cpu", "cuda", "cuda"]
    assert legs([load_targets()["cpu"]], [], known) == [load_targets()["cpu"]]


def test_a_variable_is_a_toolchain_too():
    """The shipped file has two settings of a backend; they install nothing."""
    known = load_toolchains()
    found = leg(load_targets()["rocm"], known.named["hip-no-pingpong"], known)

    assert found.environment["TRITON_HIP_USE_BLOCK_PINGPONG"] == "0"
    assert (found.toolchain.installs, found.image) == (False, load_targets()["rocm"].image)


@pytest.mark.parametrize("target", ["cpu", "gfx942-emulated"])
def test_an_old_triton_needs_a_linker(target):
    """Where there is no card, no image brings it. A card's image does."""
    known, old = load_toolchains(), Toolchain(name="old", triton="3.4.0")
    with pytest.raises(UsageError) as raised:
        leg(load_targets()[target], old, known)

    assert "gfx942" in raised.value.happened
    assert "ld.lld" in raised.value.meaning
    assert "3.5.0 or later" in raised.value.remedy
    assert leg(load_targets()["rocm"], old, known).name == "rocm@old"
    assert leg(load_targets()["cpu"], Toolchain(name="new", triton="3.10.0"), known).name == "cpu@new"  # 10 is more than 5


def test_a_name_or_a_release(tmp_path):
    """`one` takes both, and the newest release that there is."""
    known = load_toolchains()

    assert one(known, "triton-3.8", no_newest).triton == "3.8.0"
    assert one(known, "3.10.0", no_newest) == Toolchain(name="triton-3.10.0", triton="3.10.0")
    assert one(known, "newest", lambda index: "4.0.0").name == "triton-4.0.0"
    nightly = one(known, "triton-nightly", lambda index: f"4.1.0+{index.count('nightly')}")
    assert (nightly.name, nightly.triton) == ("triton-nightly", "4.1.0+1")
    for wrong in ("triton-9", "../x", "3.8.0; rm"):
        with pytest.raises(UsageError):
            one(known, wrong, no_newest)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("toolchains: {a: {tritn: 3.8.0}}", "toolchains.a.tritn"),
        ("toolchains: {../a: {triton: 3.8.0}}", "toolchains.../a"),
        ("toolchains: {a: {name: b}}", "toolchains.a"),
        ("toolchains: {a: {triton: 3.8}}", "toolchains.a.triton"),
    ],
)
def test_a_wrong_entry_is_refused_by_its_path(tmp_path, text, said):
    """A version that YAML reads as a number, too: 3.10 would become 3.1."""
    path = tmp_path / "mine.yml"
    path.write_text(f"schema_version: 1\ntargets: {{}}\n{text}\n")
    with pytest.raises(ConfigError, match="found") as raised:
        load_toolchains(path)

    assert said in raised.value.happened


def test_a_leg_by_its_name():
    """As a report shows it, so that the command beside a failed test can be typed: a toolchain of the file, or a release."""
    known, targets = load_toolchains(), load_targets()
    found = split_legs(targets, ["cpu@triton-3.8", "cuda@triton-3.8.1", "other"], known, no_newest)

    assert list(found) == [*targets, "cpu@triton-3.8", "cuda@triton-3.8.1"]
    assert [found[name].toolchain.triton for name in list(found)[-2:]] == ["3.8.0", "3.8.1"]
    assert [found[name].name for name in list(found)[-2:]] == list(found)[-2:]
    with pytest.raises(UsageError, match="no toolchain named 'none'"):
        split_legs(targets, ["cpu@none"], known, no_newest)


def test_a_wrong_name_is_the_users_mistake(tmp_path, capsys):
    """Exit code 2, in three beats, before anything runs."""
    (tmp_path / "kernels").mkdir()
    code = _run_cli(["run", "cpu", "--kernels", str(tmp_path / "kernels"), "--toolchain", "none", "--out", str(tmp_path / "out")])

    assert (code, (tmp_path / "out").exists()) == (2, False)
    assert "There is no toolchain named 'none'" in capsys.readouterr().err
