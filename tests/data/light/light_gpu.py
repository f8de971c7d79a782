"""A card that nothing needs: packages that do not use torch ask it for nothing, and what stands in for torch has no room for one."""

import sys
from types import ModuleType, SimpleNamespace


def interpreted_device(card, kinds):
    """Pretend nothing."""
    return SimpleNamespace(begin=lambda: None, chosen={}), lambda: None


module = ModuleType("harness.inside.fake_gpu.interpreter")
module.interpreted_device = interpreted_device
sys.modules[module.__name__] = module
