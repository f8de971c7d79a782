"""A device that stops answering, as a GPU does after a fault, in place of torch's: for this process, or for all of one attempt."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

LOST = Path(os.environ["POISON_STATE"], "lost")  # holds the id of the process that supervises the attempt in which the card was lost
WORDS = "CUDA error: an illegal memory access was encountered"
poisoned = []


def synchronize(*_):
    if poisoned or (LOST.exists() and int(LOST.read_text()) == os.getppid()):
        raise RuntimeError(WORDS + "\nCUDA kernel errors might be asynchronously reported at some other API call")


torch.accelerator.synchronize = synchronize
torch.accelerator.current_accelerator = lambda *_, **__: torch.device("cpu")
torch.get_device_module = lambda *_: SimpleNamespace(is_initialized=lambda: True)


@pytest.fixture
def launch():
    """Start a kernel with a fault: nothing is noticed until somebody waits for it."""
    return lambda: poisoned.append(True)


@pytest.fixture
def lose():
    """The card falls off the bus: no process gets an answer in this attempt; in the next one it is back."""

    def once():
        if not LOST.exists():
            LOST.write_text(str(os.getppid()))

    return once


@pytest.fixture
def wait():
    return torch.accelerator.synchronize
