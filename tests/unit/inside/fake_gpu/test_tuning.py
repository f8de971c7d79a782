"""Which configuration an autotuned kernel takes where nothing can be timed."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

tuner = pytest.importorskip("harness.inside.fake_gpu.tuner", reason="the inside needs torch and triton; `nox -s tests` installs them")


CARD = SimpleNamespace(warp_size=64, program_threads=1024, properties={"max_shared_mem": 65536})


class Warmed:
    """A kernel whose configurations need as much shared memory as their name says; `broken` does not compile."""

    def __init__(self) -> None:
        self.asked = []

    def warmup(self, *args, grid, **config):
        self.asked.append((args, config))
        if config["size"] == "broken":
            raise RuntimeError("does not compile")
        return SimpleNamespace(metadata=SimpleNamespace(shared=config["size"], num_warps=config.get("num_warps", 4)))


def chosen(sizes: list, turn: int = 0) -> tuple[object, Warmed]:
    tuning, kernel = tuner.Tuning(), Warmed()
    tuning.turn, tuning.fits = turn, tuner.fits_on(CARD)
    asking = SimpleNamespace(fn=kernel, nargs={"x": 1}, base_fn=chosen)
    configs = [SimpleNamespace(size=size, all_kwargs=lambda size=size: {"size": size}) for size in sizes]
    (left,) = tuning._one(lambda tuner, kwargs: configs)(asking, {"grid": (7,), "warmup": False, "n": 5})
    return left.size, kernel


@pytest.mark.parametrize(
    ("sizes", "taken"),
    [([100, 200], 100), ([98304, 131072, 65536, 10], 65536), ([98304, 131072], 98304), (["broken", 10], "broken"), ([98304], 98304)],
)
def test_a_configuration_that_does_not_fit_is_left_out(sizes, taken):
    """As an autotuner does on a card. If none fits, or one does not compile, the launch says what is wrong."""
    assert chosen(sizes)[0] == taken


def test_a_configuration_with_too_many_threads_is_left_out():
    wide, right = (SimpleNamespace(num_warps=warps) for warps in (32, 16))
    fits = tuner.has_threads(CARD)

    assert (fits(None, {}, wide), fits(None, {}, right)) == (False, True)


def test_a_turn_takes_the_next_that_fits():
    assert chosen([10, 98304, 20, 30], turn=1)[0] == 20


def test_a_configuration_is_compiled_for_the_arguments_of_its_launch():
    assert chosen([10, 20])[1].asked == [((1,), {"n": 5, "size": 10})]


def test_a_cache_that_cannot_be_emptied_stays():
    """FlagGems' autotuner keeps what it chose in a database, which has no `clear`."""
    tuning = tuner.Tuning()
    kept, emptied = SimpleNamespace(cache=object()), SimpleNamespace(cache={"key": "config"})
    tuning._tuners += [kept, emptied]
    tuning.begin()

    assert emptied.cache == {}
