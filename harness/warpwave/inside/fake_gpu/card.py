"""The way into this room: the three pretended cards, so that unmodified kernel packages run where there is no card.

- `pretended_device` (compile stage): tensors are torch's meta tensors, with shapes, strides and storage sizes but no data. Triton's driver
  names the wanted architecture, so the JIT specializes and compiles exactly as it would on that card, and launches nothing.
- `interpreted_device` (test stage): tensors are on the CPU, and kernels run in Triton's interpreter.
- `emulated_device` (test stage): tensors are on the CPU, and kernels are compiled, and executed by the emulator.

Tensors say that they are on the card's device (`cuda:0`, `xpu:0`). `answers.py` lists what else a package sees.

(FakeTensors would be the obvious choice for the first, but on a torch built without GPU support their autograd aborts the process: no
device guard is registered for the device that they claim.)
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
import triton

from warpwave.inside.fake_gpu import answers
from warpwave.inside.fake_gpu.driver import Loader, OnLaunch, PretendedDriver, capability
from warpwave.inside.fake_gpu.no_data import WithoutData
from warpwave.inside.fake_gpu.redirect import Redirect
from warpwave.inside.fake_gpu.torch_device import Patch, apply, follow_in_compiler, torch_device
from warpwave.inside.fake_gpu.torch_ops import sum_in_fp32
from warpwave.inside.fake_gpu.tuning import Tuning, fits_on, has_threads
from warpwave.inside.fake_gpu.vendor_tools import pretend_tools
from warpwave.records import Architecture

if TYPE_CHECKING:
    from warpwave.inside.fake_gpu.emulated_findings import Collected
    from warpwave.inside.fake_gpu.launches import Account

# Tests that ask whether there is room for a tensor of gigabytes would fill the host's memory, and take hours.
_FREE_BYTES = 8 << 30
# The number of multiprocessors only sizes grids, and a grid-stride loop is right for every size. A small one is fast. Numbers of tiles are
# often even: with an odd one, two writes of an element are more often of two programs, where they are a race.
_PROCESSORS = 5


@contextlib.contextmanager
def pretended_device(
    card: Architecture, load: Loader, kinds: Iterable[str] = ("cuda",), launched: OnLaunch | None = None
) -> Iterator[None]:
    """Within, kernels are compiled for `card` and launched nowhere; every `do_bench` calls its function once.

    Whatever asks for a device of the card's own type, or of one of `kinds`, gets the pretended one. `launched` hears of each launch.
    """
    device = torch_device(card.torch_device)
    named = (device.type, *kinds)
    triton.runtime.driver.set_active(PretendedDriver(card, device, card.properties, load, launched))
    with contextlib.ExitStack() as undo:
        apply(answers.changes([*answers.of_every_card(card, device, named), *answers.without_data(device)]), undo)
        follow_in_compiler(device, undo)
        pretend_tools(card, getattr(torch, device.type).get_device_properties(), capability(card), undo)
        keep_in_backward(undo.enter_context(WithoutData(torch.device("meta"), named, device)), undo)
        yield


def interpreted_device(card: Architecture, kinds: Sequence[str], more: Sequence[Patch] = ()) -> tuple[Tuning, Callable[[], None]]:
    """Pretend that tensors on a GPU of any of these types are on `card`. Return what autotuners choose, and what undoes it all.

    `more` is changed first, below all else.
    """
    undo = contextlib.ExitStack()
    apply([*more], undo)
    apply(answers.changes(answers.before_launches()), undo)
    few = replace(card, properties={**card.properties, "multiprocessor_count": _PROCESSORS})
    device = torch_device(card.torch_device)
    driver = PretendedDriver(few, device, few.properties, lambda binary: (32, 0, few.program_threads))
    tuning = _with_data(few, kinds, driver, answers.interpreted(_PROCESSORS, few, card), undo)
    tuning.fits = has_threads(card)
    apply(answers.changes([*answers.promised(), *answers.traced()]), undo)
    return tuning, undo.close


def emulated_device(
    card: Architecture, kinds: Sequence[str], account: Account, checks: Collected | None = None
) -> tuple[Tuning, Callable[[], None]]:
    """Pretend that tensors on a GPU of any of these types are on `card`, and execute what is launched there.

    Return what autotuners choose, and what undoes it all. `account` counts what is executed. With `checks`, launches are
    checked for more than their results, and `checks` collects what is found.
    """
    from warpwave.inside.fake_gpu.emulated import EmulatedDriver

    undo = contextlib.ExitStack()
    driver = EmulatedDriver(account, checks, card, torch_device(card.torch_device))
    tuning = _with_data(card, kinds, driver, answers.emulated(account.watch), undo)
    tuning.fits = fits_on(card)
    return tuning, undo.close


def _with_data(
    card: Architecture, kinds: Sequence[str], driver: PretendedDriver, launching: Sequence[answers.Answer], undo: contextlib.ExitStack
) -> Tuning:
    """Pretend a card whose tensors are on the CPU; `launching` is what lets kernels run. Return what autotuners choose."""
    device, tuning = torch_device(card.torch_device), Tuning()
    triton.runtime.driver.set_active(driver)
    free = min(_FREE_BYTES, os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    table = [*answers.of_every_card(card, device, kinds, free), *answers.with_data(kinds, tuning, launching)]
    undo.callback(sum_in_fp32())  # before the table changes what a library of torch does
    apply(answers.changes(table), undo)
    follow_in_compiler(device, undo)
    pretend_tools(card, getattr(torch, device.type).get_device_properties(), capability(card), undo)
    keep_in_backward(undo.enter_context(Redirect(torch.device("cpu"), kinds, device)), undo)
    return tuning


def keep_in_backward(redirect: torch.overrides.TorchFunctionMode, undo: contextlib.ExitStack) -> None:
    """Keep the mode on during `backward`, which runs the package's own code."""
    apply(answers.changes(answers.in_backward(redirect)), undo)
