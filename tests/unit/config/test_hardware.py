"""The names of cards: which architecture each means, which one a misspelt name is near to, and where reports show both."""

import pytest

from warpwave.config.hardware import named, nearest
from warpwave.config.targets import compiling_for, load_architectures, load_targets, named_architectures
from warpwave.errors import ConfigError, UsageError
from warpwave.records import Architecture, from_json, to_json


@pytest.fixture(scope="module")
def known() -> dict[str, Architecture]:
    """The architectures of the shipped file."""
    return load_architectures()


@pytest.mark.parametrize(
    ("text", "key"),
    [
        *(("mi300x", "gfx942"), ("MI325X", "gfx942"), ("MI 300X", "gfx942"), ("AMD Instinct MI300X OAM", "gfx942"), ("mi250x", "gfx90a")),
        *(("gfx942:sramecc+:xnack-", "gfx942"), ("GFX942:sramecc+", "gfx942"), ("amdgcn-amd-amdhsa--gfx90a:xnack-", "gfx90a")),
        *(("7900xtx", "gfx1100"), ("RX 7900 XT", "gfx1100"), ("rx-7900-xtx", "gfx1100"), ("AMD Radeon RX 9070 XT", "gfx1201")),
        *(("rtx4090", "sm_89"), ("NVIDIA L4", "sm_89"), ("5090", "sm_120"), ("T4", "sm_75"), ("a10g", "sm_86"), ("strix halo", "gfx1151")),
        *(
            ("h100", "sm_90"),
            ("H200", "sm_90"),
            ("NVIDIA H100 80GB HBM3", "sm_90"),
            ("sm90", "sm_90"),
            ("sm_90a", "sm_90"),
            ("SM_90A", "sm_90"),
        ),
        *(("NVIDIA A100-SXM4-80GB", "sm_80"), ("b200", "sm_100"), ("sm_100a", "sm_100"), ("9.0", "sm_90")),
    ],
)
def test_a_card_goes_by_its_name(known, text, key):
    assert named(text, known) is known[key]


@pytest.mark.parametrize(
    ("text", "near"),
    [
        *(("mi30x", "MI300X (gfx942)"), ("h10", "H100 (sm_90)"), ("gfx943", "gfx942 (MI300X)"), ("sm_91", "sm_90 (H100)")),
        *(("gfx942:sramecc", "gfx942 (MI300X)"), ("7900xxt", "RX 7900 XT (gfx1100)"), ("potato", ""), ("", "")),
    ],
)
def test_a_wrong_name_is_answered_with_the_nearest(known, text, near):
    assert named(text, known) is None
    assert nearest(text, known) == near


def test_every_name_of_the_shipped_file_means_its_own_entry(known):
    for card in known.values():
        assert all(named(name, known) is card for name in (card.name, *card.also, *card.cards))


def test_the_option_replaces_what_a_target_compiles_for(known):
    """Each architecture once; interpreted host code sees the first, and a quick run leaves none of them out."""
    chosen = named_architectures("mi300x, H100,gfx942:xnack-", known, "--architectures")
    target = compiling_for(load_targets()["cpu"], chosen)

    assert [card.name for card in target.architectures] == ["gfx942", "sm_90"]
    assert (target.interpret_as, target.quick) == (known["gfx942"], ())
    assert compiling_for(load_targets()["cpu"], ()) == load_targets()["cpu"]
    assert named_architectures("all", known, "--architectures") == tuple(known.values())
    with pytest.raises(UsageError, match=r"(?s)mi30x.*nearest is MI300X \(gfx942\)"):
        named_architectures("h100,mi30x", known, "--architectures")


def test_a_targets_file_may_use_the_names_and_add_some(tmp_path):
    file = tmp_path / "mine.yml"
    text = "schema_version: 1\narchitectures: {sm_90: {cards: [H100, Hopper]}}\n"
    text += "targets: {cpu: {architectures: [mi300x, hopper], quick: [h100]}}"
    file.write_text(text)
    target = load_targets(file)["cpu"]

    assert ([card.shown for card in target.architectures], target.quick) == (["gfx942 (MI300X)", "sm_90 (H100)"], ("sm_90",))
    file.write_text(text.replace("mi300x", "mi30x"))
    with pytest.raises(ConfigError, match=r"architectures\[0\]: found 'mi30x'.*the nearest is MI300X \(gfx942\)"):
        load_targets(file)


def test_the_name_survives_the_job(known):
    assert from_json(Architecture, to_json(known["gfx942"])).shown == "gfx942 (MI300X)"
