"""The cards of `tests/data/cards`, with the driver of this vendor: for every Python process that has STUB_CARDS and this folder first."""

import os
import runpy
from pathlib import Path

if "STUB_CARDS" in os.environ:
    cards = runpy.run_path(str(Path(__file__).parents[2] / "cards" / "device" / "sitecustomize.py"))
    del cards["After"].PATCHES["triton"]  # it finds this vendor's driver by itself
