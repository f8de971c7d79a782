"""What goes into a job: `job.json`, which the host writes and the inside reads."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, Union

from warpwave.records.gates import Gates
from warpwave.records.selection import TEST_FILES, Chosen
from warpwave.records.words import SCHEMA_VERSION, STRICT, Bound, Bytes, Few, Many, Name, Page, Stage, Verdict, Word

# What Triton's `GPUTarget` says of an architecture: a number, a text, or a mapping of facts, depending on the backend.
Fact = Union[bool, int, float, str, None, list[Union[int, float, str]]]
Arch = Union[int, str, dict[str, Fact]]
AtLeastOne = Annotated[int, Bound(1)]


@dataclass(frozen=True)
class Multiprocessor:
    """What one multiprocessor (SM, CU, WGP, Xe-core) has, and in which portions it gives it to programs.

    It has `schedulers`, and a warp belongs to one of them. `warps` are the slots of one scheduler; `programs` those of the multiprocessor,
    None if the slots of the warps always run out first. `registers` are the 32-bit registers that each lane of a scheduler has for all of
    its warps; a warp gets them in portions of `register_unit`. Programs get `shared_bytes` in portions of `shared_unit`, and each takes
    `shared_reserved` more for the system. `scalars` are the scalar registers of one scheduler; a warp gets them in portions of
    `scalar_unit`, and takes `scalars_reserved` more for the system. `scalars` is None if every warp has a fixed number of its own.
    """

    __pydantic_config__ = STRICT
    schedulers: AtLeastOne
    warps: AtLeastOne
    registers: AtLeastOne
    register_unit: AtLeastOne
    shared_bytes: Bytes
    shared_unit: AtLeastOne
    programs: Union[AtLeastOne, None] = None
    shared_reserved: Bytes = 0
    scalars: Union[AtLeastOne, None] = None
    scalar_unit: AtLeastOne = 1
    scalars_reserved: Annotated[int, Bound(0)] = 0


@dataclass(frozen=True)
class Card:
    """What a targets file says of a GPU that kernels are compiled for.

    `backend`, `arch` and `warp_size` are those of Triton's `GPUTarget`. `properties` is what Triton's `get_device_properties` answers on
    that card, `torch_device` is torch's name for the type of device, `torch_version` is what `torch.version` has there, and
    `torch_properties` what torch's `get_device_properties` has. `cache_bytes` is the size of a cache between L2 and memory, which no driver
    reports; 0 if there is none. `program_threads` is the largest number of threads that a program can be launched with. `grid` is the
    largest size of each axis of a grid, `axis_threads` the largest number of threads along one axis (0: any), and `cluster` the largest
    number of blocks in a cluster (0: any). Without `multiprocessor` no occupancy is computed. `can_emulate`: warpwave can execute its
    machine code on a CPU.
    `torch_compile_ahead`: without the user's word, torch's compiler works before this card is taken.
    `cards` are the names that people know such cards by; reports show the first.
    """

    __pydantic_config__ = STRICT
    backend: str
    arch: Arch
    warp_size: int
    properties: dict[str, int]
    torch_version: dict[str, str] = field(default_factory=dict)
    torch_properties: dict[str, Union[int, str]] = field(default_factory=dict)
    cache_bytes: int = 0
    torch_device: str = "cuda"
    program_threads: int = 1024
    grid: dict[Literal["x", "y", "z"], AtLeastOne] = field(default_factory=dict)
    axis_threads: Annotated[int, Bound(0)] = 0
    cluster: Annotated[int, Bound(0)] = 0
    can_emulate: bool = False
    torch_compile_ahead: bool = False
    multiprocessor: Union[Multiprocessor, None] = None
    cards: Annotated[tuple[Name, ...], Few] = ()


@dataclass(frozen=True)
class Architecture(Card):
    """A GPU that kernels are compiled for, with the name that the report calls it by."""

    __pydantic_config__ = STRICT
    name: str = field(kw_only=True)

    @classmethod
    def restore(cls, raw: dict[str, Any]) -> Architecture:
        """Undo `dataclasses.asdict`. The values are trusted, as in `Job.load`."""
        names = {key: tuple(raw.get(key, ())) for key in ("cards",)}
        return cls(**{**raw, **names, "multiprocessor": Multiprocessor(**raw["multiprocessor"]) if raw.get("multiprocessor") else None})


@dataclass(frozen=True)
class PytestSettings:
    """What a package tells pytest, as far as warpwave must know it: `file` holds all of it. Paths are relative to the package's root.

    Without a `file`, the package has no settings.
    """

    __pydantic_config__ = STRICT
    file: Page = ""
    pythonpath: Annotated[tuple[Page, ...], Few] = ()
    python_files: Annotated[tuple[Page, ...], Few] = TEST_FILES
    testpaths: Annotated[tuple[Page, ...], Many] = ()
    addopts: Annotated[tuple[Page, ...], Many] = ()

    @classmethod
    def restore(cls, raw: dict[str, Any]) -> PytestSettings:
        """Undo `dataclasses.asdict`; trusted, as in `Job.load`."""
        lists: dict[str, Any] = {key: tuple(value) for key, value in raw.items() if key != "file"}
        return cls(raw.get("file", ""), **lists)


@dataclass(frozen=True)
class BenchScript:
    """Benchmarks that are scripts, run as they are: files in the package that match the glob `pattern`, each with these `arguments`."""

    __pydantic_config__ = STRICT
    pattern: Page
    arguments: Annotated[tuple[Page, ...], Few] = ()


@dataclass(frozen=True, kw_only=True)
class JobOptions:
    """What the user asks of the stages. An option here comes from the command line and goes into `job.json` under the same name.

    Without `gates` generated code is not judged. The bench stage ends a point when its median is known to within `precision` (a share of
    it; the half-width of the 95% interval), or when its time is up. With `again` it measures everything twice: an A/A run. With
    `torch_compile_ahead`, torch's compiler works for the sweep before the card is taken; None leaves that to the card's entry in the
    targets file. The compile stage leaves out the launches of the providers `peers`, which are not the package's own. Modules are imported
    from `import_folders`, which are relative to the package's root. `package_names` are what the package calls itself.
    `package_variables` are those that its own files set: only stages that run its code get them. `sanitize` says whether the test stage
    checks the accesses of interpreted kernels to memory; None leaves that to warpwave. `test_workers` processes run tests at a time, on
    each card; 0 means as many as fit. The compile stage packs what it compiled for the architectures `save_compiled`.
    `compiled` is the SHA-256 of such kernels' list in another run, if this one is to use them.
    """

    __pydantic_config__ = STRICT
    chosen: Chosen = field(default_factory=Chosen)  # first: where two jobs differ, `--resume` names the first difference
    benches: tuple[str, ...] = ("bench_*.py",)
    bench_scripts: Annotated[tuple[BenchScript, ...], Few] = ()
    launches: tuple[str, ...] = ("bench", "test")
    peers: Annotated[tuple[Name, ...], Many] = ()
    pytest_args: tuple[str, ...] = ()
    quick: bool = False
    sanitize: Union[bool, None] = None
    autotune: str = "one"
    again: bool = False
    precision: float = 0.0075
    torch_compile_ahead: Union[bool, None] = None
    test_workers: int = 1
    save_compiled: Annotated[tuple[Name, ...], Few] = ()
    compiled: Word = ""
    test_limit_s: float = 300.0
    stage_limit_s: float = 3600.0
    gates: Union[Gates, None] = None
    import_folders: Annotated[tuple[Page, ...], Few] = (".",)
    package_names: Annotated[tuple[Page, ...], Few] = ()
    package_variables: Annotated[dict[Name, Page], Many] = field(default_factory=dict)
    pytest: PytestSettings = field(default_factory=PytestSettings)


@dataclass(frozen=True)
class Job(JobOptions):
    """The job of the inside, as `job.json` holds it. Paths are those that the inside sees.

    `package_root` is the folder of the whole package, of which `kernels` is a part; empty if `kernels` is all of it.
    `device_faults` are patterns of what a GPU's runtime prints when it aborts a process, and the verdict that each stands for.
    `visible_devices` is the variable that selects the cards which a process sees. If it is set, the cards share tests and sweeps; `gpus` is
    their number (0: all visible ones). `card_query` is a command that prints what torch does not say of a card; `card_rows` reads it.
    `torch_devices` are torch's names for the types of device in the targets file, the target's own first. Where there is no card, a tensor
    that the package wants on one of them is put elsewhere. `torch_index` is the package index that has torch for this target.
    `interpret_as` is the card that host code sees in Triton's interpreter.
    `emulate` is the card whose machine code the test stage executes on the CPU; host code sees that card.
    A quick run compiles for `architectures` and leaves out those of `not_compiled_for`. With `lease`, each stage asks the host for the card
    before it uses it, and gives it back afterwards.
    If the job is a shard, `files` are its test files and benches, and `division` is a digest of what all shards have.
    """

    __pydantic_config__ = STRICT
    run_id: Name
    target: Name
    stages: Annotated[tuple[Stage, ...], Few]
    kernels: Page
    output: Page
    interpret: bool = False
    interpret_as: Union[Architecture, None] = None
    emulate: Union[Architecture, None] = None
    require: Union[str, None] = None
    probe: tuple[str, ...] = ()
    driver_file: Union[str, None] = None
    workers: int = 0
    architectures: tuple[Architecture, ...] = ()
    not_compiled_for: Annotated[tuple[Name, ...], Many] = ()
    device_faults: dict[str, Verdict] = field(default_factory=dict)
    probe_limit_s: float = 120.0
    visible_devices: Union[str, None] = None
    gpus: int = 0
    card_query: tuple[str, ...] = ()
    card_rows: str = ""
    torch_devices: Annotated[tuple[Name, ...], Few] = ("cuda",)
    torch_index: Page = ""
    package_root: Page = ""
    files: Union[tuple[Page, ...], None] = None
    division: Word = ""
    lease: bool = False
    schema_version: int = SCHEMA_VERSION

    @property
    def needs_card(self) -> bool:
        """Whether the tests run on a real GPU."""
        return not self.interpret and self.emulate is None

    @property
    def sanitizes(self) -> bool:
        """Whether the test stage checks accesses to memory: without a card, unless the user says otherwise."""
        return not self.needs_card and self.sanitize is not False

    @classmethod
    def load(cls, path: Path) -> Job:
        """Read a job that the host wrote; it is trusted, so this is a plain conversion."""
        raw = json.loads(path.read_text())
        raw["stages"] = tuple(Stage(stage) for stage in raw["stages"])
        raw["architectures"] = tuple(Architecture.restore(entry) for entry in raw["architectures"])
        for key in ("interpret_as", "emulate"):
            raw[key] = Architecture.restore(raw[key]) if raw.get(key) else None
        for key in (
            "probe",
            "benches",
            "launches",
            "peers",
            "pytest_args",
            "card_query",
            "torch_devices",
            "not_compiled_for",
            "import_folders",
            "package_names",
            "save_compiled",
        ):
            if key in raw:
                raw[key] = tuple(raw[key])
        raw["bench_scripts"] = tuple(BenchScript(each["pattern"], tuple(each["arguments"])) for each in raw.get("bench_scripts", ()))
        raw["chosen"] = Chosen.restore(raw.get("chosen", {}))
        raw["pytest"] = PytestSettings.restore(raw.get("pytest", {}))
        raw["gates"] = Gates.restore(raw["gates"]) if raw.get("gates") else None
        raw["device_faults"] = {pattern: Verdict(verdict) for pattern, verdict in raw.get("device_faults", {}).items()}
        return cls(**raw)
