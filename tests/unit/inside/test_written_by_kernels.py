"""Which arguments a kernel may write to, by Triton's own IR."""

from __future__ import annotations

import pytest

pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")

from warpwave.inside.fake_gpu.no_data import written

LOOP = """
module {
  tt.func public @kernel(%table: !tt.ptr<i32> loc("table"(#loc)), %x: !tt.ptr<f32> loc(#l), %out: !tt.ptr<f32> loc(#l), %count: !tt.ptr<i32>
 loc(#l), %n: i32 loc(#l)) attributes {noinline = false} {
    %first = tt.load %table : !tt.ptr<i32> loc(#loc2)
    %place = tt.addptr %out, %first : !tt.ptr<f32>, i32 loc(#loc3)
    %last:2 = scf.for %i = %c0 to %n step %c1 iter_args(%sum = %zero, %at = %place) -> (f32, !tt.ptr<f32>)  : i32 {
      %here = tt.addptr %x, %i : !tt.ptr<f32>, i32 loc(#loc4)
      %value = tt.load %here : !tt.ptr<f32> loc(#loc5)
      tt.store %at, %value : !tt.ptr<f32> loc(#loc6)
      %next = tt.addptr %at, %c1 : !tt.ptr<f32>, i32 loc(#loc7)
      scf.yield %value, %next : f32, !tt.ptr<f32> loc(#loc8)
    } loc(#loc9)
    %old = tt.atomic_rmw add, acq_rel, gpu, %count, %c1, %true : (!tt.ptr<i32>, i32, i1) -> i32 loc(#loc10)
    tt.return loc(#loc11)
  }
}
""".replace("\n loc(#l), %n", " loc(#l), %n")


def test_a_store_leads_back_to_its_argument():
    """Through a loop and arithmetic; not through the number that was loaded from a table."""
    assert written(LOOP) == {"out", "count"}
    assert written(LOOP.replace("tt.store %at", "tt.store %last#1")) >= {"out", "count"}
    assert written("module {}") == frozenset()
