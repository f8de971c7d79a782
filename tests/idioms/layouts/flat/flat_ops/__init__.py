"""A package of several files that import one another relatively."""

from .activated import activated
from .utils import DEVICE, cdiv

__all__ = ["DEVICE", "activated", "cdiv"]
