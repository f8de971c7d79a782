"""A real engine for the tests in this folder, or a sentence on why there is none.

`WARPWAVE_BASE_IMAGE` names a base image that the engine has (Debian or Ubuntu; with Python, venv and gcc no network is needed).
`WARPWAVE_WHEELHOUSE` names a folder with the wheels for its Python; without it they are downloaded once into a folder under /tmp.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from engine_requests import ask, change

from warpwave.config.targets import load_targets
from warpwave.engines.docker.engine import connect
from warpwave.engines.protocol import Request
from warpwave.errors import InfrastructureError
from warpwave.options import Build

BASE = os.environ.get("WARPWAVE_BASE_IMAGE")
# That of the base image, for which the wheels have to be.
PYTHON = os.environ.get("WARPWAVE_BASE_PYTHON", "3.11")


@pytest.fixture(scope="session")
def engine():
    if not BASE:
        pytest.skip("WARPWAVE_BASE_IMAGE is not set: it names the base image that the tests with a real engine build on")
    try:
        connected = connect()
    except InfrastructureError as error:
        pytest.skip(f"no container engine answers: {error.happened}")
    yield connected
    connected.close()


def _download(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    options = ["--quiet", "--only-binary=:all:", "--python-version", PYTHON, "--dest", str(folder)]
    return subprocess.run([sys.executable, "-m", "pip", "download", *options, *arguments], capture_output=True, text=True)


@pytest.fixture(scope="session")
def wheelhouse(engine) -> Path:
    if "WARPWAVE_WHEELHOUSE" in os.environ:
        return Path(os.environ["WARPWAVE_WHEELHOUSE"])
    folder = Path(tempfile.gettempdir()) / f"warpwave-wheelhouse-{PYTHON}"
    if not list(folder.glob("triton-*.whl")):
        arguments = load_targets()["cpu"].image.build_args
        torch = f"torch=={arguments['TORCH_VERSION']}"
        # The small CPU build from its own index where that can be reached; the second call takes what the first one brought.
        _download(folder, "--no-deps", "--retries", "0", "--index-url", arguments["TORCH_INDEX"], torch)
        pins = [torch, f"triton=={arguments['TRITON_VERSION']}", "pytest>=8,<10", "numpy>=1.26,<3"]
        done = _download(folder, "--find-links", str(folder), *pins)
        if done.returncode:
            pytest.skip(f"the wheels could not be downloaded: {done.stderr.strip()[-300:]}")
    return folder


@pytest.fixture(scope="session")
def offline(wheelhouse, tmp_path_factory) -> list[str]:
    """The options of a run that build the image without any network."""
    own = tmp_path_factory.mktemp("own") / "targets.yml"
    own.write_text(f"build: {{wheelhouse: '{wheelhouse.resolve()}'}}\n")
    return ["--base-image", str(BASE), "--targets", str(own)]


@pytest.fixture(scope="session")
def session_request(wheelhouse, tmp_path_factory) -> Request:
    kernels = tmp_path_factory.mktemp("kernels")
    (kernels / "test_nothing.py").write_text("def test_nothing(): pass\n")
    # Open to everybody, so that what protects them is the mount and not their mode.
    kernels.chmod(0o777)
    (kernels / "test_nothing.py").chmod(0o666)
    build = Build(base_image=BASE, wheelhouse=wheelhouse)
    raw = tmp_path_factory.mktemp("raw")
    return ask(load_targets()["cpu"], kernels, raw, "session", commit="0123456789ab", build=build)


@pytest.fixture(scope="session")
def built(engine, session_request):
    said: list[str] = []
    return engine.prepare(session_request, said.append), said


@pytest.fixture
def request_(session_request, tmp_path) -> Request:
    raw = tmp_path / "raw"
    raw.mkdir()
    return change(session_request, run_id=f"t{abs(hash(tmp_path)) % 10**8}", raw=raw, target_s=60.0, grace_s=5.0)


@pytest.fixture
def run(engine, built, request_):
    """Run a Python program in a container as the inside would be run; returns environment, exit, lines and the request."""

    def run(program: str, on_line=None, **changes):
        lines: list[str] = []

        def keep(line: str) -> None:
            lines.append(line)
            if on_line:
                on_line(line)

        request = change(request_, **changes)
        environment, ended = engine.execute(request, built[0], keep, ["python3", "-c", program])
        return environment, ended, lines, request

    return run


@pytest.fixture
def ours(engine):
    def ours() -> list[str]:
        return [entry["Names"][0].lstrip("/") for entry in engine._api.containers(all=True, filters={"label": "io.warpwave.run"})]

    return ours
