"""A Python with all that this one has, but for torch, which takes seconds to import: for runs of packages that do not use it."""

import atexit
import functools
import os
import shutil
import sys
import sysconfig
import tempfile
from pathlib import Path

DATA = Path(__file__).parents[1] / "data" / "light"
_SHARED = "WARPWAVE_TEST_LIGHT_PYTHON"


def share_light_python() -> None:
    """Let all of pytest's workers use one: what their processes are forked from knows it by its path."""
    os.environ[_SHARED] = light_python()


@functools.cache
def light_python() -> str:
    """Its path. What stands for torch there, and for a card, is in tests/data/light."""
    if shared := os.environ.get(_SHARED):
        return shared
    folder = Path(tempfile.mkdtemp(prefix="warpwave-light-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
    (folder / "bin").mkdir()
    packages.mkdir(parents=True)
    (folder / "bin" / "python").symlink_to(os.path.realpath(sys.executable))
    (folder / "pyvenv.cfg").write_text(f"home = {sys.base_prefix}/bin\n")
    (packages / "torch").symlink_to(DATA / "torch")  # comes before what is installed
    (packages / "light_gpu.py").symlink_to(DATA / "light_gpu.py")
    installed = sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})
    (packages / "installed.pth").write_text(
        "import light_gpu\n" + "".join(f"import site; site.addsitedir({path!r})\n" for path in installed)
    )
    return str(folder / "bin" / "python")
