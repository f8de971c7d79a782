"""The run that was recorded on an H100: its archive, unpacked once for all processes of the tests."""

import functools
import hashlib
import shutil
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
ARCHIVE = ROOT / "reports" / "h100" / "recorded.tar.xz"


@functools.cache
def recorded() -> Path:
    """A folder in build/, which git ignores, with `raw/` and `comparison.json`. Nobody may write to it."""
    folder = ROOT / "build" / f"recorded-{hashlib.sha256(ARCHIVE.read_bytes()).hexdigest()[:16]}"
    if not folder.is_dir():
        folder.parent.mkdir(exist_ok=True)
        made = Path(tempfile.mkdtemp(dir=folder.parent))
        with tarfile.open(ARCHIVE) as packed:
            packed.extractall(made, filter="data")
        try:
            made.rename(folder)
        except OSError:  # another process was first
            shutil.rmtree(made)
    return folder
