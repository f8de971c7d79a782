"""A pretended card in a process of pytest: for the test stage, and for the author's own `pytest --warpwave`.

Both execute kernels in the same way and say the same of a test. In the author's own pytest, a test that needs what is not pretended is
skipped, with the reason; the stage writes a row.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from warpwave.inside.environment import temporary_home
from warpwave.inside.facts.stage import UnusableError, check_emulator
from warpwave.inside.fake_gpu.launches import Asked, Launched
from warpwave.inside.process.journal import Journal
from warpwave.inside.process.lacking import Package
from warpwave.inside.process.outcomes import (
    DecidedByData,
    NotPretended,
    Pretended,
    describe,
    first_of_several,
    raised_in_kernel,
    unchecked,
    with_child,
    with_place,
)
from warpwave.inside.test.autotuned import Autotuned
from warpwave.inside.test.mismatch import is_moved, with_numbers
from warpwave.records import Architecture, Limits

_NOT_PRETENDED = "not checked: "


def provide(
    config: pytest.Config,
    card: Architecture,
    kinds: Sequence[str],
    *,
    seconds: float = 0.0,
    sanitize: bool = True,
    every: bool = False,
    asked: Asked | None = None,
    profile: bool = False,
    passes: bool = False,
    journal: Journal | None = None,
) -> Any:
    """Pretend the card until pytest ends. Return the account of what is executed, if it is emulated.

    `kinds` are torch's names for the type of device. With `seconds`, kernels are compiled and their machine code is executed, and a test
    may take so long; without, they are interpreted. With `sanitize`, a test fails if its kernels do wrong to memory. `every`: tests run
    once with each configuration of an autotuned kernel, or of those `asked` for. With `profile`, what emulated kernels do is counted; with
    `passes`, their code behind each pass of the compiler is executed.
    """
    plugins = config.pluginmanager
    account = None
    if seconds:
        from warpwave.inside.fake_gpu.card import emulated_device
        from warpwave.inside.fake_gpu.launches import Account

        account = Account(card.name, card.warp_size, seconds)
        checks = None
        if sanitize:
            from warpwave.inside.sanitize.pytest_plugin import of_machine_code as check

            checks = check(plugins, journal)
        tuning, undo = emulated_device(card, kinds, account, checks)
        if passes:
            from warpwave.inside.fake_gpu.lanes import Passes

            account.passes = Passes()
        if profile and journal:
            from warpwave.inside.test.profiled import Profiled

            account.profiles = Profiled(card, journal, tuning)
            plugins.register(account.profiles, "warpwave-profiled")
    else:
        from warpwave.inside.fake_gpu.card import interpreted_device

        patches: list[tuple[Any, str, Any]] = []
        if sanitize:
            from warpwave.inside.sanitize.pytest_plugin import of_interpreted_kernels

            patches = of_interpreted_kernels(plugins, journal)
        tuning, undo = interpreted_device(card, kinds, patches)
    tuning.asked = asked or {}
    config.add_cleanup(undo)
    plugins.register(Autotuned(tuning, every, journal), "warpwave-autotuned")
    return account


def begin_test(account: Any) -> None:
    """Forget what earlier tests did with the card."""
    Pretended.asked.clear()
    Pretended.ran_compiled = False
    Launched.kernels.clear()
    Launched.functions.clear()
    Launched.tuned, Launched.in_place, Launched.cut_to_tf32 = {}, [], False
    if account:
        account.begin()


def words_of(error: BaseException | None, message: str, printed: str | None = None) -> str:
    """Return what to say of a failed test: where a kernel raised, by how much a comparison failed, what a child process `printed`."""
    raised = raised_in_kernel(error)
    is_ours = raised is not None or isinstance(error, (DecidedByData, NotPretended))
    placed = describe(error) if is_ours and error else with_place(error) if error else ""
    begin, _, below = message.partition("\n")
    if error is not None and begin.rstrip().endswith(":"):  # only a name, or the begin of another process's traceback
        message = f"{describe(error)}\n{below}"
    said = placed or first_of_several(error) or with_child(error, with_numbers(error, message), printed)
    if advice := Launched.advice(isinstance(error, AssertionError), is_moved(error)):
        first, *rest = said.split("\n", 1)
        said = "\n".join([f"{first}. {advice}", *rest])
    return Launched.with_configurations("\n".join([*Launched.in_place, said]))


def begin(config: pytest.Config, card: Architecture, *, emulated: bool, sanitize: bool, every: bool, asked: Asked) -> None:
    """Pretend the card in the author's own pytest.

    Raises:
        pytest.UsageError: the emulator lacks a package or a compiler.
    """
    if emulated:
        try:
            check_emulator()
        except UnusableError as error:
            raise pytest.UsageError(f"--warpwave {card.name}: {error}. {error.hint}") from None
    os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")  # as in a run
    until_the_end = contextlib.ExitStack()
    config.add_cleanup(until_the_end.close)
    until_the_end.callback(setattr, Package, "root", Package.root)
    Package.root = config.rootpath  # its sources say what its compiled code would have
    folder = until_the_end.enter_context(tempfile.TemporaryDirectory(prefix="warpwave-"))
    until_the_end.enter_context(temporary_home(Path(folder)))
    seconds = Limits.test_s if emulated else 0
    account = provide(config, card, [card.torch_device], seconds=seconds, sanitize=sanitize, every=every, asked=asked)
    config.pluginmanager.register(InPytest(card, account), "warpwave-in-pytest")


class InPytest:
    """Tells the author's pytest what the test stage would write of a test."""

    def __init__(self, card: Architecture, account: Any) -> None:
        self.card, self.account = card, account

    def pytest_report_header(self) -> str:
        """Say how kernels run."""
        how = "machine code, executed on the CPU" if self.account else "kernels run in Triton's interpreter"
        return f"warpwave: {self.card.shown}, {how}; nothing is timed"

    def pytest_runtest_logstart(self) -> None:
        """Start a test."""
        begin_test(self.account)

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self) -> Iterator[None]:
        """Skip a module that needs what is not pretended."""
        report: Any = yield
        call = getattr(report, "call", None)
        error = call.excinfo.value if report.failed and call and call.excinfo else None
        if error is not None and unchecked(error):
            report.outcome, report.longrepr = (
                "skipped",
                (report.nodeid, 0, f"Skipped: {_NOT_PRETENDED}{with_place(error) or describe(error)}"),
            )
        return report  # type: ignore[no-any-return]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
        """Say whose fault a failure is, and fail a test whose kernels failed, even if its own code has caught that."""
        report: Any = yield
        error = call.excinfo.value if call.excinfo else None  # of unittest, pytest puts it there meanwhile
        if call.when == "call" and self.account:
            item.user_properties += self.account.properties().items()
        fault = self.account.fault if self.account and call.when == "call" else None
        path, line, _ = item.location
        if fault and not (hasattr(report, "wasxfail") and fault.outcome == "failed"):
            message = Launched.with_configurations(fault.message)
            report.outcome, report.longrepr = "failed", f"{path}:{(line or 0) + 1}: {message}"
            report.__dict__.pop("wasxfail", None)
        elif report.failed and error is not None:
            crash = getattr(report.longrepr, "reprcrash", None)
            words = words_of(error, getattr(crash, "message", "") or str(error))
            if found := unchecked(error):
                said = next(iter((found[1] or words).splitlines()), "")
                report.outcome, report.longrepr = "skipped", (path, line, f"Skipped: {_NOT_PRETENDED}{found[0].words}: {said}")
            elif crash:
                crash.message = words
        return report  # type: ignore[no-any-return]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say how many tests were not checked: green must not claim more than that."""
        skipped = [report for report in terminalreporter.stats.get("skipped", ()) if _NOT_PRETENDED in str(report.longrepr)]
        if skipped:
            many = "1 test was" if len(skipped) == 1 else f"{len(skipped)} tests were"
            terminalreporter.write_line(f"warpwave: {many} not checked, -rs says why")
