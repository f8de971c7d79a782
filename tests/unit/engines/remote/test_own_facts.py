"""What belongs to one machine stays with it: its proxies, its driver and its cards."""

from __future__ import annotations

from dataclasses import replace

import pytest
from engine_requests import ask

from warpwave.config.hosts import Host
from warpwave.config.targets import load_targets
from warpwave.engines.protocol import Answer
from warpwave.engines.remote import engine as module
from warpwave.engines.ssh.command import Place
from warpwave.records import Environment
from warpwave.run.inputs import gather


def test_a_build_there_gets_the_proxies_there(monkeypatch):
    """Those of this machine may hold a password, and lead nowhere there."""
    monkeypatch.setenv("HTTPS_PROXY", "http://me:hunter2@proxy.home")
    monkeypatch.setattr(module, "answer_of", lambda *_: Answer("HOME=/x\nhttp_proxy=http://proxy.there\nNO_PROXY=a=b\nTOKEN=x\n"))
    engine = module.RemoteEngine.__new__(module.RemoteEngine)
    engine._place = Place("card", "card")

    assert engine._proxies() == {"http_proxy": "http://proxy.there", "NO_PROXY": "a=b"}


@pytest.mark.parametrize(("name", "here"), [("docker", True), ("local", True), ("ssh", False), ("slurm", False)])
def test_a_driver_update_here_is_no_change_of_a_leg_elsewhere(name, here, tmp_path):
    """A resumed leg is compared with what decides its own results."""
    driver = tmp_path / "version"
    target = load_targets()["cuda"]
    target = replace(target, probe=replace(target.probe, driver_file=str(driver)))
    request = ask(target, tmp_path, tmp_path, "run", host=None if here else Host(name="cuda", target="cuda", ssh="a"))
    found = []
    for version in ("570.1", "580.2"):
        driver.write_text(version)
        found.append(gather(request, Environment(engine=name, python="python3", image="x")).facts)

    assert (found[0] != found[1]) is here
