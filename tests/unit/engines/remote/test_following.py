"""A run over a connection that breaks: what is read again, what is asked again, and when that ends."""

import threading
from types import SimpleNamespace

import pytest

from warpwave.engines import waiting
from warpwave.engines.remote import connection as module
from warpwave.engines.remote import connection as output_module
from warpwave.engines.remote.connection import Followed, LostError, Reconnecting
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
