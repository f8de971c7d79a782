"""The types of the targets file, and of the `Target` that a run works with."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Union

from harness.config.doctor_checks import Doctor
from harness.records import CHOSEN, Architecture, Card, Stage
from harness.records.registry.engines import DEFAULT, HERE
from harness.records.toolchain import Linker, Toolchain

_STRICT = {"extra": "forbid"}
if TYPE_CHECKING:
    _EngineName = str
    _ChosenStage = Stage
else:  # what a targets file may say, for pydantic and for the schema
    _EngineName = Literal[tuple(HERE)]
    _ChosenStage = Literal[CHOSEN]


@dataclass(frozen=True)
class Image:
    """The source of a target's environment. `base` and `digest` name the vendor's image. The Dockerfile is next to the YAML file.

    `locks` is what the names of its locks begin with: `locks/<locks>-py3.12.txt` beside the Dockerfile. Targets with the same packages can
    share them. Left out, it is the target's name.
    """

    __pydantic_config__ = _STRICT
    dockerfile: str
    base: str
    digest: Union[str, None] = None
    locks: Union[str, None] = None
    build_args: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Devices:
    """How a container gets access to the GPUs.

    `gpus`: a device request, as `docker run --gpus`. `cdi`: a CDI device name; `{gpu}` in it becomes the index asked for, or `all`.
    `nodes`: glob patterns of device nodes. `volumes`: `source:destination[:ro]`. `groups`: numeric ids, added to those of the nodes.
    `apptainer`: options of `apptainer exec`, on a Slurm site.
    """

    __pydantic_config__ = _STRICT
    gpus: bool = False
    cdi: Union[str, None] = None
    nodes: tuple[str, ...] = ()
    volumes: tuple[str, ...] = ()
    groups: tuple[int, ...] = ()
    groups_from_nodes: bool = False
    apptainer: tuple[str, ...] = ()


@dataclass(frozen=True)
class Cards:
    """A command that prints facts about each card that torch does not report, and a pattern for its lines. The group `uuid` identifies the
    card, as in torch. Each other group is a fact with the group's name. The report shows cards that share the work and differ in a fact."""

    __pydantic_config__ = _STRICT
    run: tuple[str, ...] = ()
    rows: str = ""


@dataclass(frozen=True)
class Probe:
    """Checks of the environment before any kernel runs: a torch attribute that must be set, and a command that must succeed.

    `driver_file` contains the version of the kernel driver. `fix` is the advice for the user if the probe fails. `faults` maps patterns of
    the runtime's output, when it aborts a process because of the GPU, to verdicts.
    """

    __pydantic_config__ = _STRICT
    require: Union[str, None] = None
    command: tuple[str, ...] = ()
    driver_file: Union[str, None] = None
    fix: str = ""
    faults: dict[str, Literal["crashed", "gpu-hang", "oom"]] = field(default_factory=dict)
    cards: Cards = field(default_factory=Cards)


@dataclass(frozen=True)
class Entry:
    """One target as written in the YAML file. `quick` are those of its `architectures` that a quick run compiles for; all if empty."""

    __pydantic_config__ = _STRICT
    label: str
    image: Image
    stages: tuple[_ChosenStage, ...]
    engine: _EngineName = DEFAULT
    python: str = "python3"
    interpret: bool = False
    interpret_as: Union[str, None] = None
    emulate: Union[str, None] = None
    devices: Devices = field(default_factory=Devices)
    environment: dict[str, str] = field(default_factory=dict)
    visible_devices: Union[str, None] = None
    probe: Probe = field(default_factory=Probe)
    doctor: Doctor = field(default_factory=Doctor)
    architectures: tuple[str, ...] = ()
    quick: tuple[str, ...] = ()


@dataclass(frozen=True)
class File:
    """The whole YAML file."""

    __pydantic_config__ = _STRICT
    schema_version: Literal[1]
    targets: dict[str, Entry]
    architectures: dict[str, Card] = field(default_factory=dict)
    toolchains: dict[str, Toolchain] = field(default_factory=dict)
    linker: Linker = field(default_factory=Linker)


@dataclass(frozen=True)
class Target:
    """One vendor's environment, ready for use: `dockerfile` is a path, `architectures` are resolved. `torch_devices` are torch's names for
    the types of device of all architectures in the file, the target's own first.
    `toolchain` is set for a leg on one. `entry` is its name in the targets file: a leg may have another `name`."""

    name: str
    label: str
    engine: str
    stages: tuple[Stage, ...]
    python: str
    interpret: bool
    interpret_as: Union[Architecture, None]
    emulate: Union[Architecture, None]
    image: Image
    dockerfile: Path
    devices: Devices
    environment: dict[str, str]
    visible_devices: Union[str, None]
    probe: Probe
    doctor: Doctor
    architectures: tuple[Architecture, ...]
    quick: tuple[str, ...]
    torch_devices: tuple[str, ...]
    toolchain: Union[Toolchain, None] = None
    entry: str = ""

    @property
    def kind(self) -> str:
        """The name of the target in the targets file. Targets of one kind share images, locked packages and cards."""
        return self.entry or self.name

    @property
    def has_card(self) -> bool:
        """Whether it uses a GPU. If not, there is no driver or device to check."""
        return bool(self.probe.driver_file or self.devices.nodes or self.devices.gpus or self.devices.cdi)

    @property
    def needs_card(self) -> bool:
        """Whether its tests run on a real GPU."""
        return not self.interpret and self.emulate is None
