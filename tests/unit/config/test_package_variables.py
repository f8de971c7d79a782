"""Which variables a file of a package may set."""

from __future__ import annotations

import pytest

from harness.config.hosts import load_hosts
from harness.config.package.pyproject import load_environment
from harness.config.targets import load_targets
from harness.errors import ConfigError

REFUSED = (
    "LD_PRELOAD",
    "BASH_ENV",
    "PYTHONPATH",
    "PATH",
    "HOME",
    "ENV",
    "GIT_SSH",
    "TRITON_PTXAS_PATH",
    "TRITON_CACHE_MANAGER",
    "PIP_INDEX_URL",
)


@pytest.mark.parametrize("name", REFUSED)
def test_a_package_sets_nothing_that_loads_code(tmp_path, name):
    """Neither its pyproject.toml nor its hosts.yml may; a file of the user's may."""
    (tmp_path / "pyproject.toml").write_text(f'[tool.warpwave]\nenv = {{{name} = "x"}}\n')
    (tmp_path / "hosts.yml").write_text(f'cuda: {{environment: {{{name}: "x"}}}}\n')

    with pytest.raises(ConfigError, match=name):
        load_environment(tmp_path)
    with pytest.raises(ConfigError, match=name):
        load_hosts(tmp_path / "hosts.yml", load_targets(), trusted=False)
    assert load_hosts(tmp_path / "hosts.yml", load_targets())["cuda"].environment == {name: "x"}


@pytest.mark.parametrize("name", ["FLAG_GEMS_X", "MYPKG_TRITON_ONLY", "TRITON_F32_DEFAULT", "TORCHINDUCTOR_MAX_AUTOTUNE"])
def test_a_package_sets_its_own(tmp_path, name):
    """Names of the package, and settings that load nothing."""
    (tmp_path / "pyproject.toml").write_text(f'[tool.warpwave]\nenv = {{{name} = "1"}}\n')

    assert load_environment(tmp_path).env == {name: "1"}


@pytest.mark.parametrize("build", ["base_image: a/b", "network: host", "args: {A: b}"])
def test_a_package_does_not_say_how_images_are_built(tmp_path, build):
    """The host builds them, with a network."""
    (tmp_path / "hosts.yml").write_text(f"cuda: {{build: {{{build}}}}}\n")

    with pytest.raises(ConfigError, match="build"):
        load_hosts(tmp_path / "hosts.yml", load_targets(), trusted=False)
