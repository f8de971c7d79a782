"""Images on a real engine: what is built, when it is reused, and what is said when it cannot be."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from engine_requests import change

from warpwave.engines.docker.container import container_name
from warpwave.errors import InfrastructureError, UsageError
from warpwave.options import Build
from warpwave.records import Verdict
from warpwave.run.attempt import diagnose


def test_the_image_says_what_it_is(engine, built, session_request):
    """Commit, base image, its identity and the hash of what was installed are labels of the image."""
    environment, said = built
    image = engine._api.inspect_image(environment.image)
    labels = {key.removeprefix("io.warpwave."): value for key, value in image["Config"]["Labels"].items() if key.startswith("io.warpwave.")}
    base = session_request.options.build.base_image
    assert environment.image_id == image["Id"]
    assert labels.pop("base-digest") == engine._api.inspect_image(base)["Id"]
    assert len(labels.pop("requirements")) == 12
    assert labels.pop("commit")
    assert labels == {"base": base, "target": "cpu"}
    assert image["Config"]["User"] == "65534:65534"
    assert not image["Config"]["Entrypoint"]
    assert said[-1].startswith("cpu: image") or any("Step 1/" in line for line in said)


def test_a_missing_device_is_reported_before_anything_is_pulled(engine, session_request):
    """The target's own fix is the remedy, and a base image that does not exist is never asked for."""
    target = session_request.target
    devices = replace(target.devices, nodes=("/dev/no-such-card*",))
    wanted = replace(target, devices=devices, probe=replace(target.probe, fix="Plug the card in."))
    said: list[str] = []
    with pytest.raises(InfrastructureError) as caught:
        engine.prepare(change(session_request, target=wanted, build=Build(base_image="nowhere.invalid/base:1")), said.append)
    assert "/dev/no-such-card*" in caught.value.happened
    assert caught.value.remedy == "Plug the card in."
    assert said == []


def test_wheels_do_not_stay_in_the_image(run):
    """What was only needed to build is not in the final image."""
    _, _, lines, _ = run("import os; print(os.path.exists('/build'), os.path.exists('/opt/warpwave'))")
    assert lines == ["False True"]


def test_the_second_prepare_builds_nothing(engine, built, session_request):
    """The same inputs find the same image."""
    said: list[str] = []
    again = engine.prepare(session_request, said.append)
    assert not again.built
    assert again.image_id == built[0].image_id
    assert said == [f"cpu: image {again.image} is there already"]


def test_a_replaced_base_image_is_noticed(engine, built, session_request, monkeypatch):
    """A tag of the base that points to another image than the one built on is not taken for the same."""
    from warpwave.engines.docker import images
    from warpwave.engines.docker.images import recipe

    parts = recipe(session_request)
    assert images.usable(engine._api, parts)
    monkeypatch.setattr(images, "digest", lambda image: "sha256:another")
    assert images.usable(engine._api, parts) is None


def test_an_unknown_weakening_is_refused(engine, request_):
    """A misspelt weakening stops before anything is built."""
    with pytest.raises(UsageError, match="no weakening named 'seccomp'"):
        engine.prepare(change(request_, weaken=("seccomp",)), print)


def test_an_image_without_that_python(engine, built, request_, ours):
    """A wrong `python` of the target is the environment's fault, not the kernels', and nothing is left."""
    lines: list[str] = []
    request = change(request_, target=replace(request_.target, python="python9"))
    _, ended = engine.execute(request, replace(built[0], python="python9"), lines.append)
    assert diagnose(ended, None, 60.0, "").verdict is Verdict.INFRA
    assert "python9" in lines[-1]
    assert container_name(request) not in ours()


def test_a_failed_build_shows_its_end(engine, request_, tmp_path):
    """The step that failed and the last lines of its output are in the message."""
    dockerfile = tmp_path / "broken.Dockerfile"
    dockerfile.write_text("ARG BASE_IMAGE\nFROM ${BASE_IMAGE}\nRUN echo the compiler is on strike | tr a-z A-Z; exit 3\n")
    with pytest.raises(InfrastructureError) as raised:
        engine.prepare(change(request_, target=replace(request_.target, dockerfile=dockerfile)), lambda line: None)
    assert "Step 3/" in raised.value.happened
    assert "THE COMPILER IS ON STRIKE" in raised.value.happened


def test_a_base_image_that_cannot_be_had(engine, request_):
    """No registry: the way out is named, with the options that open it."""
    build = Build(base_image="localhost:9/warpwave/nowhere:none")
    with pytest.raises(InfrastructureError, match="could not be pulled") as raised:
        engine.prepare(change(request_, build=build), lambda line: None)
    assert "--base-image" in raised.value.remedy
    assert "--wheelhouse" in raised.value.remedy


@pytest.fixture
def registry():
    """Something on this machine that answers every request for an image with these statuses in turn; the last stays."""
    servers = []

    def start(*statuses: int) -> tuple[str, list[int]]:
        given: list[int] = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                manifest = "/manifests/" in self.path
                status = statuses[min(len(given), len(statuses) - 1)] if manifest else 200
                if manifest:
                    given.append(status)
                code = "MANIFEST_UNKNOWN" if status == 404 else "TOOMANYREQUESTS"
                body = json.dumps({"errors": [{"code": code, "message": "as the status says"}]}).encode()
                self.send_response(status)
                self.send_header("Docker-Distribution-Api-Version", "registry/2.0")
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body if self.command == "GET" else b"")

            def do_HEAD(self) -> None:
                self.do_GET()

            def log_message(self, *words: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        servers.append(server)
        return f"localhost:{server.server_port}/warpwave/base:1", given

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(("statuses", "tries"), [((429,), 3), ((503,), 3), ((404,), 1)])
def test_a_busy_registry_is_asked_again(engine, request_, registry, monkeypatch, statuses, tries):
    """Rate limits and outages get two more tries with pauses between them, what is not there gets none; the message opens a way out."""
    monkeypatch.setattr("warpwave.engines.docker.images._PAUSES_S", (0.01, 0.02))
    base, given = registry(*statuses)
    said: list[str] = []
    with pytest.raises(InfrastructureError, match="could not be pulled") as raised:
        engine.prepare(change(request_, build=Build(base_image=base)), said.append)

    assert len([line for line in said if line == f"pulling {base}"]) == tries, (said, given)
    assert "--base-image" in raised.value.remedy
