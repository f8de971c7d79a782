"""targets.yml: strict reading, overlays, and a third vendor that is data only."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpwave.config.files import merge
from warpwave.config.targets import load_targets, select
from warpwave.errors import ConfigError, UsageError
from warpwave.records import Job, Stage, dump

THIRD = """
architectures:
  bmg: {backend: intel, arch: bmg, warp_size: 16, properties: {multiprocessor_count: 20, max_shared_mem: 131072}}
targets:
  third:
    label: a third vendor
    stages: [test, bench, compile]
    image: {dockerfile: third.Dockerfile, base: "vendor/base:1"}
    devices: {nodes: ["/dev/dri/renderD*"], groups_from_nodes: true}
    visible_devices: THIRD_VISIBLE_DEVICES
    probe: {require: torch.version.third, fix: "Plug the card in."}
    architectures: [bmg]
"""

EMULATED = ["gfx942-emulated", "gfx950-emulated", "gfx90a-emulated", "gfx1100-emulated", "gfx1201-emulated"]


@pytest.fixture
def overlay(tmp_path):
    def write(text: str):
        path = tmp_path / "mine.yml"
        path.write_text(text)
        return path

    return write


def test_the_shipped_file_is_valid():
    """These targets, in this order, an emulated one for each architecture that can be, and eight for the one that has no GPU."""
    targets = load_targets()

    assert list(targets) == ["cpu", *EMULATED, "cuda", "rocm"]
    assert [targets[name].emulate.name for name in EMULATED] == [name.removesuffix("-emulated") for name in EMULATED]
    assert [name for name, target in targets.items() if target.needs_card] == ["cuda", "rocm"]
    assert len(targets["cpu"].architectures) == 8
    assert all(target.dockerfile.exists() for target in targets.values())


def test_both_vendors_pin_the_same_triton_and_torch():
    """Else the comparison would be one of compilers."""
    versions = {name: (t.image.build_args["TORCH_VERSION"], t.image.build_args["TRITON_VERSION"]) for name, t in load_targets().items()}

    assert len(set(versions.values())) == 1, versions


def test_a_third_vendor_is_data(overlay):
    """One entry makes a target: no code knows its name."""
    third = load_targets(overlay(THIRD))["third"]

    assert third.stages == (Stage.TEST, Stage.BENCH, Stage.COMPILE)
    assert third.architectures[0].arch == "bmg"
    assert third.dockerfile.name == "third.Dockerfile"
    assert third.dockerfile.parent == overlay("").parent


def test_an_architecture_may_be_a_mapping_on_a_device_of_its_own(overlay):
    """As Triton's driver describes it; every target redirects that type of device, the vendor's own to it first."""
    text = THIRD.replace("arch: bmg,", "torch_device: xpu, arch: {arch: bmg, fp64: true, sizes: [16, 32]},")
    targets = load_targets(overlay(text))

    assert targets["third"].architectures[0].arch == {"arch": "bmg", "fp64": True, "sizes": [16, 32]}
    assert targets["third"].torch_devices == ("xpu", "cuda")
    assert targets["cpu"].torch_devices == ("cuda", "xpu")
    assert load_targets()["cpu"].torch_devices == ("cuda",)


def test_a_job_brings_an_architecture_back_whole(overlay, tmp_path):
    """With its limits, which the inside computes occupancy from; a job of an earlier version has neither them nor a device."""
    cards = load_targets(overlay(THIRD.replace("arch: bmg,", "arch: {arch: bmg, sizes: [16]},")))["third"].architectures
    cards += load_targets()["cpu"].architectures
    job = Job("run-1", "third", (Stage.COMPILE,), "/kernels", "/output", architectures=cards, torch_devices=("xpu", "cuda"))
    dump(job, tmp_path / "job.json")

    assert Job.load(tmp_path / "job.json") == job

    old = json.loads((tmp_path / "job.json").read_text())
    del old["torch_devices"]
    for card in old["architectures"]:
        for key in ("torch_device", "program_threads", "multiprocessor"):
            del card[key]
    (tmp_path / "job.json").write_text(json.dumps(old))
    loaded = Job.load(tmp_path / "job.json")

    assert loaded.torch_devices == ("cuda",)
    assert {(card.torch_device, card.program_threads, card.multiprocessor) for card in loaded.architectures} == {("cuda", 1024, None)}


def test_an_emulated_card_reaches_the_inside(tmp_path):
    """Whole: host code asks it for its facts. It stands first among the devices, and needs no card."""
    target = load_targets()["gfx942-emulated"]
    job = Job("run-1", target.name, (Stage.TEST,), "/kernels", "/output", emulate=target.emulate)
    dump(job, tmp_path / "job.json")
    loaded = Job.load(tmp_path / "job.json")

    assert (loaded, loaded.needs_card, target.needs_card) == (job, False, False)
    assert (loaded.emulate.name, loaded.emulate.warp_size) == ("gfx942", 64)


def test_an_overlay_changes_one_key_and_keeps_the_rest(overlay):
    """Mappings merge, values and lists replace; the Dockerfile stays the shipped one."""
    plain = load_targets()["cuda"]
    laid = load_targets(overlay("targets: {cuda: {image: {base: 'my/base:2'}, stages: [test]}}"))["cuda"]

    assert (laid.image.base, laid.stages) == ("my/base:2", (Stage.TEST,))
    assert (laid.dockerfile, laid.image.build_args, laid.devices) == (plain.dockerfile, plain.image.build_args, plain.devices)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("targets: {cuda: {stages: [tests]}}", ["targets.cuda.stages[0]", "'tests'", "test", "bench", "compile"]),
        ("targets: {cuda: {device: x}}", ["targets.cuda.device", "devices", "stages"]),
        ("targets: {cuda: {devices: {gpu: 1}}}", ["targets.cuda.devices.gpu", "gpus"]),
        ("targets: {cuda: {probe: {fixx: a}}}", ["targets.cuda.probe.fixx", "fix"]),
        ("targets: {cuda: {probe: {cards: {row: a}}}}", ["targets.cuda.probe.cards.row", "rows"]),
        ("targets: {cuda: {probe: {cards: {rows: '('}}}}", ["targets.cuda.probe.cards.rows", "uuid"]),
        ("architectures: {sm_80: {grid: {w: 4}}}", ["architectures.sm_80.grid.w", "'x', 'y' or 'z'"]),
        (
            "architectures: {sm_80: {multiprocessor: {warp: 4}}}",
            ["architectures.sm_80.multiprocessor.warp", "schedulers, warps", "scalars"],
        ),
        ("architectures: {sm_80: {multiprocessor: {warps: 0}}}", ["architectures.sm_80.multiprocessor.warps", "0", "1"]),
        ("architectures: {x: {backend: b, arch: 1, warp_size: 8, properties: {}}}", ["architectures.x.properties.multiprocessor_count"]),
        ("targets: {new: {label: a}}", ["targets.new.image", "required"]),
        ("targets: {cuda: {architectures: [sm_20]}}", ["targets.cuda.architectures[0]", "'sm_20'", "gfx942"]),
        ("targets: {cuda: {stages: []}}", ["targets.cuda.stages", "at least one"]),
        ("targets: {gfx942-emulated: {emulate: sm_20}}", ["targets.gfx942-emulated.emulate", "'sm_20'", "gfx942"]),
        ("targets: {gfx942-emulated: {emulate: sm_80}}", ["targets.gfx942-emulated.emulate", "'sm_80'", "can_emulate", "gfx942"]),
        ("targets: {rocm: {emulate: gfx942, stages: [test]}}", ["targets.rocm", "emulate", "gfx942-emulated"]),
        ("targets: {gfx942-emulated: {stages: [test, bench]}}", ["targets.gfx942-emulated.stages", "emulated targets measure nothing"]),
        ("targets: {gfx942-emulated: {interpret: true}}", ["targets.gfx942-emulated.interpret", "one of the two"]),
        ("targets: {gfx942-emulated: {interpret_as: sm_80}}", ["targets.gfx942-emulated.interpret_as", "one of the two"]),
        ("schema_version: 2", ["schema_version", "2", "1"]),
        ("surprise: 1", ["surprise", "targets", "architectures"]),
        ("targets: [", ["not valid YAML", "line"]),
        (
            "a: &a [1, 1, 1, 1]\n" + "".join(f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n" for old, new in pairwise("abcdefg")),
            ["Anchors"],
        ),
        ("targets: &t\n  cpu: *t\n", ["without end", "Anchors"]),
        ("- a list", ["top level", "a list"]),
        ("targets: 5", ["targets", "5"]),
    ],
)
def test_wrong_yaml_names_file_path_found_and_allowed(overlay, text, words):
    """Every refusal says where, what was found and what is allowed, and has exit code 2."""
    with pytest.raises(ConfigError) as caught:
        load_targets(overlay(text))

    assert [word for word in ["mine.yml", *words] if word not in str(caught.value)] == []
    assert caught.value.exit_code == 2
    assert caught.value.meaning
    assert caught.value.remedy


def test_a_missing_file_is_a_config_error(tmp_path):
    """Not a traceback."""
    with pytest.raises(ConfigError, match="no targets file"):
        load_targets(tmp_path / "nowhere.yml")


def test_an_unknown_target_lists_the_known_ones():
    """The remedy is in the message."""
    with pytest.raises(UsageError) as caught:
        select(load_targets(), ["cuda", "metal"])

    assert "'metal'" in caught.value.happened
    assert f"cpu, {', '.join(EMULATED)}, cuda, rocm" in caught.value.remedy


def test_a_folder_is_no_target(tmp_path):
    """Who knows pytest writes the folder behind the command."""
    with pytest.raises(UsageError, match=f"but a folder[^$]*--kernels {tmp_path}"):
        select(load_targets(), [str(tmp_path)])


def test_the_order_asked_for_is_kept_and_doubles_fall_away():
    """`nox -s rocm cuda` runs rocm first."""
    assert [target.name for target in select(load_targets(), ["rocm", "cuda", "rocm"])] == ["rocm", "cuda"]


leaf = st.integers() | st.text(max_size=3)
tree = st.recursive(leaf, lambda inner: st.dictionaries(st.text(max_size=2), inner, max_size=3), max_leaves=8)


@given(tree, tree)
def test_merging_keeps_what_the_overlay_does_not_name(below, above):
    """Laying a tree over itself changes nothing, and every leaf of the overlay wins."""
    assert merge(below, below) == below
    merged = merge(below, above)
    if isinstance(below, dict) and isinstance(above, dict):
        assert set(merged) == set(below) | set(above)
    else:
        assert merged == above


def test_a_file_that_replaces_the_architectures_need_not_name_those_of_a_quick_run(tmp_path):
    """What is left of them is compiled; a name that is no architecture is refused."""
    overlay = tmp_path / "targets.yml"
    overlay.write_text("schema_version: 1\ntargets:\n  cpu: {architectures: [sm_90]}\n")

    assert [card.name for card in load_targets(overlay)["cpu"].architectures] == ["sm_90"]
    overlay.write_text("schema_version: 1\ntargets:\n  cpu: {quick: [sm_99]}\n")
    with pytest.raises(ConfigError, match="quick"):
        load_targets(overlay)
