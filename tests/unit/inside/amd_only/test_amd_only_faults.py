"""Public faults of Triton on AMD that warpwave finds without a card, with the releases that have them: docs/amd-only-faults.md.

`WARPWAVE_TRITONS` names a folder with releases, one folder each: `pip install --no-deps --target $WARPWAVE_TRITONS/3.8.0 triton==3.8.0`.
A release that is not there is skipped.
"""

import os
from pathlib import Path

import command
import pytest

pytestmark = pytest.mark.slow  # of the installed release they only say that it has none of these faults
triton = pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")

SCRIPT = Path(__file__).parents[3] / "amd_only" / "pingpong.py"
FOUND = "48 LDS reads of pingpong.py:27 in flight at the barrier of pingpong.py:27"


def reproduced(version, cache, architecture="gfx942", **variables):
    """What the script prints with a release of Triton: the version, and the findings."""
    folder = Path(os.environ.get("WARPWAVE_TRITONS", "")) / version
    if triton.__version__ != version and not ("WARPWAVE_TRITONS" in os.environ and folder.is_dir()):
        pytest.skip(f"Triton {version} is not in $WARPWAVE_TRITONS")
    path = {} if triton.__version__ == version else {"PYTHONPATH": str(folder)}
    environment = {**os.environ, "TRITON_CACHE_DIR": str(cache), **path, **variables}
    done = command.python(SCRIPT, architecture, env=environment, kind="stages" if path else "compiler")
    told, *found = done.stdout.splitlines()
    assert (told, done.returncode) == (version, 1 if found else 0), done.stderr
    return found


@pytest.mark.parametrize("version", ["3.6.0", "3.7.1", "3.8.0"])
def test_the_pingpong_race_is_found_in_the_releases_that_have_it(version, tmp_path):
    """triton-lang/triton#11696: wrong in 200 of 200 runs on an MI300X, by its reporter."""
    assert reproduced(version, tmp_path) == [FOUND]


def test_the_release_that_fixed_it_is_not_blamed(tmp_path):
    """3.9.0 waits before the barrier; half of the waves still are a barrier ahead."""
    assert reproduced("3.9.0", tmp_path) == []


@pytest.mark.parametrize("version", ["3.6.0", "3.7.1", "3.8.0"])
@pytest.mark.parametrize(
    ("architecture", "variables"), [("gfx942", {"TRITON_HIP_USE_BLOCK_PINGPONG": "0"}), ("gfx950", {})], ids=["without", "gfx950"]
)
def test_without_that_schedule_there_is_no_race(version, architecture, variables, tmp_path):
    assert reproduced(version, tmp_path, architecture, **variables) == []
