# /// script
# dependencies = ["nox>=2025.2.9", "pyyaml>=6"]
# ///
"""`nox -s cpu`, `nox -s cuda rocm`: one session a target of docker/targets.yml, and the project's own checks.

What stands behind `--` goes to `warpwave run`, e.g. `nox -s cuda -- --kernels ../my_ops --gpu 0 --stage test,bench --quick`.
The comparison is written once, at the end, also when a target failed.
"""

import json
import os
import secrets
import shutil
import time
from pathlib import Path
from typing import Any

import nox
import yaml

nox.options.sessions = ["cpu"]
nox.options.reuse_existing_virtualenvs = True
nox.needs_version = ">=2025.2.9"

TARGETS = yaml.safe_load(Path(__file__).with_name("docker").joinpath("targets.yml").read_text())["targets"]
CPU = TARGETS["cpu"]["image"]["build_args"]
INSIDE = [f"torch=={CPU['TORCH_VERSION']}", f"triton=={CPU['TRITON_VERSION']}", "pytest", "numpy"]
IMPORT_ONCE = """
from importlib.util import find_spec
from pathlib import Path
if not Path(find_spec("torch").origin).with_name("__pycache__").is_dir():
    import torch._dynamo, triton.testing, triton.runtime.interpreter, triton.backends.amd.compiler, triton.backends.nvidia.compiler, pytest
"""
GROUPS = nox.project.load_toml("pyproject.toml")
OUT = Path("reports") / "runs" / f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(2)}"
EXPECTED: list[str] = []
OVERLAYS: list[str] = []  # targets files that define some of them
STARTED: dict[str, list[tuple[Path, str]]] = {}  # the targets that run already, with the folder and patterns of their records
# nox would kill its children 0.5 s after Ctrl-C; a container needs longer to stop, and its results longer to be kept.
PATIENCE = {"interrupt_timeout": 120, "terminate_timeout": 60}


def install_inside(session: nox.Session) -> None:
    """torch (its CPU build, from PyTorch's own index where that can be reached), Triton and pytest, for running without a container."""
    # Compiling all of their modules ahead takes longer than installing them. Python keeps the bytecode of what it has imported once, unless
    # PYTHONDONTWRITEBYTECODE is set, as the local engine sets it: then each process compiles torch again, for seconds.
    session.install("--no-compile", "--retries", "1", "--index-url", CPU["TORCH_INDEX"], INSIDE[0], success_codes=[0, 1], silent=True)
    session.install("--no-compile", *INSIDE)
    session.env["PYTHONDONTWRITEBYTECODE"] = ""
    session.run("python", "-c", IMPORT_ONCE, silent=True)


def run_target(session: nox.Session, target: str) -> None:
    """Run one target; the report follows as a session of its own, once, whatever becomes of this one.

    If a hosts file puts this target and those of later sessions on different machines, all of them run now, side by side.
    """
    names = [target, *later(session)]
    session.install("-e", ".[emulator]" if any(TARGETS[name].get("emulate") for name in names) else ".")
    if target in STARTED:
        check_beside(session, target)
        return
    asked = ask(session, names)
    if len(names) > 1 and len(asked.get("legs", ())) < 2:  # all on one machine: each session runs its own
        names, asked = [target], ask(session, [target])
    legs = [leg for lane in asked.get("legs", ()) for leg in lane]
    out = asked.get("resume") or asked.get("out")
    EXPECTED.extend([leg["name"] for leg in legs] or names)
    where = Path(out or OUT)
    STARTED.update({name: [(where, f"**/raw/{leg['name']}/run.json") for leg in legs if leg["target"] == name] for name in names})
    OVERLAYS[:] = [asked["overlay"]] if asked.get("overlay") else OVERLAYS
    session.notify("report", posargs=[str(where)])
    local = any(leg["engine"] == "local" for leg in legs) if legs else TARGETS[target].get("engine") == "local"
    if local and asked.get("engine") != "docker" and not asked.get("python"):
        install_inside(session)
    given = [] if out else ["--out", str(OUT)]
    session.run("warpwave", "run", *names, *given, "--no-report", *session.posargs, **PATIENCE)


def ask(session: nox.Session, names: list[str]) -> dict[str, Any]:
    """Return what the options come to: `warpwave` alone parses them; nothing with --install-only."""
    said = session.run("warpwave", "ci", "options", *names, *session.posargs, silent=True)
    return json.loads(said.splitlines()[-1]) if isinstance(said, str) else {}


def later(session: nox.Session) -> list[str]:
    """Return the targets whose sessions are still to come in this call of nox."""
    runner = getattr(session, "_runner", None)  # nox has no public way to ask
    return [each.name for each, queued in runner.manifest.list_all_sessions() if queued and each.name in TARGETS] if runner else []


def check_beside(session: nox.Session, target: str) -> None:
    """End as the target's own run did, which an earlier session has started."""
    found = [path for folder, pattern in STARTED[target] for path in folder.glob(pattern)]
    verdicts = {json.loads(path.read_text())["verdict"] for path in found} or {"absent"}
    session.log(f"{target} ran beside the first target of this command: {', '.join(sorted(verdicts))}")
    if verdicts != {"passed"}:
        session.error(f"{target}: {', '.join(sorted(verdicts))}")


def define_session(name: str, label: str) -> None:
    """A third vendor is one more entry in targets.yml, and so one more session."""

    def body(session: nox.Session) -> None:
        run_target(session, name)

    body.__doc__ = f"Run the kernels on {label}."
    nox.session(body, name=name)


for target_name, entry in TARGETS.items():
    define_session(target_name, entry["label"])


@nox.session
def emulated(session: nox.Session) -> None:
    """Run the kernels on the first emulated target: AMD machine code on this CPU, without a GPU."""
    run_target(session, next(name for name, entry in TARGETS.items() if entry.get("emulate")))


@nox.session
def upgrade(session: nox.Session) -> None:
    """What another Triton does to the kernels, beside the pinned one: nox -s upgrade -- cpu --to newest --quick."""
    session.install("-e", ".[emulator]")
    install_inside(session)
    words = [*session.posargs, *([] if "--out" in session.posargs else ["--out", str(OUT)])]
    out = Path(words[words.index("--out") + 1])
    pages = ["--markdown", str(out / "upgrade.md"), "--html", str(out / "upgrade.html"), "--summary", str(out / "upgrade.txt")]
    session.run("warpwave", "upgrade", "--from", CPU["TRITON_VERSION"], *words, *pages, **PATIENCE)


@nox.session
def report(session: nox.Session) -> None:
    """Merge raw folders into one comparison: nox -s report -- artifacts/*."""
    session.install("-e", ".")
    expected = [word for name in EXPECTED for word in ("--expect", name)] + [word for file in OVERLAYS for word in ("--targets", file)]
    session.run("warpwave", "report", *(session.posargs or [str(OUT.parent)]), *expected)


@nox.session
def tests(session: nox.Session) -> None:
    """The project's own tests, without the slow ones; no GPU and no Docker needed."""
    run_tests(session, "not slow")


@nox.session
def slow(session: nox.Session) -> None:
    """The project's own tests that are scenarios of many seconds; no GPU and no Docker needed."""
    run_tests(session, "slow")


def run_tests(session: nox.Session, marked: str) -> None:
    """Run the unit tests with these markers."""
    session.install("-e", ".[emulator]", *nox.project.dependency_groups(GROUPS, "test"))
    install_inside(session)
    # One process more than there are cores, since many tests wait; what shares a run stays in one of them.
    shared = [f"--numprocesses={(os.cpu_count() or 1) + 1}", "--dist=loadscope"]
    session.run("pytest", "tests/unit", "-m", marked, *shared, *session.posargs)


@nox.session
def integration(session: nox.Session) -> None:
    """Tests against a real Docker Engine; see CONTRIBUTING.md for the variables that name a base image and a wheelhouse."""
    session.install("-e", ".", *nox.project.dependency_groups(GROUPS, "test"))
    session.env["PYTHONDONTWRITEBYTECODE"] = ""
    if shutil.which("slurmctld"):  # the jobs of those tests run kernels in this Python
        install_inside(session)
    session.run("pytest", "tests/integration", *session.posargs)


@nox.session
def soak(session: nox.Session) -> None:
    """Kill fifty runs at random moments and the engine ten more times and at each call to it; needs what integration does, and root."""
    session.install("-e", ".", *nox.project.dependency_groups(GROUPS, "test"))
    install_inside(session)
    moments = {"WARPWAVE_MOMENTS": "50", "WARPWAVE_ENGINE_MOMENTS": "10", "WARPWAVE_FIGURES": "soak.json"}
    moments["WARPWAVE_ENGINE_STEPS"] = "prepare,image,build,create,attach,start,wait,collect"
    session.run("pytest", "tests/integration/docker/test_killed_runs.py", *session.posargs, env=moments)


@nox.session
def lint(session: nox.Session) -> None:
    """ruff, mypy, and what looks at the workflows."""
    session.install("-e", ".", *nox.project.dependency_groups(GROUPS, "lint"))
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("mypy")
    session.run("zizmor", "--offline", "--persona=auditor", "--no-progress", ".", "starter")
    workflows = sorted(map(str, [*Path(".github").glob("workflows/*.yml"), *Path("starter").glob(".github/workflows/*.yml")]))
    for schema, files in {
        "github-workflows": workflows,
        "github-actions": ["action.yml"],
        "dependabot": [".github/dependabot.yml"],
    }.items():
        session.run("check-jsonschema", "--builtin-schema", f"vendor.{schema}", *files)


@nox.session
def docs(session: nox.Session) -> None:
    """Build the documentation into build/site; a link that leads nowhere fails. nox -s docs -- serve"""
    session.install("-e", ".", *nox.project.dependency_groups(GROUPS, "docs"))
    session.run("mkdocs", *(session.posargs or ["build", "--strict"]), env={"NO_MKDOCS_2_WARNING": "1"})


@nox.session
def fuzz(session: nox.Session) -> None:
    """Fuzz every reader of what comes from elsewhere: nox -s fuzz -- 30, minutes of CPU time in all; --keep keeps what reaches new code."""
    session.install("-e", ".[emulator]", *nox.project.dependency_groups(GROUPS, "test", "fuzz"))
    session.run("python", "tests/fuzz/session.py", *session.posargs)
    # These try a few examples in the default run.
    searches = ("collect/hostile/test_hostile.py", "render/test_pages.py", "compare/test_stats.py")
    session.run("pytest", *(f"tests/unit/{name}" for name in searches), env={"WARPWAVE_SEARCH": "1"})


@nox.session
def programs(session: nox.Session) -> None:
    """Hold random Triton programs against numpy, Triton's interpreter and two emulated cards: nox -s programs -- --seconds 600."""
    run_script(session, "tests/fuzz/programs.py", ".[emulator]")


@nox.session
def emulator(session: nox.Session) -> None:
    """Hold the emulator against AMD's pseudocode: nox -s emulator -- --operands 512; --recorded FOLDER runs tinygrad's cases from cards.

    FOLDER is a source archive or clone of tinygrad, which has the cases in test/amd/hw.
    """
    run_script(session, "tests/emulator_reference/session.py", ".[emulator]")


@nox.session
def fuzz_kernels(session: nox.Session) -> None:
    """Hold random calls of the kernels to twice PyTorch's error: nox -s fuzz_kernels -- --cases 3000 --seed 1; --interpret without a card.

    On a machine with a card, run it in the Python that has the card's torch: nox -s fuzz_kernels --no-venv.
    """
    if session.virtualenv.is_sandboxed:
        session.install("-e", ".")
        install_inside(session)
    session.run("python", "tests/fuzz/fuzz_kernels.py", *(session.posargs or ["--interpret"]))


def run_script(session: nox.Session, path: str, project: str = ".", *groups: str) -> None:
    """Run a script of the project's tests beside torch and Triton."""
    session.install("-e", project, *nox.project.dependency_groups(GROUPS, *groups))
    install_inside(session)
    session.run("python", path, *session.posargs, **PATIENCE)


@nox.session
def update_pins(session: nox.Session) -> None:
    """Lock the packages and the base images of every target by hash; what cannot be reached is named and stays as it is. -- --check"""
    session.install("pyyaml", "docker", "tomli")
    session.run("python", "tools/pins.py", *session.posargs)


@nox.session
def sbom(session: nox.Session) -> None:
    """Write bills of materials (CycloneDX) of the wheel and of the images that this engine has into build/sbom."""
    session.install(*nox.project.dependency_groups(GROUPS, "supply"))
    session.run("python", "-m", "build", "--wheel", "--outdir", session.create_tmp(), silent=True)
    session.install(*map(str, Path(session.create_tmp()).glob("warpwave-*.whl")))
    session.run("python", "tools/sbom.py")


@nox.session
def release(session: nox.Session) -> None:
    """Build the source distribution and, from it, the wheel into dist/; install that with its dependencies, and ask its doctor."""
    session.install("build>=1")
    shutil.rmtree("dist", ignore_errors=True)
    session.run("python", "-m", "build", "--outdir", "dist", silent=True)
    session.install(*map(str, Path("dist").glob("*.whl")))
    session.chdir(session.create_tmp())
    session.run("warpwave", "--version")
    session.run("warpwave", "doctor", success_codes=[0, 3])


@nox.session
def audit(session: nox.Session) -> None:
    """Look for known vulnerabilities in what is needed and locked; skipped where no advisories can be reached."""
    session.install("-e", ".", *nox.project.dependency_groups(GROUPS, "supply"))
    unreachable = 77
    said = str(session.run("python", "tools/audit.py", silent=True, success_codes=[0, unreachable]))
    session.log(said)
    if "without a known vulnerability" not in said:
        session.skip("no advisories could be reached")


@nox.session
def strangers(session: nox.Session) -> None:
    """Run packages that nobody here wrote, and write a table of docs/guides/strangers.md. -- --quick --only NAME, or --adopt"""
    run_script(session, "tests/strangers/session.py")


@nox.session
def screens(session: nox.Session) -> None:
    """Draw every state of a report in a browser, three widths and two themes, and check it. nox -s screens -- recorded --axe axe.min.js"""
    session.install("-e", ".", *nox.project.dependency_groups(GROUPS, "test"))
    session.run("python", "tests/screens/session.py", *session.posargs)


@nox.session
def overhead(session: nox.Session) -> None:
    """What the harness costs beside its stages, in seconds: nox -s overhead -- --engine docker."""
    run_script(session, "tests/bench/overhead.py")


@nox.session
def mutate(session: nox.Session) -> None:
    """Change the code at random and count what the tests notice; tests/mutation/README.md. nox -s mutate -- --sample 300 --seed 1"""
    run_script(session, "tests/mutation/session.py", ".", "test", "mutate")
