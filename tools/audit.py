"""`nox -s audit`: known vulnerabilities in what this package needs and in what goes into the images, by pip-audit. Exit code 1 where there
are some; 77, which the session shows as skipped, where no advisories could be reached."""

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

UNREACHABLE = 77
LOCKS = Path(__file__).parents[1] / "docker" / "locks"
OPTIONS = ("--format", "json", "--progress-spinner", "off", "--timeout", "30")

Ask = Callable[[Sequence[str]], "list[dict[str, object]] | None"]


def ask(arguments: Sequence[str]) -> list[dict[str, object]] | None:
    """What pip-audit says of each package; None where it says nothing."""
    done = subprocess.run([sys.executable, "-m", "pip_audit", *OPTIONS, *arguments], capture_output=True, text=True)
    try:
        return list(json.loads(done.stdout)["dependencies"])
    except (ValueError, KeyError):
        print((done.stderr.strip().splitlines() or ["pip-audit said nothing"])[-1][:300])
        return None


def judge(found: list[dict[str, object]] | None) -> tuple[int, list[str]]:
    """Exit code, and a line for each vulnerability or for what could not be asked."""
    asked = [entry for entry in found or () if "skip_reason" not in entry]
    lines = [
        f"{entry['name']} {entry['version']}: {flaw['id']}, mended in {', '.join(flaw['fix_versions']) or 'no version yet'}"
        for entry in asked
        for flaw in entry.get("vulns", ())  # type: ignore[attr-defined]
    ]
    if lines:
        return 1, lines
    if not asked:
        return UNREACHABLE, ["no advisories could be reached; nothing was audited"]
    left = len(found or ()) - len(asked)
    return 0, [f"{len(asked)} packages without a known vulnerability" + (f", {left} of which nothing is known" if left else "")]


def main(ask: Ask = ask) -> int:
    """Audit the locks, then the environment that this runs in."""
    codes = []
    # Targets share most of their locks; the same text is asked about once.
    locks = {path.read_text(): path for path in sorted(LOCKS.glob("*.txt"))}
    subjects = {path.name: ("--disable-pip", "--require-hashes", "--requirement", str(path)) for path in locks.values()}
    for name, arguments in {**subjects, "this environment": ("--local", "--skip-editable")}.items():
        code, lines = judge(ask(arguments))
        codes.append(code)
        for line in lines:
            print(f"{name}: {line}")
    return 1 if 1 in codes else max(codes)


if __name__ == "__main__":
    sys.exit(main())
