"""Shared by all tests: where the data is, and how a stage of the inside is started as the host would start it."""

import gc
import os
import signal
from pathlib import Path

import pytest

from warpwave.config.package import load_pytest_settings
from warpwave.config.targets import load_targets
from warpwave.records import Stage, dump

REPOSITORY = Path(__file__).parent.parent

# Nothing that pytest collects becomes garbage. Looking for garbage in it takes a sixth of the time of collecting.
gc.disable()

# A shell that starts the tests in the background has them, and all that they start, ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)


# Each of these has fixtures that start a run for many tests: they stay in one process. The longest come first.
TOGETHER = tuple(
    f"tests/unit/{name}.py::"
    for name in (
        *("inside/compile/test_launches", "inside/fake_gpu/test_third_vendor", "inside/fake_gpu/test_idioms"),
        *("inside/compile/test_compile_stage", "inside/test_multi_gpu", "inside/test/test_forged", "inside/sanitize/test_sanitizer"),
        *("inside/test/test_test_stage", "inside/bench/test_bench_stage", "inside/emulated/test_emulated_kernels"),
        *("inside/emulated/test_emulated_stage", "commands/test_hosts_command", "commands/test_cli", "project/test_release"),
        "run/test_resume",
    )
)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log):
    """`--dist=loadscope` over these files; any other test goes to whichever process is free. (`loadgroup` needs a pytest before 9.2.)"""
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return nodeid.partition("::")[0] if nodeid.startswith(TOGETHER) else nodeid

    return Scheduling(config, log) if config.getvalue("dist") == "loadscope" else None


def pytest_configure(config: pytest.Config) -> None:
    """With several processes of pytest, one server each for all of them."""
    if getattr(config.option, "numprocesses", None) and not hasattr(config, "workerinput") and not config.option.collectonly:
        import command  # this file is also that of the packages in tests/data

        command.share_servers()


def pytest_collection_finish() -> None:
    """Look for garbage again, though rarely, and not in what was collected: it stays until the end."""
    gc.freeze()
    gc.set_threshold(50_000)
    gc.enable()


@pytest.fixture(scope="session")
def data() -> Path:
    """Packages and recordings that the tests read."""
    return Path(__file__).parent / "data"


@pytest.fixture(scope="session", autouse=True)
def no_plugins_of_ours():
    """What the tests run finds none of the plugins that the tests have, as in an image: Hypothesis' alone takes two seconds to load."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
        yield


@pytest.fixture(scope="session", autouse=True)
def no_kernels_of_earlier_runs(tmp_path_factory):
    """Triton's cache is empty when the tests begin: the user's own may come from another checkout, whose files it names.

    The emulator's cache is the user's: its names hold a hash of all that made a file, and building the core takes 17 s of CPU time.
    """
    folder = tmp_path_factory.getbasetemp()
    shared = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(shared / "triton-cache"))
        # Named, because stages have a home of their own, in which each would build the core again.
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        patch.setenv("WARPWAVE_CACHE", os.environ.get("WARPWAVE_CACHE") or str(home / "warpwave"))
        yield


@pytest.fixture(scope="session")
def run_inside(tmp_path_factory):
    """Run the inside over a package, in a process of its own that `command` forks; returns the folder with the results.

    With `light`, where neither the package nor the stages compute anything with torch. The compile stage alone is started by itself:
    it needs no facts. `output` is the folder, if it matters which.
    """

    def run(package: Path, *stages: Stage, light: bool = False, output: Path | None = None, **overrides) -> Path:
        import command  # as above
        from engine_requests import make_job

        output = output or tmp_path_factory.mktemp("raw")
        cards = load_targets()["cpu"].architectures
        settings = {
            "interpret": True,
            "pytest": load_pytest_settings(package, package),
            "architectures": cards,
            "benches": ("*.py",),
            **overrides,
        }
        dump(make_job("run-1", "cpu", tuple(stages), str(package), str(output), **settings), output / "job.json")
        variables = {"PYTHONPATH": str(REPOSITORY / "harness"), "TRITON_DEFAULT_FP_FUSION": "1", "TRITON_CACHE_DIR": str(output / "cache")}
        alone = stages == (Stage.COMPILE,)
        module, kind = ("warpwave.inside.compile.stage", "compiler") if alone else ("warpwave.inside", "stages")
        (output / "compile").mkdir()
        words = ["-m", module, output / "job.json"]
        done = command.python(*words, light=light, kind=kind, env={**os.environ, **variables}, timeout=None)
        assert done.returncode == 0, done.stderr
        (output / "stdout.txt").write_text(done.stdout)
        return output

    return run
