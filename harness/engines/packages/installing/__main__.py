"""Make a virtual environment on top of this Python, and install a plan's packages there. Runs on the host or while an image is built.

`python -m installing PLAN VENV`, with nothing but the standard library and a pip. torch, Triton and pytest stay what they are: pip works
out what is needed, and then installs exactly that without them. The result is in `VENV/warpwave.json`. If it fails, the last line of the
output begins with `warpwave: `.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from .calls import FailedError, say, source_options, variables_for
from .steps import install

_OLDEST_PIP = (22, 2)  # `--report`


def main(plan: Path, venv: Path) -> int:
    """Make the environment, then continue in its Python."""
    if Path(sys.prefix).resolve() != venv.resolve():
        _make(plan, venv)
        python = str(venv / "bin" / "python")
        return subprocess.run([python, "-m", __package__, str(plan), str(venv)], check=False).returncode
    try:
        result = install(plan)
    except FailedError as error:
        say(f"warpwave: {error}\n")
        return 1
    (venv / "warpwave.json").write_text(json.dumps(result, indent=1))
    return 0


def _make(plan: Path, venv: Path) -> None:
    """Make an environment that sees this Python's packages. It may itself be a venv, which `--system-site-packages` would not show."""
    import site

    below = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    below += [path for path in site.getsitepackages() if path not in below and Path(path).is_dir()]
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    python = venv / "bin" / "python"
    own = subprocess.run(
        [str(python), "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])"], capture_output=True, text=True, check=True
    )
    Path(own.stdout.strip(), "base.pth").write_text(f"import site; list(map(site.addsitedir, {below!r}))\n")
    if _pip_version(python) < _OLDEST_PIP:
        subprocess.run([str(python), "-m", "ensurepip", "--upgrade"], check=False)
        if _pip_version(python) < _OLDEST_PIP:
            command = [str(python), "-m", "pip", "install", *source_options(plan), "--upgrade", "pip"]
            subprocess.run(command, check=False, env=variables_for(plan))


def _pip_version(python: Path) -> tuple[int, ...]:
    done = subprocess.run([str(python), "-c", "import pip; print(pip.__version__)"], capture_output=True, text=True, check=False)
    return tuple(int(part) for part in re.findall(r"\d+", done.stdout)[:2])


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
