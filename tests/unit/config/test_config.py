"""`[tool.warpwave]` of a kernel package: what each key means, and the sentence for each value that it may not have."""

from pathlib import Path
from typing import Literal

import pytest
from pydantic import BaseModel, ConfigDict

from warpwave.compare.upgrade import Tuned
from warpwave.config.files import refuse, validate
from warpwave.config.hosts import load_hosts
from warpwave.config.pyproject import VALUES, PackageEnvironment, load_environment, load_gates, load_what, tuned_configurations
from warpwave.config.targets import compiling_for, load_architectures, load_targets, named, named_architectures, nearest
from warpwave.errors import ConfigError, UsageError
from warpwave.records import COUNTERS, Architecture, BenchScript, Gates, Waiver, What, Which, from_json, to_json

WHOLE = """
[tool.warpwave]
launches = ["bench", "test", "bench"]
peers = ["torch", "copy", "torch"]
autotune = "all"
bench-scripts = ["benchmarks/*.py -- --dtype bf16", "b.py", "b.py"]
requirements = ["needs.txt", "more/needs.txt"]
env = {TRITON_DEBUG = "1"}
tuned = [{files = "configs/*.json", function = "fused", key = 3}]
"""


@pytest.fixture
def package(tmp_path):
    def write(text: str):
        (tmp_path / "pyproject.toml").write_text(text)
        (tmp_path / "kernels" / "mine").mkdir(parents=True, exist_ok=True)
        return tmp_path / "kernels"

    return write


def test_each_key_arrives_once_and_paths_are_those_of_the_file(package, tmp_path):
    kernels = package(WHOLE)
    (tmp_path / "b.py").touch()
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "a.py").touch()

    what = load_what(kernels, tmp_path)
    assert (what["launches"], what["peers"], what["autotune"]) == (("bench", "test"), ("torch", "copy"), "all")
    assert what["bench_scripts"] == (BenchScript("benchmarks/*.py", ("--dtype", "bf16")), BenchScript("b.py"))
    assert load_environment(kernels) == PackageEnvironment((tmp_path / "needs.txt", tmp_path / "more" / "needs.txt"), {"TRITON_DEBUG": "1"})
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "a.json").write_text('{"3": {"16": {"BLOCK": 64}}}')
    assert tuned_configurations(kernels) == [Tuned("configs/a.json", "16", {"BLOCK": 64}, "fused")]


@pytest.mark.parametrize("text", ["", "[project]\nname = 'a'\n"])
def test_without_the_table_there_are_the_defaults(package, text):
    kernels = package(text)

    assert load_gates(kernels) == Gates()
    assert What(**load_what(kernels, kernels)) == What(gates=Gates())
    assert (load_environment(kernels), tuned_configurations(kernels)) == (PackageEnvironment(), [])


def test_the_nearest_file_counts(package):
    kernels = package("[tool.warpwave]\npeers = ['far']\n")
    (kernels / "pyproject.toml").mkdir()
    assert load_what(kernels / "mine", kernels)["peers"] == ("far",)
    (kernels / "pyproject.toml").rmdir()
    (kernels / "pyproject.toml").write_text("[tool.warpwave]\npeers = ['near']\n")

    assert load_what(kernels / "mine", kernels)["peers"] == ("near",)
    assert load_gates(kernels).source == "pyproject.toml"


WAIVERS = """
[[tool.warpwave.waivers]]
gate = "spills"
reason = " of ours "
kernel = ["other", "min*"]

[[tool.warpwave.waivers]]
gate = "spills"
reason = "of a neighbour"
kernel = "neighbour"

[[tool.warpwave.waivers]]
gate = "spills"
reason = "of nobody"
kernel = "nobody"
"""


def test_of_a_larger_packages_waivers_those_of_its_other_kernels_are_left_out(package, tmp_path):
    """They are neither this run's nor unused. One that is about no kernel at all stays, to be reported as unused."""
    kernels = package(WAIVERS)
    for path in ("kernels/mine/bench_a.py", "elsewhere/neighbour/bench_b.py"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("")

    ours = Waiver("spills", "of ours", Which(("other", "min*")))
    assert load_gates(kernels).waivers == (ours, Waiver("spills", "of nobody", Which(("nobody",))))
    assert [waiver.reason for waiver in load_gates(tmp_path).waivers] == ["of ours", "of a neighbour", "of nobody"]


GATES = ", ".join(VALUES)
SCRIPTS = 'a list of globs, each with its arguments behind --, such as ["benchmarks/*.py -- --dtype bf16"]'
TUNED = 'a list of tables such as {files = "configs/*.json", function = "fused_kernel"}, with `key` if the entries are below one'
ENV = 'a table of texts, such as {NAME = "VALUE"}; a file never takes a value of yours'
PATTERNS = "a pattern or a list of patterns, none of them empty"
RULE = "rules[0].{}: found {}, allowed is {}: a rule can only tighten a gate; to allow more, add a waiver"
WRONG = {
    "bench-scripts = 'a.py'": f"bench-scripts: found 'a.py', allowed is {SCRIPTS}",
    "bench-scripts = [' ']": f"bench-scripts: found [' '], allowed is {SCRIPTS}",
    "requirements = 'a'": "requirements: found 'a', allowed is a list of files, relative to this one",
    "requirements = ['']": "requirements: found [''], allowed is a list of files, relative to this one",
    "requirements = [1]": "requirements: found [1], allowed is a list of files, relative to this one",
    "env = ['A']": f"env: found ['A'], allowed is {ENV}",
    "env = {A = 1}": f"env: found {{'A': 1}}, allowed is {ENV}",
    "tuned = {files = 'a'}": f"tuned: found {{'files': 'a'}}, allowed is {TUNED}",
    "tuned = [{function = 'a'}]": f"tuned: found [{{'function': 'a'}}], allowed is {TUNED}",
    "tuned = [{files = 'a', x = 'b'}]": f"tuned: found [{{'files': 'a', 'x': 'b'}}], allowed is {TUNED}",
    "peers = [1]": "peers: found [1], allowed is a list of providers' names",
    "gates.candidates = 'one'": "gates.candidates: found 'one', allowed is \"best\", where one clean candidate of an autotuned launch is"
    ' enough, or "all"',
    "gates.matrix = 1": "gates.matrix: found 1, allowed is true; false switches the gate off",
    "gates.spills = true": "gates.spills: found True, allowed is a whole number of registers, 0 or more; false switches the gate off",
    "gates.private_bytes = -1": "gates.private_bytes: found -1, allowed is a whole number of bytes, 0 or more; false switches the gate off",
    "gates.occupancy = 0": "gates.occupancy: found 0, allowed is a share above 0 and up to 1; false switches the gate off",
    "gates.occupancy = 1.1": "gates.occupancy: found 1.1, allowed is a share above 0 and up to 1; false switches the gate off",
    "gates.store_bits = 12": "gates.store_bits: found 12, allowed is one of 8, 16, 32, 64, 128; false switches the gate off",
    "rules = [{kernel = '*', spills = false}]": RULE.format("spills", "False", "a whole number of registers, 0 or more"),
    "rules = [{kernel = '*', lds_waits = false}]": RULE.format("lds_waits", "False", "true"),
    "rules = [{kernel = '*'}]": f"rules[0]: found a rule that sets no gate, allowed is one that sets at least one of {GATES}",
    "rules = [{spills = 0}]": 'rules[0].kernel: found nothing, allowed is a pattern of kernel names, "*" for all of them',
    "rules = [{kernel = '', spills = 0}]": f"rules[0].kernel: found '', allowed is {PATTERNS}",
    "rules = [{kernel = [], spills = 0}]": f"rules[0].kernel: found [], allowed is {PATTERNS}",
    "rules = [{kernel = ['a', ' '], spills = 0}]": f"rules[0].kernel: found ['a', ' '], allowed is {PATTERNS}",
    "rules = [{kernel = 'a', function = '', spills = 0}]": f"rules[0].function: found '', allowed is {PATTERNS}",
    "rules = [{kernel = 'a', launched_by = 'x', spills = 0}]": "rules[0].launched_by: found 'x', allowed is one of bench, test; without it,"
    " both",
    "waivers = [{kernel = 'a', reason = 'b'}]": f"waivers[0].gate: found nothing, allowed is one of {GATES}",
    "waivers = [{kernel = 'a', gate = 'x', reason = 'b'}]": f"waivers[0].gate: found 'x', allowed is one of {GATES}",
    "waivers = [{kernel = 'a', gate = 'spills'}]": "waivers[0].reason: found nothing, allowed is a sentence that says why: it is shown in"
    " the report",
    "waivers = [{kernel = 'a', gate = 'spills', reason = ' '}]": "waivers[0].reason: found ' ', allowed is a text that is not empty",
    "counters = [{counter = 'lines', at_most = 1}]": f"counters[0].counter: found 'lines', allowed is one of {', '.join(COUNTERS)}",
    "counters = [{at_most = 1}]": f"counters[0].counter: found nothing, allowed is one of {', '.join(COUNTERS)}",
    "counters = [{counter = 'lines64'}]": "counters[0].at_most: found nothing, allowed is a number from 0 on",
    "counters = [{counter = 'lines64', at_most = true}]": "counters[0].at_most: found True, allowed is a number from 0 on",
    "autotune = 'some'": "autotune: found 'some', allowed is 'one' or 'all'",
    "launches = ['bench', 'x']": "launches: found ['bench', 'x'], allowed is a list of bench and test",
}


@pytest.mark.parametrize("text", WRONG)
def test_what_a_key_may_not_be_is_refused_with_what_it_may(package, tmp_path, text):
    kernels = package(f"[tool.warpwave]\n{text}\n")
    with pytest.raises(ConfigError) as caught:
        load_gates(kernels)

    assert caught.value.happened == f"{tmp_path / 'pyproject.toml'}: tool.warpwave.{WRONG[text]}."
    assert "docs/reference/pyproject.md shows every key" in caught.value.remedy


def test_a_file_that_cannot_be_read_says_why(package, tmp_path):
    kernels = package("a = [\n")
    with pytest.raises(ConfigError) as caught:
        load_what(kernels, kernels)
    assert caught.value.happened.startswith(f"{tmp_path / 'pyproject.toml'} is not valid TOML: ")
    assert caught.value.happened != f"{tmp_path / 'pyproject.toml'} is not valid TOML: None."
    (tmp_path / "pyproject.toml").write_bytes(b"\xff")
    with pytest.raises(ConfigError) as caught:
        load_what(kernels, kernels)
    assert caught.value.happened.startswith(f"{tmp_path / 'pyproject.toml'} cannot be read: 'utf-8' codec can't decode byte 0xff")


# Which variables a file of a package may set.

REFUSED = (
    *("LD_PRELOAD", "BASH_ENV", "PYTHONPATH", "PYTHONSTARTUP", "PATH", "HOME", "ENV", "GIT_SSH", "OPENSSL_CONF", "SSL_CERT_FILE"),
    *("TRITON_PTXAS_PATH", "TRITON_CACHE_MANAGER", "TRITON_ENABLE_ASAN", "TRITON_USE_ANYTHING", "PYTORCH_ENABLE_ANYTHING", "TORCH_LOGS"),
    *("PIP_INDEX_URL", "LD_X_TRITON_ONLY", "OTHERPKG_X", "MYPKG", "MYPKGS_X", "triton_debug"),
)


def package_of_package_variables(folder: Path, name: str, project: str = "mypkg") -> Path:
    """A package whose files set a variable."""
    (folder / "pyproject.toml").write_text(f'[project]\nname = "{project}"\n[tool.warpwave]\nenv = {{{name} = "x"}}\n')
    (folder / "hosts.yml").write_text(f'cuda: {{environment: {{{name}: "x"}}}}\n')
    return folder


def refuses(folder: Path, name: str) -> None:
    """Neither file may set it, and a file of the user's may."""
    with pytest.raises(ConfigError, match=rf"{name}.* --env NAME=VALUE"):
        load_environment(folder)
    with pytest.raises(ConfigError, match=rf"{name}.* --env NAME=VALUE"):
        load_hosts(folder / "hosts.yml", load_targets(), trusted=False)
    assert load_hosts(folder / "hosts.yml", load_targets())["cuda"].environment == {name: "x"}


@pytest.mark.parametrize("name", REFUSED)
def test_a_package_sets_nothing_that_loads_code(tmp_path, name):
    """Neither its pyproject.toml nor its hosts.yml may; a file of the user's may."""
    refuses(package_of_package_variables(tmp_path, name), name)


@pytest.mark.parametrize(
    ("project", "name"),
    [("ld", "LD_PRELOAD"), ("Bash", "BASH_ENV"), ("git", "GIT_SSH"), ("triton-cache", "TRITON_CACHE_MANAGER"), ("openssl", "OPENSSL_CONF")],
)
def test_no_package_gets_a_name_by_calling_itself_so(tmp_path, project, name):
    """What never begins a variable wins over the package's own name, and over that of a module."""
    refuses(package_of_package_variables(tmp_path, name, project), name)
    (tmp_path / f"{project}.py").touch()
    refuses(package_of_package_variables(tmp_path, name), name)


@pytest.mark.parametrize(
    "name", ["FLAG_GEMS_X", "MY_OPS_BACKEND", "PLAIN_FAST", "ANY_TRITON_ONLY", "TRITON_F32_DEFAULT", "TORCHINDUCTOR_MAX_AUTOTUNE"]
)
def test_a_package_sets_its_own(tmp_path, name):
    """Names that begin with the project's or with a module's, settings that load nothing, and `X_TRITON_ONLY`."""
    (tmp_path / "src" / "my_ops").mkdir(parents=True)
    (tmp_path / "src" / "my_ops" / "relu.py").touch()
    (tmp_path / "plain.py").touch()
    package_of_package_variables(tmp_path, name, "Flag.Gems")

    assert load_environment(tmp_path).env == {name: "x"}
    assert load_hosts(tmp_path / "hosts.yml", load_targets(), trusted=False)["cuda"].environment == {name: "x"}


@pytest.mark.parametrize("build", ["base_image: a/b", "network: host", "args: {A: b}"])
def test_a_package_does_not_say_how_images_are_built(tmp_path, build):
    (tmp_path / "hosts.yml").write_text(f"cuda: {{build: {{{build}}}}}\n")

    with pytest.raises(ConfigError, match="build"):
        load_hosts(tmp_path / "hosts.yml", load_targets(), trusted=False)


# A file that a user wrote and that says what it may not: which key, what was found there, and what is allowed.


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Inner(Strict):
    size: int = 0
    kind: Literal["a", "b"] = "a"
    names: list[str] = []


class File(Strict):
    one: Inner = Inner()
    some: list[Inner] = []
    named: dict[str, Inner] = {}
    needed: int = 0
    maybe: Inner | None = None


UNKNOWN = "found a key that does not exist, allowed is one of"
INNER = f"{UNKNOWN} size, kind, names."
WRONG_STRICT = {
    "a key": ({"x": 1}, f"x: {UNKNOWN} one, some, named, needed, maybe."),
    "a key of a table": ({"one": {"x": 1}}, f"one.x: {INNER}"),
    "a key of a table in a list": ({"some": [{}, {"x": 1}]}, f"some[1].x: {INNER}"),
    "a key of a named table": ({"named": {"n": {"x": 1}}}, f"named.n.x: {INNER}"),
    "a key of a table that may be missing": ({"maybe": {"x": 1}}, f"maybe.x: {INNER}"),
    "a choice": ({"one": {"kind": "c"}}, "one.kind: found 'c', allowed is 'a' or 'b'."),
    "a number": ({"one": {"size": "x"}}, "one.size: found 'x', allowed is a valid integer, unable to parse string as an integer."),
    "no table": ({"one": 3}, "one: found 3, allowed is a table."),
    "one table": ({"some": {"size": 1}}, "some: found one table, allowed is a list of tables, each headed [[some]]."),
    "an entry": ({"one": {"names": ["a", 2]}}, "one.names[1]: found 2, allowed is a valid string."),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG_STRICT)
def test_what_is_wrong_is_named_with_what_is_allowed(name):
    """The first of it, with the file; the remedy names the page that shows every key."""
    raw, expected = WRONG_STRICT[name]
    with pytest.raises(ConfigError) as caught:
        validate(File, raw, Path("a.toml"), "the page shows every key")

    assert caught.value.happened == f"a.toml: {expected}"
    assert caught.value.remedy.endswith("; the page shows every key.")
    assert caught.value.meaning


def test_what_is_right_is_made():
    class Needs(Strict):
        key: int

    assert validate(Needs, {"key": 1}, Path("a"), "x") == Needs(key=1)
    with pytest.raises(ConfigError, match="a: key is missing"):
        validate(Needs, {}, Path("a"), "x")

    from typing import Annotated

    from pydantic import AfterValidator

    def check(value):
        return refuse("an even number", "nothing" if value == 1 else "") if value % 2 else value

    class Even(Strict):
        key: Annotated[int, AfterValidator(check)]

    for value, found in ((3, "3"), (1, "nothing")):
        with pytest.raises(ConfigError, match=f"a: key: found {found}, allowed is an even number."):
            validate(Even, {"key": value}, Path("a"), "x")


# The names of cards: which architecture each means, which one a misspelt name is near to, and where reports show both.


@pytest.fixture(scope="module")
def known() -> dict[str, Architecture]:
    return load_architectures()


@pytest.mark.parametrize(
    ("text", "key"),
    [
        *(("mi300x", "gfx942"), ("MI325X", "gfx942"), ("MI 300X", "gfx942"), ("AMD Instinct MI300X OAM", "gfx942"), ("mi250x", "gfx90a")),
        *(("gfx942:sramecc+:xnack-", "gfx942"), ("GFX942:sramecc+", "gfx942"), ("amdgcn-amd-amdhsa--gfx90a:xnack-", "gfx90a")),
        *(("7900xtx", "gfx1100"), ("RX 7900 XT", "gfx1100"), ("rx-7900-xtx", "gfx1100"), ("AMD Radeon RX 9070 XT", "gfx1201")),
        *(("rtx4090", "sm_89"), ("NVIDIA L4", "sm_89"), ("5090", "sm_120"), ("T4", "sm_75"), ("a10g", "sm_86"), ("strix halo", "gfx1151")),
        *(
            *(("h100", "sm_90"), ("H200", "sm_90"), ("NVIDIA H100 80GB HBM3", "sm_90"), ("sm90", "sm_90"), ("sm_90a", "sm_90")),
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

    assert from_json(Architecture, to_json(known["gfx942"])).shown == "gfx942 (MI300X)"


def test_the_option_replaces_what_a_target_compiles_for(known):
    """Each architecture once; interpreted host code sees the first, and a quick run leaves none of them out."""
    chosen = named_architectures("mi300x, H100,gfx942:xnack-", known, "--architectures")
    target = compiling_for(load_targets()["cpu"], chosen)

    assert [card.name for card in target.architectures] == ["gfx942", "sm_90"]
    assert (target.interpret_as, target.quick) == (known["gfx942"], ())
    assert [card.shown for card in named_architectures("mi355x,gfx942,h200", known, "")] == [
        "gfx950 (MI355X)",
        "gfx942 (MI300X)",
        "sm_90 (H200)",
    ]
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
