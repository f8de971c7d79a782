"""What the interpreter replaces of Triton's language, with the names kept: the same as what it finds by looking through everything."""

import types

import pytest

pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")

import triton.language as tl
from triton.runtime import interpreter

from warpwave.inside.fake_gpu.language import remembering

SEARCH = interpreter._patch_builtin


@pytest.fixture
def replaced(monkeypatch):
    """Returns the names that a search replaces."""
    found = []
    monkeypatch.setattr(interpreter, "_patch_attr", lambda owner, name, member, *rest: found.append(name))

    def names(search, owner):
        found.clear()
        search(owner, None, None)
        return list(found)

    return names


@pytest.mark.parametrize("owner", [tl, tl.tensor, tl.math, tl.core.tensor_descriptor_base])
def test_the_same_members_are_replaced_the_first_time_and_later(replaced, owner):
    search = remembering(interpreter)
    assert replaced(search, owner) == replaced(search, owner) == replaced(SEARCH, owner) != []


def test_what_is_new_or_was_replaced_meanwhile_is_noticed(replaced, monkeypatch):
    """A kernel that another one launches finds the members replaced: that is not what is kept."""
    search, one = remembering(interpreter), tl.core.builtin(lambda _semantic: None)
    module = types.ModuleType("language")
    module.first = one
    assert replaced(search, module) == ["first"]
    module.second = one
    assert replaced(search, module) == ["first", "second"]

    module = types.ModuleType("another")
    monkeypatch.undo()
    module.first = one
    scope = interpreter._LangPatchScope()
    interpreter._patch_attr(module, "first", one, None, scope)
    module.second = one
    search(module, None, scope)
    scope.restore()
    search(module, None, scope)
    assert "_patch_attr" in module.first.__qualname__


def test_the_interpreter_does_not_compute_what_it_drops():
    """It computes each sum of whole numbers again in 64 bits, and compares only if it debugs."""
    from triton.runtime.interpreter import InterpreterOptions

    from warpwave.inside.fake_gpu.language import _without_overflow

    assert not _without_overflow(InterpreterOptions()).sanitize_overflow
    assert _without_overflow(InterpreterOptions(debug=True)).sanitize_overflow
