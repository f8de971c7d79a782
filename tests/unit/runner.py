"""A runner of GitHub Actions, as far as the workflows of this repository need one: steps in order, each in its own shell.

Expressions are looked up in a table by their exact text, and one that is not in it is an error: a workflow cannot use what no test knows.
"""

import atexit
import fnmatch
import functools
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

import command

ROOT = Path(__file__).parents[2]
COPIED = [ROOT / name for name in ("harness", "docker", ".ci", ".github", "noxfile.py", "pyproject.toml", "action.yml")]


@functools.cache
def checked_out(source: Path) -> Path:
    """A copy for all machines of these tests: no job writes to what it has checked out."""
    folder = Path(tempfile.mkdtemp(prefix="warpwave-checkout-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    copy = functools.partial(shutil.copytree, ignore=shutil.ignore_patterns("__pycache__")) if source.is_dir() else shutil.copy
    return Path(copy(source, folder / source.name))


@dataclass
class Runner:
    """One machine below `folder`. `artifacts` is shared between the jobs of a run; `programs` come first in the PATH."""

    folder: Path
    artifacts: Path
    values: dict[str, object]
    programs: dict[str, str] = field(default_factory=dict)
    sources: Collection[Path] = field(default_factory=lambda: COPIED)  # what is checked out

    def run(self, steps: list[dict], variables: dict[str, object] | None = None) -> dict:
        """The job's status, its outputs by step, its summary and its log."""
        workspace, temporary, programs = self.folder / "work", self.folder / "_temp", self.folder / "bin"
        for path in (workspace, temporary, programs):
            path.mkdir(parents=True)
        for name, text in {"warpwave": f'exec {command.shell_words(kind="command")} "$@"', **self.programs}.items():
            (programs / name).write_text(f"#!/bin/bash\n{text}\n")
            (programs / name).chmod(0o755)
        base = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "RUNNER_TEMP": str(temporary)}
        base |= {"DOCKER_HOST": f"unix://{self.folder}/no.sock", "GITHUB_ACTIONS": "true", "GITHUB_WORKFLOW": "CI", "COLUMNS": "200"}
        base |= {"GITHUB_REPOSITORY": "owner/kernels", "GITHUB_ACTION_PATH": str(ROOT), "PROGRAMS": str(programs)}
        base |= self._text(variables or {})
        done = {"status": "success", "outputs": {}, "summary": "", "log": "", "statuses": {}, "outcomes": {}}
        for number, step in enumerate(steps):
            if not self._wanted(step.get("if", "success()"), done):
                continue
            code = self._step(step, number, base, done)
            done["outcomes"][step.get("id")] = "failure" if code else "success"
            done["statuses"][step.get("name") or step.get("uses", step.get("run", "")).split("@")[0]] = code
            if code and not step.get("continue-on-error"):
                done["status"] = "failure"
        return done

    def expand(self, value: object) -> str:
        """A string with its expressions replaced by what the table has for them."""
        return re.sub(r"\$\{\{ *(.*?) *\}\}", lambda found: str(self.values[found[1]]), str(value))

    def _text(self, variables: dict[str, object]) -> dict[str, str]:
        return {name: self.expand(value) for name, value in variables.items()}

    def _wanted(self, condition: str, done: dict) -> bool:
        words = condition.removeprefix("${{").removesuffix("}}").strip()
        if outcome := re.fullmatch(r"(.*) && steps\.(\w+)\.outcome == 'success'", words):
            return self._wanted(outcome[1], done) and done["outcomes"].get(outcome[2]) == "success"
        known = {"success()": done["status"] == "success", "always()": True, "!cancelled()": True}
        return known[words] if words in known else done["status"] == "success" and bool(self.values[words])

    def _step(self, step: dict, number: int, base: dict[str, str], done: dict) -> int:
        if "uses" in step:
            action = step["uses"].split("@")[0].removeprefix("actions/").replace("-", "_").replace("/", "_")
            return getattr(self, f"_{action}")(self._text(step.get("with", {})))
        files = {name: self.folder / f"{name}-{number}" for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
        for path in files.values():
            path.touch()
        environment = {**base, **self._text(step.get("env", {})), **{name: str(path) for name, path in files.items()}}
        # `-e` and pipefail are what a step without `shell`, and one with `shell: bash`, gets.
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
        ran = subprocess.run(command, cwd=self.folder / "work", env=environment, capture_output=True, text=True, timeout=300)
        done["log"] += f"$ {step['run']}\n{ran.stdout}{ran.stderr}"
        done["summary"] += files["GITHUB_STEP_SUMMARY"].read_text()
        pairs = re.findall(r"^(\w+)<<(\w+)\n(.*?)\n\2$", files["GITHUB_OUTPUT"].read_text(), re.MULTILINE | re.DOTALL)
        done["outputs"] |= {f"steps.{step.get('id')}.outputs.{name}": value for name, _, value in pairs}
        return ran.returncode

    def _checkout(self, inputs: dict[str, str]) -> int:
        known = {name: value for name, value in inputs.items() if name not in ("ref", "fetch-depth")}
        assert known == {"persist-credentials": "False"}
        for source in self.sources:
            (self.folder / "work" / source.name).symlink_to(checked_out(source))
        return 0

    def _setup_python(self, inputs: dict[str, str]) -> int:
        return 0

    def _cache_restore(self, inputs: dict[str, str]) -> int:
        assert inputs["key"].startswith(inputs["restore-keys"])  # an older one is found where there is none of this key
        return 0

    def _cache_save(self, inputs: dict[str, str]) -> int:
        return 0

    def _upload_artifact(self, inputs: dict[str, str]) -> int:
        source = self.folder / "work" / inputs["path"]  # an absolute path stays one
        if not source.exists():
            return int(inputs["if-no-files-found"] == "error")
        # A name that is taken is an error, as on GitHub; and links are followed there, too.
        shutil.copytree(source, self.artifacts / inputs["name"])
        return 0

    def _download_artifact(self, inputs: dict[str, str]) -> int:
        if "name" in inputs:  # a single one, without a folder of its name
            shutil.copytree(self.artifacts / inputs["name"], self.folder / "work" / inputs["path"], dirs_exist_ok=True)
            return 0
        for path in sorted(self.artifacts.iterdir()):
            if fnmatch.fnmatch(path.name, inputs["pattern"]):
                shutil.copytree(path, self.folder / "work" / inputs["path"] / path.name)
        return 0
