"""What goes into a job: `job.json`, which the host writes and the inside reads."""

from __future__ import annotations

from dataclasses import field
from pathlib import Path
from typing import Annotated, Any, Literal, Union

from warpwave.records.gates import Gates
from warpwave.records.selection import TEST_FILES, Chosen
from warpwave.records.words import Bound, Bytes, Few, Many, Name, Page, Seconds, Stage, Verdict, Word, record, with_card
from warpwave.records.writing import from_json

# What Triton's `GPUTarget` says of an architecture: a number, a text, or a mapping of facts, depending on the backend.
Fact = Union[bool, int, float, str, None, list[Union[int, float, str]]]
Arch = Union[int, str, dict[str, Fact]]
AtLeastOne = Annotated[int, Bound(1)]


@record(frozen=True)
class Multiprocessor:
    """What one multiprocessor (SM, CU, WGP, Xe-core) has, and in which portions it gives it to programs.

    It has `schedulers`, and a warp belongs to one of them. `warps` are the slots of one scheduler; `programs` those of the multiprocessor,
    None if the slots of the warps always run out first. `registers` are the 32-bit registers that each lane of a scheduler has for all of
    its warps; a warp gets them in portions of `register_unit`. Programs get `shared_bytes` in portions of `shared_unit`, and each takes
    `shared_reserved` more for the system. `scalars` are the scalar registers of one scheduler; a warp gets them in portions of
    `scalar_unit`, and takes `scalars_reserved` more for the system. `scalars` is None if every warp has a fixed number of its own.
    """

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


@record(frozen=True)
class Card:
    """What a targets file says of a GPU that kernels are compiled for.

    `backend`, `arch` and `warp_size` are those of Triton's `GPUTarget`. `properties` is what Triton's `get_device_properties` answers on
    that card, `torch_device` is torch's name for the type of device, `torch_version` is what `torch.version` has there, and
    `torch_properties` what torch's `get_device_properties` has. `cache_bytes` is the size of a cache between L2 and memory, which no driver
    reports; 0 if there is none. `program_threads` is the largest number of threads that a program can be launched with. `grid` is the
    largest size of each axis of a grid, `axis_threads` the largest number of threads along one axis (0: any), and `cluster` the largest
    number of blocks in a cluster (0: any). `descriptor` is the longest axis of a tensor map, and its largest stride in bytes. Without
    `multiprocessor` no occupancy is computed. `can_emulate`: warpwave can execute its machine code on a CPU.
    `torch_compile_ahead`: torch's compiler works before this card is taken.
    `cards` are the names that people know such cards by; reports show the first. `also` are other names of the architecture.
    """

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
    descriptor: dict[Literal["axis", "stride"], AtLeastOne] = field(default_factory=dict)
    can_emulate: bool = False
    torch_compile_ahead: bool = False
    multiprocessor: Union[Multiprocessor, None] = None
    cards: Annotated[tuple[Name, ...], Few] = ()
    also: Annotated[tuple[Name, ...], Few] = ()


@record(frozen=True)
class Architecture(Card):
    """A GPU that kernels are compiled for, with the name that the report calls it by."""

    name: str = field(kw_only=True)

    @property
    def card(self) -> str:
        """The name that people know it by; empty if the targets file has none."""
        return self.cards[0] if self.cards else ""

    @property
    def shown(self) -> str:
        """`gfx942 (MI300X)`."""
        return with_card(self.name, self.card)


@record(frozen=True)
class PytestSettings:
    """What a package tells pytest, as far as warpwave must know it: `file` holds all of it. Paths are relative to the package's root.
    Without a `file`, the package has no settings."""

    file: Page = ""
    pythonpath: Annotated[tuple[Page, ...], Few] = ()
    python_files: Annotated[tuple[Page, ...], Few] = TEST_FILES
    testpaths: Annotated[tuple[Page, ...], Many] = ()
    addopts: Annotated[tuple[Page, ...], Many] = ()


@record(frozen=True)
class BenchScript:
    """Benchmarks that are scripts, run as they are: files in the package that match the glob `pattern`, each with these `arguments`."""

    pattern: Page
    arguments: Annotated[tuple[Page, ...], Few] = ()


@record(frozen=True, kw_only=True)
class What:
    """What to run: the choice of stages, tests and benches, and how each of them is done.

    Without `stages`, a target runs its own. Without `gates`, generated code is not judged. The bench stage ends a point when its median is
    known to within `precision` (a share of it; the half-width of the 95% interval), or when its time is up. With `again` it measures
    everything twice: an A/A run. The compile stage leaves out the launches of the providers `peers`, which are not the package's own.
    With `profile`, the test stage counts what emulated kernels ask of the card; with `passes`, it executes their code behind each pass.
    `sanitize` says whether the test stage checks the accesses of interpreted kernels to memory; None leaves that to warpwave. With
    `autotune`, a test without a card runs with `one` configuration of its autotuned kernels, or with `all`. `configs` are those that tests
    run with instead, `matmul: BLOCK=128 num_warps=4`. The compile stage packs what it compiled for the architectures `save_compiled`.
    `compiled` is the SHA-256 of such kernels' list in another run, if this one is to use them.
    """

    chosen: Chosen = field(default_factory=Chosen)  # first: where two jobs differ, `--resume` names the first difference
    stages: Annotated[tuple[Stage, ...], Few] = ()
    benches: tuple[str, ...] = ("bench_*.py",)
    bench_scripts: Annotated[tuple[BenchScript, ...], Few] = ()
    launches: tuple[str, ...] = ("bench", "test")
    peers: Annotated[tuple[Name, ...], Many] = ()
    pytest_args: tuple[str, ...] = ()
    quick: bool = False
    sanitize: Union[bool, None] = None
    profile: bool = False
    passes: bool = False
    autotune: str = "one"
    configs: Annotated[tuple[Page, ...], Few] = ()
    again: bool = False
    precision: float = 0.0075
    save_compiled: Annotated[tuple[Name, ...], Few] = ()
    compiled: Word = ""
    gates: Union[Gates, None] = None


@record(frozen=True)
class Cap:
    """The limit on a results folder. The default is about twice what `collect` reads of one, which leaves room for logs."""

    bytes: int = 4 << 30
    files: int = 50_000

    def __str__(self) -> str:
        """Return both limits as words."""
        return f"{self.bytes / (1 << 30):g} GiB, and {self.files} files"


@record(frozen=True)
class Budget:
    """How long the stages of a target may take together, in seconds, and what they begin with. `failed` are the tests that failed in the
    last run, `changed` the files that a change touches, and `edited` those of them that differ themselves. What there is no time for is
    left out. So is what the list of known failures has not seen: by target, how many tests it has of a function in a stage, as
    `test t.py::test_add` or `compile gfx942 t.py::test_add`; all of a target that is not in it."""

    seconds: Seconds
    failed: tuple[Page, ...] = ()
    changed: tuple[Page, ...] = ()
    edited: tuple[Page, ...] = ()
    seen: dict[Name, dict[Page, int]] = field(default_factory=dict)


@record(frozen=True, kw_only=True)
class Limits:
    """Limits, in seconds: for one test or point, for a stage, for a target; how long a stopped target may take to write its results; how
    long to wait for a card in use. `cap` limits the results. `test_workers` processes run tests at a time, on each card; 0: as many as fit.
    With a `budget`, stages end in time and leave out the rest."""

    test_s: Seconds = 300.0
    stage_s: Seconds = 3600.0
    target_s: Seconds = 3 * 3600.0
    grace_s: Seconds = 30.0
    gpu_wait_s: Seconds = 600.0
    cap: Cap = field(default_factory=Cap)
    test_workers: int = 1
    budget: Union[Budget, None] = None


@record(frozen=True, kw_only=True)
class Declared:
    """What a package's own files say of it: folders to import from, relative to its root; what it calls itself; pytest's settings.
    `variables` are those that its files set: only stages that run its code get them."""

    import_folders: Annotated[tuple[Page, ...], Few] = (".",)
    names: Annotated[tuple[Page, ...], Few] = ()
    variables: Annotated[dict[Name, Page], Many] = field(default_factory=dict)
    pytest: PytestSettings = field(default_factory=PytestSettings)


@record(frozen=True)
class Job:
    """The job of the inside, as `job.json` holds it. Paths are those that the inside sees.

    `what`, `limits` and `declared` are those of the run's options, for this target and shard.
    `package_root` is the folder of the whole package, of which `kernels` is a part; empty if `kernels` is all of it.
    `device_faults` are patterns of what a GPU's runtime prints when it aborts a process, and the verdict that each stands for.
    `visible_devices` is the variable that selects the cards which a process sees. If it is set, the cards share tests and sweeps; `gpus` is
    their number (0: all visible ones). `card_query` is a command that prints what torch does not say of a card; `card_rows` reads it.
    `torch_devices` are torch's names for the types of device in the targets file, the target's own first. Where there is no card, a tensor
    that the package wants on one of them is put elsewhere. `torch_index` is the package index that has torch for this target.
    `interpret_as` is the card that host code sees in Triton's interpreter.
    `emulate` is the card whose machine code the test stage executes on the CPU; host code sees that card. `rocjitsu` is the card that
    AMD's simulator shows to torch, as a real one.
    A quick run compiles for `architectures` and leaves out those of `not_compiled_for`. With `lease`, each stage asks the host for the card
    before it uses it, and gives it back afterwards.
    If the job is a shard, `files` are its test files and benches, and `division` is a digest of what all shards have.
    """

    run_id: Name
    target: Name
    kernels: Page
    output: Page
    what: What = field(default_factory=What)
    limits: Limits = field(default_factory=Limits)
    declared: Declared = field(default_factory=Declared)
    interpret: bool = False
    interpret_as: Union[Architecture, None] = None
    emulate: Union[Architecture, None] = None
    rocjitsu: Union[Architecture, None] = None
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
    schema_version: int = 2

    @property
    def needs_card(self) -> bool:
        """Whether the tests run on a real GPU, or on one that torch takes for real."""
        return not self.interpret and self.emulate is None

    @property
    def sanitizes(self) -> bool:
        """Whether the test stage checks accesses to memory: without a card by default, with one if the user asks for it."""
        return self.what.sanitize is True if self.needs_card and not self.rocjitsu else self.what.sanitize is not False

    @classmethod
    def load(cls, path: Path) -> Job:
        """Read a job that the host wrote. Raises ValueError if it is not one."""
        return from_json(cls, path.read_text())

    @staticmethod
    def of_version_1(raw: dict[str, Any]) -> dict[str, Any]:
        """Return a job of version 1, as JSON has it, in today's form. Its options were not in groups."""
        groups: dict[str, dict[str, str]] = {
            "what": {name: name for name in What.__dataclass_fields__},
            "limits": {"test_limit_s": "test_s", "stage_limit_s": "stage_s", "test_workers": "test_workers"},
            "declared": {
                "import_folders": "import_folders",
                "package_names": "names",
                "package_variables": "variables",
                "pytest": "pytest",
            },
        }
        found = {group: {name: raw[old] for old, name in names.items() if old in raw} for group, names in groups.items()}
        gone = {"torch_compile_ahead", *(old for names in groups.values() for old in names)}
        return {**{key: value for key, value in raw.items() if key not in gone}, **found, "schema_version": Job.schema_version}
