"""In a test worker: import torch's compiler before this run has the card, if the package names something that needs it.

The first call of `torch.compile` or `torch.library.opcheck` imports some 1,500 modules. That takes seconds, in each worker that shares the
card, and the card would wait meanwhile.
"""

from __future__ import annotations

import contextlib
import importlib
import os

from harness.inside.environment.package_path import names_any
from harness.records import Job

_VARIABLE = "WARPWAVE_IMPORT_COMPILER"
_NAMES = ("torch.compile", "opcheck")
_MODULE = "torch._inductor.compile_fx"  # imports nearly all that the two need


def tell_workers(job: Job) -> None:
    """Tell the workers of a stage whether to import it."""
    os.environ[_VARIABLE] = "1" if job.needs_card and names_any(job, *_NAMES) else ""


def import_compiler() -> None:
    """Import it, if the stage says so. A torch that cannot says why in the test that needs it."""
    if os.environ.get(_VARIABLE):
        with contextlib.suppress(Exception):
            importlib.import_module(_MODULE)
