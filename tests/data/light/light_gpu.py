"""A card that nothing needs: packages that do not use torch ask it for nothing, and what stands in for torch has no room for one."""

import sys
from types import ModuleType, SimpleNamespace


def interpreted_device(card, kinds, more):
    """Pretend nothing."""
    return SimpleNamespace(begin=lambda: None, chosen={}, in_place=[]), lambda: None


def of_interpreted_kernels(plugins, journal):
    """Check nothing: no kernel runs."""
    return []


CHECKS = {"of_interpreted_kernels": of_interpreted_kernels}
for name, members in (("fake_gpu.card", {"interpreted_device": interpreted_device}), ("sanitize.pytest_plugin", CHECKS)):
    module = ModuleType(f"warpwave.inside.{name}")
    vars(module).update(members)
    sys.modules[module.__name__] = module
