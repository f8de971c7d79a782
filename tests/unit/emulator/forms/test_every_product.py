"""Every product of matrices on every card that has it: whole numbers, whose sums are exact in any order, and all codes of small floats."""

from __future__ import annotations

import numpy as np
import pytest
from held import PRODUCTS, unused, used
from machine_code import WAVES
from slow_cases import slow_but
from statements.products import Product, execute_steps
from units.on_products import step, steps

from warpwave.emulator.decode.decoder import FAMILIES
from warpwave.emulator.library import core


def products(arch: str) -> list[Product]:
    """Return the products of a card, from the lists of what kernels use and of what they do not."""
    examples = [*used(arch).values(), *unused(arch).values()]
    return [Product(arch, name, one) for name, one in sorted({one.split()[0]: one for one in examples if one.startswith(PRODUCTS)}.items())]


@pytest.mark.parametrize("arch", slow_but(WAVES, ["gfx942"]))
def test_every_product_is_one(arch):
    for product in products(arch):
        made = steps(product)
        execute_steps(arch, made)
        for one in made:
            one.check(one.found)


@pytest.mark.parametrize("wave", [32, 64])
def test_no_product_of_the_core_is_forgotten(wave):
    """Each of the core's products is one of a list's, under the name that the card gives it."""
    kept = set()
    for arch in WAVES:
        eights = "fnuz" if arch == "gfx942" else "ocp"
        for p in products(arch) if WAVES[arch] == wave else []:
            name = p.name.replace("_scale_", "_")
            if arch == "gfx90a":
                blocks = f"_{p.blocks}b" if p.blocks > 1 else ""
                name = f"v_mfma_{p.into}_{p.m}x{p.m}x{p.k}{blocks}_{p.left}"
            suffix = f"_r{FAMILIES[arch][-1]}" if wave == 32 else f"_{eights}" if p.left in ("fp8", "bf8") else ""
            kept.add(name + suffix)

    assert {name for name in core(wave).operations if name.startswith(PRODUCTS)} == kept


def test_scaled_products_that_differ_in_their_last_word_alone():
    """The last of four words says which registers A, B and C are in: the decoder remembers instructions by all of their words."""
    random = np.random.default_rng(3)
    product = next(one for one in products("gfx950") if one.name == "v_mfma_scale_f32_16x16x128_f8f6f4")
    made = [step(product, random, formats=("fp4", "fp4"), c=c) for c in ("v", "constant", "v")]
    execute_steps("gfx950", made)
    for one in made:
        one.check(one.found)
