"""Who gets a card of another machine, with an engine's rules for names and nothing else between the clients."""

import pytest

from warpwave.engines.remote import lease as module
from warpwave.engines.remote.container import MADE, OWNER, RUN, UNTIL
from warpwave.engines.remote.lease import Claim, leased
from warpwave.errors import InfrastructureError

NOW = 1_800_000_000.0


class Engine:
    """Gives a name to one container only, as engines do."""

    def __init__(self) -> None:
        self.there: dict[str, dict] = {}
        self.number = 0

    def create_container_from_config(self, config, name):
        if name in self.there:
            error = OSError("conflict")
            error.status_code, error.explanation = 409, "already in use"
            raise error
        return self.add(name, "created", config["Labels"])

    def add(self, name, state, labels=None, created=NOW):
        self.number += 1
        self.there[name] = {"Id": f"id{self.number}", "Names": [f"/{name}"], "State": state, "Labels": labels or {}, "Created": created}
        return self.there[name]

    def containers(self, *, all, filters):
        wanted = str(filters.get("label", ""))
        key, _, value = wanted.partition("=")
        return [entry for entry in self.there.values() if not wanted or entry["Labels"].get(key) == value]

    def remove_container(self, container, *, force, v):
        self.there = {name: entry for name, entry in self.there.items() if container not in (name, entry["Id"])}


@pytest.fixture
def engine():
    return Engine()


@pytest.fixture(autouse=True)
def no_pause(monkeypatch):
    monkeypatch.setattr(module.time, "sleep", lambda seconds: None)


def claim(run: str, *cards: str, kind: str = "cuda") -> Claim:
    labels = {MADE: "true", RUN: run, OWNER: f"{run}@laptop", UNTIL: str(int(NOW) + 3600)}
    return Claim(kind, cards, f"warpwave-{run}", "image", labels, "h100-01")


def hold(engine, wanted: Claim, wait_s: float = 0.0, now: float = NOW, say=lambda line: None):
    return leased(engine, wanted, wait_s, say, lambda: now)


def begin(engine, wanted: Claim) -> None:
    """A run that has the card, as another client would find it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "release", lambda *_: None)
        with hold(engine, wanted):
            engine.add(wanted.holder, "running")


@pytest.mark.parametrize(("one", "two"), [(("0",), ("0",)), ((), ()), ((), ("0",)), (("0",), ()), (("0", "1"), ("1", "2"))])
def test_a_card_is_one_runs(engine, one, two):
    """The second client is refused, with who has the card; its own leases are gone then."""
    begin(engine, claim("first", *one))
    before = set(engine.there)
    with pytest.raises(InfrastructureError, match=r"is in use by run first of first@laptop"), hold(engine, claim("second", *two)):
        pytest.fail("two runs have one card")

    assert set(engine.there) == before


@pytest.mark.parametrize("other", [claim("second", "1"), claim("second", "0", kind="rocm")], ids=["another card", "another kind"])
def test_other_cards_are_free(engine, other):
    begin(engine, claim("first", "0"))
    with hold(engine, other):
        assert len(engine.there) == 3
    assert len(engine.there) == 2


def test_the_second_client_waits_and_says_so(engine):
    begin(engine, claim("first", "0"))
    said = []

    def told(line):
        said.append(line)
        engine.there["warpwave-first"]["State"] = "exited"

    with hold(engine, claim("second", "0"), wait_s=60.0, say=told):
        assert said == ["GPU 0 of cuda on h100-01 is in use by run first of first@laptop: waiting up to 60 s"]


@pytest.mark.parametrize(
    ("state", "later", "free"),
    [("running", 10, False), ("running", 3601, True), ("exited", 1, True), ("created", 10, False), ("created", 61, True), (None, 61, True)],
)
def test_a_dead_runs_lease_is_taken_away(engine, state, later, free):
    """A lease is removed if its run has ended, never began, or is past its time."""
    begin(engine, claim("first", "0"))
    engine.there.pop("warpwave-first")
    if state:
        engine.add("warpwave-first", state)
    try:
        with hold(engine, claim("second", "0"), wait_s=0.05, now=NOW + later):
            got = True
    except InfrastructureError:
        got = False

    assert got is free


def test_a_run_that_is_resumed_has_its_own_leases(engine):
    begin(engine, claim("first", "0", "1"))
    engine.there.pop("warpwave-first")
    with hold(engine, claim("first", "0", "1")):
        assert len(engine.there) == 2
    assert engine.there == {}
