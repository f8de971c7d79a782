"""What emulated kernels ask of the card: counted by the emulator, summed by test and kernel, with the least time that follows from it."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from warpwave.emulator import Kernel
from warpwave.emulator.counts import Counts, bounds
from warpwave.inside.codegen.binary import occupancy
from warpwave.inside.process.journal import Journal
from warpwave.inside.process.outcomes import statement
from warpwave.records import MOST_LINES, Architecture, Profile, ProfiledLine


class Profiled:
    """Collects the counts of a test's launches, and is a pytest plugin. The journal gets a row for each kernel of a test.

    `tuning` knows the configurations that autotuners launch.
    """

    def __init__(self, card: Architecture, journal: Journal, tuning: Any) -> None:
        self.card, self.journal, self.tuning = card, journal, tuning
        self._counts: dict[Kernel, tuple[Counts, Any]] = {}

    def of(self, kernel: Kernel, metadata: Any) -> Counts | None:
        """Return what a launch of this kernel adds its counts to; None for one that only tunes."""
        if self.tuning.trying:
            return None
        return self._counts.setdefault(kernel, (Counts(kernel), metadata))[0]

    def pytest_runtest_logstart(self) -> None:
        """Discard counts from between tests."""
        self._counts.clear()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        """Write what a test's kernels did, also if it fails."""
        try:
            return (yield)
        finally:
            named: dict[str, list[Profile]] = {}
            for counts, metadata in self._counts.values():
                if counts.launches:
                    named.setdefault(counts.kernel.name, []).append(profile(self.card, counts, metadata))
            for name, found in named.items():
                row = dataclasses.replace(_joined(found), configuration=self.tuning.chosen.get(name, ""))
                self.journal.write("profile", id=item.nodeid, row=dataclasses.asdict(row))
            self._counts.clear()  # a test of an autotuned kernel may run again, with another configuration


def profile(card: Architecture, counts: Counts, metadata: Any) -> Profile:
    """Return the profile of one binary; `metadata` is Triton's."""
    lines = counts.by_line()
    total = sum(lines.values(), Counter[str]())
    total["read_bytes"], total["written_bytes"] = counts.read_bytes, counts.written_bytes
    kernel, shared = counts.kernel, max(metadata.shared, counts.kernel.lds)
    fits = occupancy(card.multiprocessor, metadata.num_warps, kernel.registers, shared) if card.multiprocessor else None
    told = [ProfiledLine(file, line, statement(file, line) if file else "", dict(found)) for (file, line), found in lines.items()]
    return Profile(
        case="",
        kernel="",
        function=kernel.name,
        architecture=card.name,
        card=card.card,
        launches=counts.launches,
        programs=counts.groups,
        waves=counts.waves,
        counters=dict(total),
        matrix=dict(counts.matrix()),
        bounds=bounds(counts, total, card.properties, card.multiprocessor.schedulers if card.multiprocessor else 4),
        lines=_costly(told),
        registers=kernel.registers,
        shared_bytes=shared,
        occupancy=fits.share if fits else None,
        limited_by=fits.limited_by if fits else (),
    )


def _costly(lines: list[ProfiledLine]) -> tuple[ProfiledLine, ...]:
    return tuple(sorted(lines, key=lambda one: (-one.waste, -one.counters.get("instructions", 0), one.file, one.line))[:MOST_LINES])


def _joined(parts: list[Profile]) -> Profile:
    """Return one profile of several binaries of a kernel, which ran one after the other; registers and occupancy are the worst ones."""
    if len(parts) == 1:
        return parts[0]
    lines: dict[tuple[str, int], ProfiledLine] = {}
    for one in (line for part in parts for line in part.lines):
        known = lines.get((one.file, one.line))
        lines[one.file, one.line] = dataclasses.replace(one, counters=_sum([known.counters, one.counters])) if known else one
    worst = min(parts, key=lambda part: part.occupancy or 0)
    return dataclasses.replace(
        worst,
        launches=sum(part.launches for part in parts),
        programs=sum(part.programs for part in parts),
        waves=sum(part.waves for part in parts),
        counters=_sum([part.counters for part in parts]),
        matrix=_sum([part.matrix for part in parts]),
        bounds={name: sum(part.bounds.get(name, 0.0) for part in parts) for name in {name for part in parts for name in part.bounds}},
        lines=_costly([*lines.values()]),
    )


def _sum(parts: list[dict[str, int]]) -> dict[str, int]:
    return dict(sum(map(Counter, parts), Counter[str]()))
