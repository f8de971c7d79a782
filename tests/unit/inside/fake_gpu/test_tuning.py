"""Which configuration an autotuned kernel takes where nothing can be timed."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace

import pytest

tuner = pytest.importorskip("warpwave.inside.fake_gpu.card", reason="the inside needs torch and triton; `nox -s tests` installs them")


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


class Launched:
    """A kernel that is a function of Python."""

    def __init__(self, function) -> None:
        self.fn, self.sizes = function, []

    def run(self, *args, SIZE, grid=None, warmup=False, num_warps=4, num_ctas=1, num_stages=3, maxnreg=None, ir_override=None, **named):
        self.sizes.append(SIZE)
        self.fn(*args, **named)


def double(x, n):
    x.mul_(2)


def total(x, out):
    out.add_(x.sum())


def move(x, out):
    out.copy_(x * 2)
    x.zero_()


def split(x, rest):
    x.copy_(rest)


def relu(x, n):
    x.relu_()


def swap(x, none, pair, descriptor):
    pair[1].sub_(x)


def count(x, n):
    count.calls = getattr(count, "calls", 0) + 1
    x.fill_(count.calls)


@pytest.fixture
def tuned():
    """Make a tuner of a function, as `@triton.autotune` does, where nothing can be timed."""
    torch, triton = pytest.importorskip("torch"), pytest.importorskip("triton")
    from warpwave.inside.fake_gpu.torch_device import apply

    tuning = tuner.Tuning()

    def tune(function, names, sizes=(1, 2, 3), pre_hook=None, **options):
        configs = [triton.Config({"SIZE": size}, pre_hook=pre_hook) for size in sizes]
        options = {"key": ["n"] if "n" in names else [], "reset_to_zero": None, "restore_value": None, **options}
        return triton.runtime.Autotuner(Launched(function), names, configs, **options)

    with contextlib.ExitStack() as undo:
        apply(tuning.patches(), undo)
        yield SimpleNamespace(tune=tune, tuning=tuning, ones=torch.ones)


def test_a_kernel_that_changes_what_it_is_tuned_on_does_so_here(tuned):
    """As on a card, the first call changes the memory more than once. The kernel, the argument and the remedy are named."""
    x = tuned.ones(4)
    tuned.tune(double, ["x", "n"]).run(x, 4, grid=(1,), warmup=False)

    assert x.tolist() == [4.0] * 4
    (said,) = tuned.tuning.in_place
    assert "`x`" in said
    assert "`double`" in said
    assert "restore_value=['x']" in said


@pytest.mark.parametrize(
    ("function", "given", "named"),
    [(total, ["x", "out"], "out"), (move, ["x", "out"], "x")],
    ids=["a sum", "what is only written is not named"],
)
def test_the_argument_that_is_read_and_then_written_is_named(tuned, function, given, named):
    tuned.tune(function, given).run(tuned.ones(4), tuned.ones(4))

    assert [said.partition(":")[0] for said in tuned.tuning.in_place] == [f"autotuning changed `{named}`"]


def test_a_view_and_what_is_no_tensor(tuned):
    """Two views of one storage, of which one changes; below a descriptor; beside None and a tuple."""
    both = tuned.ones(8)
    pair = (tuned.ones(2), both[1::2])
    tuned.tune(swap, ["x", "none", "pair", "descriptor"]).run(both[::2], None, pair, SimpleNamespace(base=tuned.ones(3)))

    assert both.tolist() == [1.0, -1.0] * 4
    assert [said.partition(":")[0] for said in tuned.tuning.in_place] == ["autotuning changed `pair`"]


@pytest.mark.parametrize(
    ("function", "names", "options"),
    [
        (double, ["x", "n"], {"restore_value": ["x"]}),
        (double, ["x", "n"], {"sizes": (1,)}),
        (double, ["x", "n"], {"pre_hook": lambda given: given["x"].fill_(1.0)}),
        (double, ["x", "n"], {"pre_hook": None, "prune_configs_by": {"early_config_prune": lambda configs, *_, **__: configs[:1]}}),
        (relu, ["x", "n"], {}),
        (total, ["out", "x"], {"restore_value": ["x"]}),
        (total, ["x", "out"], {"reset_to_zero": ["out"]}),
        (split, ["x", "rest"], {}),
        (count, ["x", "n"], {}),
    ],
    ids=["restored", "one", "hook", "pruned", "the same again", "restored sum", "zeroed", "only written", "a clock"],
)
def test_what_tuning_leaves_as_it_was_is_not_named(tuned, function, names, options):
    kernel = tuned.tune(function, names, **options)
    kernel.run(tuned.ones(4), 4 if "n" in names else tuned.ones(4) * 3, grid=(1,))

    assert tuned.tuning.in_place == []


def test_what_was_tuned_before_is_not_tuned_again(tuned):
    """By a fixture, or by an earlier call. Another key is tuned, and so is the next turn of the same test."""
    kernel = tuned.tune(double, ["x", "n"])
    kernel.run(tuned.ones(4), 4)
    tuned.tuning.begin()
    x, y = tuned.ones(4), tuned.ones(4)
    kernel.run(x, 4)
    assert tuned.tuning.in_place == []
    kernel.run(y, 5)
    assert (x.tolist(), y.tolist(), len(tuned.tuning.in_place)) == ([2.0] * 4, [4.0] * 4, 1)

    tuned.tuning.turn = 1
    tuned.tuning.begin()
    kernel.run(x, 4)
    kernel.run(y, 5)
    assert len(tuned.tuning.in_place) == 1
    assert set(kernel.fn.sizes) == {1, 2}


def test_a_launch_that_raises_is_not_tuned(tuned):
    def refuse(x):
        x.mul_(2)
        raise KeyError("BLOCK")

    x = tuned.ones(4)
    with pytest.raises(KeyError):
        tuned.tune(refuse, ["x"]).run(x)
    assert x.tolist() == [2.0] * 4
    assert tuned.tuning.in_place == []
