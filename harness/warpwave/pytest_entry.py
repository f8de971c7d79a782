"""`pytest --warpwave gfx942`: the entry point of pytest. Without the option it does nothing, and imports nothing of warpwave. It finds out
what the name means; `warpwave.inside.test.pretend` does the rest, and the test stage of a run uses the same."""

import os
from pathlib import Path

import pytest

_HERE = "warpwave.inside.test.pretend"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("warpwave", "Triton kernels without a GPU")
    group.addoption(
        "--warpwave", metavar="NAME", help="Run tests of Triton kernels without a GPU: `cpu`, or a card by name (gfx942, mi300x, h100)."
    )
    group.addoption("--warpwave-targets", metavar="FILE", type=Path, help="A targets file, whose entries count before the shipped ones.")
    group.addoption("--warpwave-no-sanitize", action="store_true", help="Do not check what kernels do to memory.")
    group.addoption(
        "--warpwave-config",
        action="append",
        default=[],
        metavar="KERNEL: NAME=VALUE …",
        help="Run this configuration of an autotuned kernel, and no other: 'matmul: BLOCK=128 num_warps=4'; repeatable.",
    )
    group.addoption("--warpwave-autotune", choices=["one", "all"], default="one", help="Run tests with one configuration, or with each.")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Pretend the card, if one is named: the first conftest.py may ask for it."""
    asked = early_config.known_args_namespace
    if not asked.warpwave:
        return
    from warpwave.config.targets import without_card
    from warpwave.errors import WarpwaveError
    from warpwave.records.selection import parse_configuration

    try:
        card, emulated = without_card(asked.warpwave, asked.warpwave_targets)
        configs = dict(map(parse_configuration, asked.warpwave_config))
    except (WarpwaveError, ValueError) as error:
        raise pytest.UsageError(str(error)) from None
    if not emulated:
        os.environ["TRITON_INTERPRET"] = "1"  # Triton reads it when it is imported, for the functions of its language
    manager = early_config.pluginmanager
    manager.import_plugin(_HERE)
    manager.get_plugin(_HERE).begin(  # type: ignore[union-attr]
        early_config,
        card,
        emulated=emulated,
        sanitize=not asked.warpwave_no_sanitize,
        every=asked.warpwave_autotune == "all",
        asked=configs,
    )
