"""A run over a connection that breaks: what is read again, what is asked again, and when that ends."""

import threading
from types import SimpleNamespace

import pytest

from warpwave.engines import waiting
from warpwave.engines.remote import connection as module
from warpwave.engines.remote import connection as output_module
from warpwave.engines.remote import container as lease_module
from warpwave.engines.remote.connection import Followed, LostError, Reconnecting
from warpwave.engines.remote.container import MADE, OWNER, RUN, UNTIL, Claim, leased
from warpwave.errors import InfrastructureError


@pytest.fixture(autouse=True)
def no_pause(monkeypatch):
    monkeypatch.setattr(waiting._state, "signals", [])  # an earlier test in this process may have asked it to stop
    monkeypatch.setattr(module, "_NOTICED_S", 0.0)
    monkeypatch.setattr(module.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(output_module.time, "sleep", lambda seconds: None)


def breaking(data: list[bytes], after: int):
    yield from data[:after]
    raise ConnectionResetError


@pytest.mark.parametrize("after", range(4))
def test_every_byte_once(after):
    """After a break the output is read from its beginning, in other pieces, and nothing is lost or repeated."""
    streams = [
        breaking([b"one\n", b"two\n", b"three\n"], after),
        iter([b"one\ntw", b"o\nthree", b"\nfour\n"]),
        iter([b"one\ntwo\nthree\nfour\n"]),
    ]
    running = iter([True, False, False])
    followed = Followed(lambda: streams.pop(0), lambda: next(running, False))

    assert b"".join(iter(lambda: next(followed, b""), b"")) == b"one\ntwo\nthree\nfour\n"


def test_a_machine_that_stays_away_ends_it():
    """The reader ends. Another part of the engine watches the container and reports why."""

    def follow():
        raise LostError("gone")

    with pytest.raises(LostError):
        next(Followed(follow, lambda: True))


class Tunnel:
    """A connection that breaks. Some attempts to connect again fail, and then one succeeds."""

    def __init__(self, attempts: float = 1) -> None:
        self.place = SimpleNamespace(name="card")
        self.broken, self.attempts, self.asked = True, attempts, 0

    def is_broken(self) -> bool:
        return self.broken

    def open(self) -> None:
        self.asked += 1
        if self.asked < self.attempts:
            raise InfrastructureError("card does not answer.", "It is off.", "Switch it on.")
        self.broken = False


def api(tunnel: Tunnel):
    calls = []

    def send(request, **options):
        calls.append(request.method)
        if tunnel.broken:
            raise ConnectionError("broken pipe")
        return "answer"

    return SimpleNamespace(send=send, calls=calls)


def request(method: str, path: str = "/containers/x/json"):
    return SimpleNamespace(method=method, path_url=path)


@pytest.mark.parametrize("asked", [request("GET"), request("DELETE"), request("POST", "/v1.41/containers/x/kill?signal=SIGINT")])
def test_what_does_no_harm_is_asked_again(asked):
    tunnel = Tunnel(attempts=3)
    client, said = api(tunnel), []
    reconnecting = Reconnecting(client, tunnel)
    reconnecting.say = said.append

    assert client.send(asked) == "answer"
    assert tunnel.asked == 3
    assert [line.partition(" card")[0] for line in said] == ["the connection to", "connected to"]


def test_what_may_have_happened_is_not_done_twice():
    """A second container or a second start could be made; the connection is whole again, and the caller decides."""
    tunnel = Tunnel()
    client = api(tunnel)
    Reconnecting(client, tunnel)
    with pytest.raises(ConnectionError):
        client.send(request("POST", "/containers/create"))

    assert (client.calls, tunnel.broken) == (["POST"], False)


def test_an_engine_that_fails_is_not_a_broken_connection():
    tunnel = Tunnel()
    client = api(tunnel)
    reconnecting = Reconnecting(client, tunnel)
    reconnecting.is_broken = lambda: False
    with pytest.raises(ConnectionError):
        client.send(request("GET"))

    assert tunnel.asked == 0


def test_patience_ends_and_stays_at_its_end():
    tunnel = Tunnel(attempts=float("inf"))
    client = api(tunnel)
    reconnecting = Reconnecting(client, tunnel)
    reconnecting.patience_s = 0.0
    for _ in range(3):
        with pytest.raises(LostError, match=r"the connection to card was lost \(card does not answer\)"):
            client.send(request("GET"))

    assert tunnel.asked == 1


def test_two_threads_connect_once():
    tunnel, said = Tunnel(), []
    client = api(tunnel)
    reconnecting = Reconnecting(client, tunnel)
    reconnecting.say = said.append
    threads = [threading.Thread(target=client.send, args=(request("GET"),)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert (tunnel.asked, len(said)) == (1, 2)


# Who gets a card of another machine, with an engine's rules for names and nothing else between the clients.

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
def no_wait(monkeypatch):
    monkeypatch.setattr(lease_module.time, "sleep", lambda seconds: None)


def claim(run: str, *cards: str, kind: str = "cuda") -> Claim:
    labels = {MADE: "true", RUN: run, OWNER: f"{run}@laptop", UNTIL: str(int(NOW) + 3600)}
    return Claim(kind, cards, f"warpwave-{run}", "image", labels, "h100-01")


def hold(engine, wanted: Claim, wait_s: float = 0.0, now: float = NOW, say=lambda line: None):
    return leased(engine, wanted, wait_s, say, lambda: now)


def begin(engine, wanted: Claim) -> None:
    """A run that has the card, as another client would find it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lease_module, "release", lambda *_: None)
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
