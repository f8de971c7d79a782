"""Pack a recorded run: the same files give the same archive, whoever packs them and when.

python tools/pack.py reports/runs/h100 reports/h100/recorded.tar.xz raw comparison.json   # what the tests read
python tools/pack.py reports/runs/h100 warpwave-h100.tar.xz                               # all of it, for a release

Journals, logs and what pytest and Hypothesis keep are left out: no report reads them. `tar -xf` unpacks it.
"""

import re
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path

_NOT_READ = re.compile(
    r"(.*/)?(\.hypothesis|\.pytest_cache|__pycache__|lease|log[^/]*\.txt|(journal|ledger|called|traced)[^/]*\.jsonl)(/.*)?"
)


def pack(folder: Path, archive: Path, names: Sequence[str] = ()) -> list[str]:
    """Write the files of a folder, or of those `names` in it, to an archive. Return their names in it."""
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    chosen = [
        name
        for name, path in sorted(files.items())
        if not _NOT_READ.fullmatch(name)
        and path.resolve() != archive.resolve()
        and (not names or any(f"{name}/".startswith(f"{part}/") for part in names))
    ]
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive, "w:xz", format=tarfile.PAX_FORMAT, preset=9) as packed:
        for name in chosen:
            entry = tarfile.TarInfo(name)  # neither an owner nor a time: they differ from machine to machine
            entry.size = files[name].stat().st_size
            with files[name].open("rb") as content:
                packed.addfile(entry, content)
    return chosen


if __name__ == "__main__":
    if len(sys.argv) < 3 or not Path(sys.argv[1]).is_dir():
        sys.exit(__doc__)
    written = pack(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
    print(f"{sys.argv[2]}: {len(written)} files, {Path(sys.argv[2]).stat().st_size:,} bytes")
