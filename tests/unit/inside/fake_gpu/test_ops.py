"""torch's operations on halves, which tests compare kernels with: as exact as a card's, in value and gradient."""

from __future__ import annotations

import contextlib
import functools
from importlib.metadata import version
from types import SimpleNamespace

import pytest

pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")
torch = pytest.importorskip("torch", reason="the inside needs torch and triton; `nox -s tests` installs them")

import numpy as np
from torch.nn import functional
from triton.runtime import interpreter

from warpwave.inside.fake_gpu.answers import changes, shared_ops
from warpwave.inside.fake_gpu.card import keep_in_backward
from warpwave.inside.fake_gpu.language import with_index
from warpwave.inside.fake_gpu.no_data import WithoutData
from warpwave.inside.fake_gpu.objects import from_host
from warpwave.inside.fake_gpu.redirect import Redirect
from warpwave.inside.fake_gpu.torch_device import apply
from warpwave.inside.fake_gpu.torch_ops import sum_in_fp32
from warpwave.inside.process.outcomes import hint_of
from warpwave.inside.sanitize.memory import origin_patches

if not hasattr(torch.library, "get_kernel"):
    pytest.skip("this torch cannot hand out the kernels that are replaced", allow_module_level=True)


ROWS, CLASSES = 4096, 256
_DRAW = torch.Generator().manual_seed(0)
TARGETS = torch.randint(0, CLASSES, (ROWS,), generator=_DRAW)
TARGETS[::2] = -100
PIXELS = torch.randint(0, 16, (4, 32, 32), generator=_DRAW)
PIXELS[:, ::2] = -100
PLACES = torch.randint(0, 64, (ROWS,), generator=_DRAW)


def drawn(*shape: int):
    return torch.randn(*shape, generator=_DRAW)


def norm(x, weight, bias):
    return functional.layer_norm(x, (CLASSES,), weight, bias)


def groups(x, weight, bias):
    return functional.group_norm(x.reshape(4, CLASSES, -1), 8, weight, bias)


CASES = {
    "cross entropy": (lambda x: functional.cross_entropy(x, TARGETS), [drawn(ROWS, CLASSES)]),
    "of pictures": (lambda x: functional.cross_entropy(x, PIXELS), [drawn(4, 16, 32, 32)]),
    "layer norm": (norm, [drawn(ROWS, CLASSES), drawn(CLASSES), drawn(CLASSES)]),
    "group norm": (groups, [drawn(4, CLASSES, 512), drawn(CLASSES), drawn(CLASSES)]),
    "embedding": (lambda table: functional.embedding(PLACES, table), [drawn(64, CLASSES)]),
    "product": (lambda x: x.prod(-1), [1 + 0.01 * drawn(64, 512)]),
    "of all": (lambda x: x.prod(), [1 + 0.01 * drawn(512)]),
}


@pytest.fixture
def replaced():
    undo = sum_in_fp32()
    yield
    undo()


def errors(function, arguments, dtype) -> list[float]:
    """The relative error of a result and of each gradient, in units of the dtype."""
    given = [each.to(dtype).requires_grad_() for each in arguments]
    exact = [each.detach().double().requires_grad_() for each in given]
    found, expected = function(*given), function(*exact)
    weights = torch.rand(expected.shape, generator=torch.Generator().manual_seed(1)).to(dtype)
    (found * weights).sum().backward()
    (expected * weights.double()).sum().backward()
    pairs = [(found.detach(), expected.detach()), *((one.grad, other.grad) for one, other in zip(given, exact, strict=True))]
    assert all(one.dtype is dtype for one, _ in pairs)
    return [((one.double() - other).norm() / other.norm()).item() / torch.finfo(dtype).eps for one, other in pairs]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("function", "arguments"), CASES.values(), ids=CASES)
def test_halves_are_summed_in_fp32(function, arguments, dtype, replaced):
    assert max(errors(function, arguments, dtype)) < 1.5


@pytest.mark.parametrize(("function", "arguments"), CASES.values(), ids=CASES)
def test_other_types_are_torchs_own(function, arguments):
    def results():
        given = [each.clone().requires_grad_() for each in arguments]
        found = function(*given)
        found.sum().backward()
        return [found.detach(), *(each.grad for each in given)]

    before = results()
    undo = sum_in_fp32()
    after = results()
    undo()
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))


def test_a_type_that_is_asked_for_stays(replaced):
    x = torch.ones(4, 8, dtype=torch.float16)
    assert x.prod(-1, dtype=torch.float32).dtype is torch.float32
    assert x.log_softmax(-1, dtype=torch.float32).dtype is torch.float32
    assert functional.layer_norm(x.requires_grad_(), (8,), torch.ones(8).half()).dtype is torch.float16


def test_parameters_in_fp32_have_gradients_in_fp32(replaced):
    x, weight = torch.randn(64, 8, dtype=torch.bfloat16, requires_grad=True), torch.ones(8, requires_grad=True)
    functional.layer_norm(x, (8,), weight).sum().backward()
    assert (x.grad.dtype, weight.grad.dtype) == (torch.bfloat16, torch.float32)


# A package that replaces torch's own operators on the card, as FlagGems does: what a card leaves to the CPU stays torch's.

CARD = torch.device("cuda", 0)


@pytest.fixture
def seen():
    """Replace five operators on the card; the host's version of one is ours.

    Each call of a replacement is listed, with the device that it sees.
    """
    calls: list[tuple[str, torch.device | None]] = []

    def add(x, y, *, alpha=1):
        calls.append(("add", x.device))
        return torch.sub(x, -alpha * y)

    def convert(x, *, dtype=None, layout=None, device=None, pin_memory=None, non_blocking=False, memory_format=None):
        calls.append(("convert", x.device))
        return torch.empty_like(x, dtype=dtype or x.dtype).copy_(x)

    def zeros(size, *, dtype=None, layout=None, device=None, pin_memory=None):
        calls.append(("zeros", device))
        return torch.full(size, 0.0, dtype=dtype, device=device)

    def lift(x):
        calls.append(("lift", x.device))
        return x.clone()

    def log_softmax(x, dim, half_to_float):
        calls.append(("log_softmax", x.device))
        return torch.full_like(x, 7.0)

    with contextlib.ExitStack() as undo:
        undo.callback(sum_in_fp32())
        apply(changes(shared_ops(["cuda"])), undo)
        undo.enter_context(Redirect(torch.device("cpu"), ["cuda"], CARD))
        library = torch.library.Library("aten", "IMPL")
        undo.callback(library._destroy)
        for name, function in {
            "add.Tensor": add,
            "_to_copy": convert,
            "zeros": zeros,
            "lift_fresh": lift,
            "_log_softmax": log_softmax,
        }.items():
            library.impl(name, function, "CUDA")
        yield calls


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda x, host: torch.add(x, 1.5, alpha=2.0), 4.0),
        (lambda x, host: x + torch.tensor(1.0), 2.0),
        (lambda x, host: torch.zeros((3,), device=x.device), 0.0),
        (lambda x, host: x.half(), 1.0),
        (lambda x, host: torch.log_softmax(x.half().reshape(3, 1), 1).flatten(), 7.0),
    ],
    ids=["number", "tensor-of-the-host", "made", "converted", "log-softmax"],
)
def test_what_a_card_would_run_is_the_packages(call, expected, seen):
    """Each replacement sees the card, and what it makes is there."""
    x, host = torch.ones(3, device="cuda"), torch.ones(3)
    seen.clear()
    made = call(x, host)

    assert made.device == CARD
    assert made.tolist() == [expected] * 3
    assert seen
    assert {device for _, device in seen} == {CARD}


@pytest.mark.parametrize("make", [torch.zeros, torch.ones, torch.empty, torch.rand, torch.arange])
def test_what_is_written_to_a_tensor_stays_where_that_is(make, seen):
    on_card, on_host = torch.empty(3, device="cuda"), torch.empty(3)

    assert make(3, out=on_card) is on_card
    assert (on_card.device, make(3, out=on_host).device.type) == (CARD, "cpu")
    assert make(3, out=on_card, device="cuda") is on_card
    assert make(3, out=on_host, device="cpu") is on_host
    for out, device in ((on_host, "cuda"), (on_card, "cpu")):  # as on an H200 (2026-11-30, torch 2.11)
        with pytest.raises(RuntimeError, match=rf"device type {device} does not match device type of out parameter \("):
            make(3, out=out, device=device)


@pytest.mark.parametrize(
    ("call", "expected", "dtype"),
    [
        (lambda host: host + 1.5, [2.5] * 3, torch.float32),
        (lambda host: host.int() + 1.5, [2.5] * 3, torch.float32),
        (lambda host: host.half() + 1.5, [2.5] * 3, torch.float16),
        (lambda host: torch.add(1.0, 2.0, alpha=3), 7.0, torch.float32),
        (lambda host: torch.tensor(1.0) + 2.5, 3.5, torch.float32),
        (lambda host: torch.zeros(3), [0.0] * 3, torch.float32),
        (lambda host: torch.log_softmax(host.half().reshape(3, 1), 1).flatten(), [0.0] * 3, torch.float16),
    ],
    ids=["number", "integers", "half", "numbers", "no-dimension", "made", "log-softmax"],
)
def test_what_a_card_leaves_to_the_cpu_is_torchs(call, expected, dtype, seen):
    """No replacement is called, and the type is that of torch."""
    host = torch.ones(3)
    made = call(host)

    assert (made.device.type, made.dtype, made.tolist()) == ("cpu", dtype, expected)
    assert seen == []


def test_a_tensor_of_numpy_is_the_hosts(seen, monkeypatch):
    """Also while the package works on the card, and where warpwave makes one to learn from a call."""
    monkeypatch.setattr(Redirect.current, "watch", lambda *call: torch.from_numpy(np.ones(3)))
    monkeypatch.setattr(torch, "from_numpy", functools.partial(from_host, torch.from_numpy))
    torch.ones(3, device="cuda")
    torch.from_numpy(np.ones(3))

    assert [name for name, _ in seen if name == "lift"] == []


@pytest.mark.parametrize(
    "shapes", [((5, 8), (2, 7, 8), (2, 1, 7, 8)), ((2, 2, 5, 8), (2, 1, 7, 8), (1, 2, 7, 8))], ids=["mixed", "broadcast"]
)
def test_allocators_that_a_package_replaces_serve_torch_too(shapes, monkeypatch):
    """In a backward on tensors without data, torch's own functions call them for shapes: what they make is not the package's."""
    wrong, inner = [], []

    def replaced(allocate):
        def allocated(*args, **options):
            made = allocate(*args, **options)
            if inner:  # torch fills a tensor without data in Python, which allocates
                return made
            inner.append(made)
            beside = torch.full((3,), 1.0, device=made.device)
            inner.clear()
            if beside.untyped_storage().device != made.untyped_storage().device:
                wrong.append((args, options))
            return made

        return allocated

    for owner, name in ((torch, "empty"), (torch, "empty_like"), (torch.Tensor, "new_empty")):
        monkeypatch.setattr(owner, name, replaced(getattr(owner, name)))
    with contextlib.ExitStack() as undo:
        redirect = undo.enter_context(WithoutData(torch.device("meta"), ("cuda",), CARD))
        keep_in_backward(redirect, undo)
        leaves = [torch.randn(shape, device="cuda", dtype=torch.float16, requires_grad=True) for shape in shapes]
        out = torch.nn.functional.scaled_dot_product_attention(*leaves)
        grads = torch.autograd.grad(out, leaves, torch.randn_like(out))
        assert [grad.device for grad in grads] == [CARD] * 3
    assert wrong == []


# What the environment lacks: an older Triton, whose interpreter differs, and missing modules.


def test_a_bound_of_one_element_is_a_number():
    """NumPy 2.4 refuses `int()` of an array that has a dimension."""

    class Scope:
        def set_attr(self, tensor, name, value):
            setattr(tensor, name, value)

    class Bound:
        handle = SimpleNamespace(data=np.array([3]))

    with_index(lambda tensor, scope: scope.set_attr(tensor, "__index__", lambda value: int(value.handle.data)), Bound, Scope())

    assert list(range(Bound())) == [0, 1, 2]


def test_the_mask_of_a_block_pointer_is_a_handle(monkeypatch):
    """It is a plain array there, whose `data` is no array."""
    owner = interpreter.TensorDescHandle
    monkeypatch.setattr(owner, "materialize_pointers", lambda described: (SimpleNamespace(), np.ones(4, bool)))
    wrapped = next(value for who, _, value in origin_patches(lambda: None) if who is owner)
    _, mask = wrapped(SimpleNamespace())

    assert isinstance(mask, interpreter.TensorHandle)
    assert mask.data.all()


CONFTEST, GONE = "ModuleNotFoundError: No module named 'conftest'", "ModuleNotFoundError: No module named 'pluggy.ops'"
REFUSED = "CompilationError: Block pointers have been removed in favor of the tensor descriptor API (at 3:9)"
HINTS = {
    "an older Triton": (["its own", REFUSED], ["--triton 3.6.0"], []),
    "a toolkit": (["OSError: CUDA_HOME environment variable is not set."], ["--env NAME=1"], []),
    "another toolkit": (["RuntimeError: ROCm version file not found"], ["--env NAME=1"], []),
    "modules, the most wanted first": (
        ["No module named 'yaml'", *["No module named 'frozendict.core'"] * 2, "assert 1 == 2"],
        ["Missing here: frozendict.core, yaml.", "--with NAME", "--install"],
        [],
    ),
    "a conftest is nothing to install": ([CONFTEST, "No module named 'einops'"], ["Missing here: einops.", "package's repository"], []),
    "a conftest alone": ([CONFTEST], ["Tests import conftest.py"], ["Missing"]),
    "a submodule that the installed version lacks": (
        [GONE],
        [f"The installed pluggy {version('pluggy')} has no pluggy.ops.", "--with 'NAME==VERSION'"],
        ["Missing here"],
    ),
    "the package under test has no other version": (["No module named 'warpwave.gone'"], ["Missing here: warpwave.gone."], []),
}


@pytest.mark.parametrize(("said", "told", "untold"), HINTS.values(), ids=HINTS)
def test_what_the_environment_lacks_has_a_hint(said, told, untold):
    hint = hint_of(said)

    assert [words for words in told if words not in hint] == []
    assert [words for words in untold if words in hint] == []


@pytest.mark.parametrize("said", ["its own", "KeyError: 'OPS_HOME'", "ImportError: cannot import name 'a' from 'b'"])
def test_what_is_no_fault_of_the_environment_has_none(said):
    assert hint_of([said]) == ""


def test_nobody_is_told_to_install_what_is_installed(tmp_path, monkeypatch):
    """What is missing then is something that the package does not declare, or that was left out."""
    installed = tmp_path / "ops_of_nobody-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: ops-of-nobody\nVersion: 1.0\n")
    (installed / "top_level.txt").write_text("ops_of_nobody\n")
    (installed / "direct_url.json").write_text('{"url": "file:///tmp/wheel/ops_of_nobody-1.0-py3-none-any.whl", "archive_info": {}}')
    said = ["ModuleNotFoundError: No module named 'yaml_of_nobody'"]
    package, other = tmp_path / "package", tmp_path / "other"
    (package / "src" / "ops_of_nobody").mkdir(parents=True)
    other.mkdir()
    assert "The package is installed." not in hint_of(said, package)

    monkeypatch.syspath_prepend(tmp_path)

    assert "Missing here: yaml_of_nobody. The package is installed. --with NAME" in hint_of(said, package)
    assert "The package is installed." not in hint_of(said, other)


def test_empty_submodules_are_named_if_modules_are_missing(tmp_path):
    """`git clone` leaves them empty, and links into them lead nowhere."""
    (tmp_path / ".gitmodules").write_text('[submodule "a"]\n\tpath = 3rdparty/a\n[submodule "b"]\n\tpath = b\n\turl = u\n')
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "x.py").write_text("")
    missing = "ModuleNotFoundError: No module named 'fla_of_nobody'"

    assert "submodules are not checked out: 3rdparty/a. Run git submodule update --init." in hint_of([missing], tmp_path)
    assert hint_of(["assert 1 == 2"], tmp_path) == ""
    assert "submodule" not in hint_of([missing])


def test_a_compiler_copies_its_fake_tensors():
    """torch asks of what a fake tensor holds whether it has no data, as a tensor of the card does not admit."""
    from torch._subclasses.fake_impls import fast_detach
    from torch._subclasses.fake_tensor import FakeTensorMode

    with WithoutData(torch.device("meta"), ("cuda",), CARD), FakeTensorMode() as mode:
        assert fast_detach(mode, torch.empty(4, device="cuda")).shape == (4,)


def test_what_a_compiler_makes_without_data_is_on_the_card():
    """In `FakeTensorMode`, each tensor keeps its device itself."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    with Redirect(torch.device("cpu"), ("cuda",), CARD), FakeTensorMode():
        made, host = torch.randn(4, device="cuda"), torch.zeros(4)

        assert (made + torch.full((), 1.0, device="cuda")).device.type == "cuda"
        assert host.device.type == "cpu"
        with pytest.raises(RuntimeError, match="cuda:0 and cpu"):
            made + host
