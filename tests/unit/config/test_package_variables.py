"""Which variables a file of a package may set."""

from __future__ import annotations

from pathlib import Path

import pytest

from warpwave.config.hosts import load_hosts
from warpwave.config.pyproject import load_environment
from warpwave.config.targets import load_targets
from warpwave.errors import ConfigError

REFUSED = (
    "LD_PRELOAD",
    "BASH_ENV",
    "PYTHONPATH",
    "PYTHONSTARTUP",
    "PATH",
    "HOME",
    "ENV",
    "GIT_SSH",
    "OPENSSL_CONF",
    "SSL_CERT_FILE",
    "TRITON_PTXAS_PATH",
    "TRITON_CACHE_MANAGER",
    "TRITON_ENABLE_ASAN",
    "TRITON_USE_ANYTHING",
    "PYTORCH_ENABLE_ANYTHING",
    "TORCH_LOGS",
    "PIP_INDEX_URL",
    "LD_X_TRITON_ONLY",
    "OTHERPKG_X",
    "MYPKG",
    "MYPKGS_X",
    "triton_debug",
)


def package(folder: Path, name: str, project: str = "mypkg") -> Path:
    """A package whose files set a variable."""
    (folder / "pyproject.toml").write_text(f'[project]\nname = "{project}"\n[tool.warpwave]\nenv = {{{name} = "x"}}\n')
    (folder / "hosts.yml").write_text(f'cuda: {{environment: {{{name}: "x"}}}}\n')
    return folder


def refuses(folder: Path, name: str) -> None:
    """Neither file may set it, and a file of the user's may."""
    with pytest.raises(ConfigError, match=rf"{name}.* --env NAME=VALUE"):
        load_environment(folder)
    with pytest.raises(ConfigError, match=rf"{name}.* --env NAME=VALUE"):
        load_hosts(folder / "hosts.yml", load_targets(), trusted=False)
    assert load_hosts(folder / "hosts.yml", load_targets())["cuda"].environment == {name: "x"}


@pytest.mark.parametrize("name", REFUSED)
def test_a_package_sets_nothing_that_loads_code(tmp_path, name):
    """Neither its pyproject.toml nor its hosts.yml may; a file of the user's may."""
    refuses(package(tmp_path, name), name)


@pytest.mark.parametrize(
    ("project", "name"),
    [("ld", "LD_PRELOAD"), ("Bash", "BASH_ENV"), ("git", "GIT_SSH"), ("triton-cache", "TRITON_CACHE_MANAGER"), ("openssl", "OPENSSL_CONF")],
)
def test_no_package_gets_a_name_by_calling_itself_so(tmp_path, project, name):
    """What never begins a variable wins over the package's own name, and over that of a module."""
    refuses(package(tmp_path, name, project), name)
    (tmp_path / f"{project}.py").touch()
    refuses(package(tmp_path, name), name)


@pytest.mark.parametrize(
    "name",
    ["FLAG_GEMS_X", "MY_OPS_BACKEND", "PLAIN_FAST", "ANY_TRITON_ONLY", "TRITON_F32_DEFAULT", "TORCHINDUCTOR_MAX_AUTOTUNE"],
)
def test_a_package_sets_its_own(tmp_path, name):
    """Names that begin with the project's or with a module's, settings that load nothing, and `X_TRITON_ONLY`."""
    (tmp_path / "src" / "my_ops").mkdir(parents=True)
    (tmp_path / "src" / "my_ops" / "relu.py").touch()
    (tmp_path / "plain.py").touch()
    package(tmp_path, name, "Flag.Gems")

    assert load_environment(tmp_path).env == {name: "x"}
    assert load_hosts(tmp_path / "hosts.yml", load_targets(), trusted=False)["cuda"].environment == {name: "x"}


@pytest.mark.parametrize("build", ["base_image: a/b", "network: host", "args: {A: b}"])
def test_a_package_does_not_say_how_images_are_built(tmp_path, build):
    """The host builds them, with a network."""
    (tmp_path / "hosts.yml").write_text(f"cuda: {{build: {{{build}}}}}\n")

    with pytest.raises(ConfigError, match="build"):
        load_hosts(tmp_path / "hosts.yml", load_targets(), trusted=False)
