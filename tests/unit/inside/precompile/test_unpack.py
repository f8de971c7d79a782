"""What tests launch is compiled before the card is taken, also behind what they decide by data; and kernels from elsewhere are checked."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from pathlib import Path

import command
import pytest

from warpwave.config.targets import load_targets
from warpwave.errors import UsageError
from warpwave.records import COMPILED_FOLDER, COMPILED_HERE, COMPILED_MANIFEST, DeviceFacts, Facts, Job, Stage, dump
from warpwave.run import inputs

pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")

from warpwave.inside.fake_gpu.unknown import Guesses
from warpwave.inside.handed_over import pack, unpack

REPOSITORY = Path(__file__).parents[4]
CARD = next(card for card in load_targets()["cpu"].architectures if card.name == "sm_90")
PACKAGE = """
import torch, triton, triton.language as tl

@triton.jit
def first_kernel(x_ptr):
    tl.store(x_ptr, tl.load(x_ptr) + 1)

@triton.jit
def second_kernel(x_ptr):
    tl.store(x_ptr, tl.load(x_ptr) * 2)

def test_decides():
    x = torch.zeros(1, device="cuda")
    first_kernel[(1,)](x)
    error = x.max().item()
    share = error / 2 if error else 0.0
    odd = x[x.isnan()]
    assert odd.numel() <= 1
    second_kernel[(1,)](x)
    assert share <= 1
"""
KEY = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567ABCDEFGHIJKLMNOPQRST"


@pytest.fixture
def job(tmp_path):
    """A job whose facts stage has seen a card."""
    device = DeviceFacts(0, "Synthetic GPU", "sm_90", 1 << 36, 144)
    dump(Facts("3.12", "", "2", "3", "", "", "1", "5e1f", devices=(device,)), tmp_path / "facts.json")
    (tmp_path / "compile").mkdir()
    return Job("run-1", "cuda", (Stage.TEST,), "", str(tmp_path), architectures=(CARD,), workers=1, save_compiled=("sm_90",))


def test_what_a_test_launches_behind_a_decision_is_compiled_ahead(job, tmp_path):
    """The compile stage stops at the decision; here a wrong guess costs nothing."""
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "test_decides.py").write_text(PACKAGE)
    dump(dataclasses.replace(job, kernels=str(tmp_path / "package")), tmp_path / "job.json")
    variables = {**os.environ, "PYTHONPATH": str(REPOSITORY / "harness"), "TRITON_CACHE_DIR": str(tmp_path / "cache")}
    done = command.python("-m", "warpwave.inside.precompile", "job.json", cwd=tmp_path, env=variables, kind="compiler")
    assert done.returncode == 0, done.stderr
    told = json.loads((tmp_path / "bench" / "ahead.json").read_text())

    assert (told["workers"], told["exit_codes"], told["compiled"]) == (1, [0], 2), (tmp_path / "bench" / "log-ahead.txt").read_text()
    assert {path.stem for path in (tmp_path / "cache").rglob("*.cubin")} == {"first_kernel", "second_kernel"}


def test_guesses_take_turns():
    """So that a loop until something holds ends, and one while it holds, too."""
    assert Guesses.truth() is not Guesses.truth()


@pytest.fixture
def handed(job, tmp_path, monkeypatch):
    """The cache of another machine with a kernel, kept; this machine's is empty. Returns the job that uses it."""
    entry = tmp_path / "theirs" / KEY
    entry.mkdir(parents=True)
    (entry / "k.cubin").write_bytes(b"machine code")
    (entry / "k.so").write_bytes(b"for the host")
    (entry / "k.json").write_text(json.dumps({"target": {"backend": CARD.backend, "arch": CARD.arch}}))
    (entry / "__grp__k.json").write_text(json.dumps({"child_paths": {"k.cubin": str(entry / "k.cubin")}}))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "theirs"))
    pack(job)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "ours"))
    job = dataclasses.replace(job, compiled=inputs.digest_of(inputs.find(tmp_path)))
    inputs.copy(tmp_path / COMPILED_FOLDER, tmp_path, job.compiled)
    return job


def test_kernels_are_handed_over_without_what_a_processor_would_execute(handed, tmp_path):
    """Where Triton finds them: the list of an entry's files names those of this machine. The copy is gone afterwards."""
    found = tmp_path / "ours" / KEY

    assert unpack(handed, CARD) == (1, "")
    assert sorted(path.name for path in found.iterdir()) == ["__grp__k.json", "k.cubin", "k.json"]
    assert json.loads((found / "__grp__k.json").read_text())["child_paths"] == {"k.cubin": str(found / "k.cubin")}
    assert not (tmp_path / COMPILED_HERE).exists()


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"triton": "another"}, "another Triton"),
        ({"kernels_hash": "another"}, "other sources"),
        ({"architectures": ["sm_80"]}, "compiled for sm_80, and this card is sm_90"),
        ({"files": {"../../escape.json": ""}}, "something other than compiled kernels"),
        ({"files": {f"{KEY}/evil.so": ""}}, "something other than compiled kernels"),
        ({"files": {f"{KEY}/../x.json": ""}}, "something other than compiled kernels"),
        ({"files": {f"{KEY}/k.cubin": "0" * 64}}, "a file was changed"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(handed, tmp_path, changed, why):
    """And nothing of it is taken."""
    path = tmp_path / COMPILED_HERE / COMPILED_MANIFEST
    path.write_text(json.dumps({**json.loads(path.read_text()), **changed}))
    forged = dataclasses.replace(handed, compiled=hashlib.sha256(path.read_bytes()).hexdigest())
    kernels, refused = unpack(forged, CARD)

    assert (kernels, why in refused) == (0, True), refused
    assert not (tmp_path / "ours").exists()


@pytest.mark.parametrize(
    ("group", "taken"),
    [
        (json.dumps({"child_paths": {"k.cubin": "", "..": "/etc", "../k.cubin": "", "other.cubin": ""}}), {"k.cubin"}),
        ("[" * 100_000, "RecursionError"),
        ('{"child_paths": ["k.cubin"', "JSONDecodeError"),
        ('"k.cubin"', "TypeError"),
    ],
    ids=["names others", "deep", "cut off", "no list"],
)
def test_a_forged_list_of_an_entrys_files_names_no_others(handed, tmp_path, group, taken):
    """Its hash is right: who made the list made this, too. Triton would open what it names, and a traceback would end the stage."""
    folder, name = tmp_path / COMPILED_HERE, f"{KEY}/__grp__k.json"
    (folder / name).write_text(group)
    manifest = json.loads((folder / COMPILED_MANIFEST).read_text())
    manifest["files"][name] = hashlib.sha256(group.encode()).hexdigest()
    (folder / COMPILED_MANIFEST).write_text(json.dumps(manifest))
    forged = dataclasses.replace(handed, compiled=hashlib.sha256((folder / COMPILED_MANIFEST).read_bytes()).hexdigest())
    kernels, refused = unpack(forged, CARD)

    if isinstance(taken, str):
        assert (kernels, taken in refused) == (0, True), refused
    else:
        assert set(json.loads((tmp_path / "ours" / name).read_text())["child_paths"]) == taken


def test_what_was_not_planned_is_refused_before_anything_starts(handed, tmp_path):
    """By the hash of its list; so is a file that is not the listed one, a link, and a folder without kernels."""
    theirs = tmp_path / COMPILED_FOLDER
    with pytest.raises(UsageError, match="does not hold the kernels that were planned"):
        inputs.digest_of(theirs, "0" * 64)
    with pytest.raises(UsageError, match="no compiled kernels"):
        inputs.find(tmp_path / "theirs")
    (theirs / KEY / "k.cubin").write_bytes(b"other code")
    with pytest.raises(UsageError, match="was changed after it was compiled"):
        inputs.copy(theirs, tmp_path / "raw", handed.compiled)
    (theirs / KEY / "k.cubin").unlink()
    (theirs / KEY / "k.cubin").symlink_to("/etc/passwd")
    with pytest.raises(UsageError, match="cubin"):
        inputs.copy(theirs, tmp_path / "raw", handed.compiled)


def test_kernels_that_would_fill_the_disk_are_refused(handed, tmp_path, monkeypatch):
    """Each file may be within its limit, and all together may not."""
    monkeypatch.setattr(inputs, "_MOST_TOGETHER", 20)
    with pytest.raises(UsageError, match="have more than 0 GiB"):
        inputs.copy(tmp_path / COMPILED_FOLDER, tmp_path / "raw", handed.compiled)
    assert sum(file.stat().st_size for file in (tmp_path / "raw").rglob("*") if file.is_file()) <= 20


def test_a_list_that_changed_meanwhile_is_refused(handed, tmp_path):
    """By code of the package, which can write to the results."""
    (tmp_path / COMPILED_HERE / COMPILED_MANIFEST).write_text("{}")

    assert unpack(handed, CARD) == (0, "their list was changed after this run had begun")
