"""Products of fp32 whose precision nobody named: found where they stand in the source."""

from __future__ import annotations

import sys
import types

import pytest

from warpwave.inside.codegen.gates import unnamed_products

SOURCE = """import triton.language as tl
def kernel(x, y, more, PRECISION):
    a = tl.dot(x, y)
    b = tl.dot(x, y, input_precision=PRECISION)
    c = tl.dot(x, y, None, "ieee")
    d = tl.dot(x, y, allow_tf32=False)
    e = tl.dot(x, y, **more)
    f = tl.dot(*more)
    g = tl.dot(x, y, input_precision=None)
    h = tl.dot(x, tl.dot(x, y), None, "ieee")
    i = dot(
        x, y).to(float)
    j = tl.sum(x)
"""


PRODUCT = "    %1 = tt.dot %x, %y, %z, inputPrecision = tf32 : tensor<32x16x{0}> * tensor<16x32x{0}> -> tensor<32x32xf32> loc({1})\n"


@pytest.mark.parametrize(
    ("line", "column", "named"),
    [
        *[(3, 9, False), (4, 9, True), (5, 9, True), (6, 9, True), (7, 9, True), (8, 9, True), (9, 9, False)],
        *[(10, 9, True), (10, 19, False), (11, 9, False), (13, 9, True), (3, 1, False), (10, 1, True), (99, 9, True)],
    ],
)
def test_a_call_that_names_no_precision_is_found_where_it_stands(tmp_path, line, column, named):
    """By line and column, or by line where only one product stands on it; what cannot be told is not claimed."""
    (tmp_path / "k.py").write_text(SOURCE)
    ttir = PRODUCT.format("f32", "#loc2") + f'#loc1 = loc("{tmp_path}/k.py":{line}:{column})\n#loc2 = loc("a"(#loc1))\n'

    assert unnamed_products(ttir) == (() if named else (f"k.py:{line}",))


def test_only_products_of_fp32_are_looked_at(tmp_path):
    """Half precision is the same everywhere; an inlined function is found where it is written; a file that is gone says nothing."""
    (tmp_path / "k.py").write_text(SOURCE)
    places = f'#loc1 = loc("{tmp_path}/k.py":3:9)\n#loc2 = loc(callsite(#loc1 at #loc3))\n#loc3 = loc("{tmp_path}/gone.py":3:9)\n'

    assert unnamed_products(PRODUCT.format("f16", "#loc1") + places) == ()
    assert unnamed_products(PRODUCT.format("f32", "#loc2") + places) == ("k.py:3",)
    assert unnamed_products(PRODUCT.format("f32", "#loc3") + places) == ()
    assert unnamed_products(PRODUCT.format("f32", "#loc4") + "#loc4 = loc(fused[#loc4, #loc5])\n") == ()


def test_a_file_that_moved_is_found_again(tmp_path, monkeypatch):
    """The compiler's cache remembers the folder of an earlier run; what counts is the module of this one, of the right room."""
    for room, source in (("one", SOURCE), ("two", SOURCE.replace("(x, y)", "(x, y, allow_tf32=True)"))):
        (tmp_path / room).mkdir()
        (tmp_path / room / "k.py").write_text(source)
        module = types.ModuleType(room)
        module.__file__ = str(tmp_path / room / "k.py")
        monkeypatch.setitem(sys.modules, f"gates_test_{room}", module)

    for room, found in (("one", ("k.py:3",)), ("two", ())):
        assert unnamed_products(PRODUCT.format("f32", "#loc1") + f'#loc1 = loc("/earlier/{room}/k.py":3:9)\n') == found
