"""A third vendor is data: a backend of Triton's that describes a card by a mapping, on a type of device of its own, from end to end."""

from __future__ import annotations

import json
import os
import runpy
import shutil
from pathlib import Path
from types import SimpleNamespace

import command
import pytest

from warpwave.collect import collect
from warpwave.inside.facts.device import architecture_name, described
from warpwave.records import Architecture, Verdict

pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")

REPOSITORY = Path(__file__).parents[4]
DATA = REPOSITORY / "tests" / "data" / "vendor"
TARGETS = f"""
schema_version: 1
architectures:
  tv1:
    backend: third
    arch: {{arch: tv1, units: 8, sizes: [16, 32]}}
    warp_size: 16
    torch_device: xpu
    program_threads: 512
    properties: {{multiprocessor_count: 4, max_shared_mem: 65536}}
targets:
  third-sim:
    label: a third vendor without a card
    engine: local
    stages: [test, compile]
    interpret: true
    image: &image {{dockerfile: none, base: none}}
    environment: &environment {{PYTHONPATH: "{DATA / "site"}:{REPOSITORY}"}}
    architectures: [tv1]
  third:
    label: a third vendor's card
    engine: local
    stages: [bench]
    image: *image
    environment: {{<<: *environment, STUB_CARDS: "1"}}
    probe: {{require: torch.version.git_version}}
    architectures: [tv1]
"""
GATES = """
[tool.warpwave.gates]
occupancy = 0.5
"""


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """Run both targets as a user does: the folder of the run, and what the command said."""
    folder = tmp_path_factory.mktemp("host")
    (folder / "targets.yml").write_text(TARGETS)
    package = folder / "package"
    shutil.copytree(DATA / "package", package)
    (package / "pyproject.toml").write_text(GATES)
    variables = {
        "PYTHONPATH": str(REPOSITORY / "harness"),
        "COLUMNS": "200",
        "STUB_STATE": str(folder),
        "TRITON_CACHE_DIR": str(folder / "cache"),
    }
    words = ["run", "third-sim", "third", "--targets", "targets.yml", "--kernels", package, "--out", "out"]
    done = command.warpwave(*words, cwd=folder, env={**os.environ, **variables})
    return folder / "out", done.stdout + done.stderr


@pytest.mark.slow
def test_both_targets_run_to_the_report(ran):
    """Facts, tests in the interpreter, compilation, and a bench on the card: nothing fails, and nothing is missing."""
    folder, said = ran
    simulated, card = (collect(folder / "raw" / name) for name in ("third-sim", "third"))

    assert (simulated.record.verdict, card.record.verdict) == (Verdict.PASSED, Verdict.PASSED), said
    assert simulated.problems == card.problems == ()
    assert [case.verdict for case in simulated.cases] == [Verdict.PASSED] * 3
    assert [sample.verdict for sample in card.samples] == [Verdict.PASSED] * 2
    assert {(row.architecture, row.function, row.verdict) for row in simulated.compiled} == {("tv1", "scale_kernel", Verdict.PASSED)}
    assert {row.launched_by for row in simulated.compiled} == {"bench", "test"}


def test_a_triton_without_the_vendors_backend_is_named_once(tmp_path):
    """Not as host code that raised at each launch, in a run that passed."""
    (tmp_path / "targets.yml").write_text(TARGETS.replace(f"{DATA / 'site'}:", ""))
    package = shutil.copytree(DATA / "package", tmp_path / "package")
    variables = {
        "PYTHONPATH": str(REPOSITORY / "harness"),
        "COLUMNS": "200",
        "STUB_STATE": str(tmp_path),
        "TRITON_CACHE_DIR": str(tmp_path / "cache"),
    }
    words = ["run", "third-sim", "--targets", "targets.yml", "--kernels", package, "--stage", "compile", "--out", "out"]
    done = command.warpwave(*words, cwd=tmp_path, env={**os.environ, **variables})

    assert done.returncode == 3, done.stdout + done.stderr
    assert "the Triton here has no backend for tv1 (third)" in done.stdout + done.stderr
    assert "Install the vendor's Triton" in done.stdout
    assert "incomplete" not in done.stdout


@pytest.mark.slow
def test_the_card_has_the_name_of_its_architecture(ran):
    """In the facts and beside what its own JIT compiled; the figures that torch does not have are those of Triton's driver."""
    folder, _ = ran
    card = collect(folder / "raw" / "third")

    assert [(device.architecture, device.clock_mhz) for device in card.facts.devices] == [("tv1", 1000.0)]
    assert {row.architecture for row in card.launched} == {"tv1"}


@pytest.mark.slow
def test_what_the_card_compiles_is_what_was_compiled_without_it(ran):
    """Byte for byte: the pretended card is the real one to the JIT."""
    folder, _ = ran

    assert "1 launch of the card's own JIT, 1 equal byte for byte" in (folder / "comparison.md").read_text()


@pytest.mark.slow
def test_a_gate_that_cannot_be_judged_says_so(ran):
    """Neither limits nor a reader of this vendor's binaries: the row, the terminal and the report have the reason."""
    folder, said = ran
    compiled = collect(folder / "raw" / "third-sim").compiled
    unread = "warpwave cannot read binaries of the backend third"
    limits = "targets.yml has no limits for tv1"

    assert {json.dumps(row.unjudged, sort_keys=True) for row in compiled} == {
        json.dumps({"occupancy": limits, "private_bytes": unread, "spills": unread}, sort_keys=True)
    }
    for text in (said, (folder / "comparison.md").read_text().replace("`", "")):
        assert f"occupancy on third-sim for tv1, {len(compiled)} kernels:" in text
        assert f"spills, private_bytes on third-sim for tv1, {len(compiled)} kernels:" in text
        assert limits in text
        assert unread in text


NAMES = {
    "a number of CUDA's": ("cuda", 90, "sm_90"),
    "a number of another backend": ("third", 7, "third_7"),
    "a text": ("hip", "gfx942:sramecc+:xnack-", "gfx942"),
    "a mapping": ("third", {"name": "Third Card", "architecture": 85899345920, "arch": "tv1"}, "tv1"),
    "a mapping without a text": ("third", {"name": "Third Card", "architecture": 12}, "third_12"),
    "a mapping with a model": ("third", {"arch": "", "name": "Third Card"}, "Third Card"),
    "a mapping that says nothing": ("third", {}, "third"),
}


@pytest.mark.parametrize("kind", NAMES)
def test_an_architecture_has_one_name(kind):
    """Whatever Triton says; the configurations of kernels/ go by the same rule, which they cannot import."""
    backend, arch, name = NAMES[kind]
    rule = runpy.run_path(str(REPOSITORY / "kernels" / "configs" / "__init__.py"))["architecture"]
    target = SimpleNamespace(backend=backend, arch=arch, warp_size=16)

    assert (architecture_name(target), rule(target)) == (name, name)


def test_a_card_is_described_by_the_entry_of_its_name_and_backend():
    """A card says more than the targets file does; an entry of another vendor's is not taken for it."""
    properties = {"multiprocessor_count": 4, "max_shared_mem": 65536}
    entries = [
        Architecture(backend, {"arch": "tv1"}, 16, properties, name=name) for name, backend in (("other", "fourth"), ("mine", "third"))
    ]
    here = SimpleNamespace(backend="third", arch={"arch": "tv1", "units": 6}, warp_size=16)

    assert described(here, entries).name == "mine"
    assert described(SimpleNamespace(backend="third", arch={"arch": "tv2"}, warp_size=16), entries) is None


PRETEND = """
import sys
import torch
from warpwave.inside.fake_gpu.card import pretended_device
from warpwave.records import Architecture

kind = sys.argv[1]
before = torch.version.hip
properties = {"multiprocessor_count": 4, "max_shared_mem": 65536}
card = Architecture("third", {"arch": "tv1"}, 16, properties, {"hip": "9"}, torch_device=kind, name="tv1")
with pretended_device(card, lambda binary: (32, 0, 512), ("cuda",)):
    module = getattr(torch, kind)
    made = [torch.ones(4, device=name) for name in (kind, f"{kind}:0", "cuda")]
    made += [torch.ones(4).to(kind), getattr(torch.ones(4), kind)()]
    assert [str(x.device) for x in made] == [f"{kind}:0"] * 5, made
    assert getattr(made[0], f"is_{kind}") and not made[0].is_meta
    assert kind == "cuda" or not made[0].is_cuda
    assert torch.accelerator.current_accelerator().type == kind and torch.accelerator.is_available()
    assert module.is_available() and module.get_device_properties(0).multi_processor_count == 4
    assert module.get_device_capability() == {"arch": "tv1"} and torch.version.hip == "9"
    module.synchronize()
assert torch.version.hip == before
assert not module.is_available() if hasattr(module, "is_available") else kind == "third"
"""


@pytest.mark.parametrize("kind", ["cuda", "xpu", "third"])
def test_the_pretended_card_is_on_the_device_of_its_vendor(kind):
    """Of torch's own types or of one that torch does not know; a hard-coded device of another vendor's is put there, too."""
    done = command.python("-c", PRETEND, kind, cwd=REPOSITORY)

    assert done.returncode == 0, done.stderr


INTERPRET = """
import sys
import torch
from warpwave.inside.fake_gpu.card import interpreted_device
from warpwave.records import Architecture

kinds = sys.argv[1].split(",")
properties = {"multiprocessor_count": 64, "max_shared_mem": 65536}
card = Architecture("third", {"arch": "tv1"}, 16, properties, {"hip": "9"}, torch_device=kinds[0], name="tv1")
_, undo = interpreted_device(card, kinds)
made = [torch.ones(4, device=kind) for kind in kinds] + [torch.ones(4).to(f"{kind}:0") for kind in kinds]
assert {str(x.device) for x in made} == {f"{kinds[0]}:0"}, made
assert [getattr(made[0], f"is_{kinds[0]}"), made[0].is_cuda] == [True, kinds[0] == "cuda"]
assert str(torch.ones(4).device) == str(made[0].cpu().device) == "cpu" and float(made[0].sum()) == 4
assert torch.version.hip == "9" and torch.accelerator.current_accelerator().type == kinds[0]
undo()
assert torch.version.hip is None and str(made[0].device) == "cpu"
"""


@pytest.mark.parametrize("kinds", ["cuda", "xpu,cuda", "cuda,xpu", "third,cuda"])
def test_the_interpreter_redirects_every_type_that_the_targets_name(kinds):
    """To the package a tensor is on the device of the target's own vendor, which comes first."""
    done = command.python("-c", INTERPRET, kinds, cwd=REPOSITORY, env={**os.environ, "TRITON_INTERPRET": "1"})

    assert done.returncode == 0, done.stderr
