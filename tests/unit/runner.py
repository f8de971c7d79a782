"""A runner of GitHub Actions, as far as the workflows of this repository need one: steps in order, each in its own shell.

Expressions are looked up in a table by their exact text, and one that is not in it is an error: a workflow cannot use what no test knows.
"""

import atexit
import fnmatch
import functools
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

import command
import yaml
from recorded import recorded

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


# The jobs of gpu.yml, run here one after the other; who uses it says what stands for warpwave on each machine.


WORKFLOWS = {path.name: yaml.safe_load(path.read_text()) for path in (ROOT / ".github" / "workflows").glob("*.yml")}
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
RECORDED = recorded() / "raw"
REAL = command.shell_words(kind="command")
# `python3 -m venv` and `pip install` of a leg: a folder with our command in it.
PYTHON = """
[ "$1 $2" = "-m venv" ] || exit 0
mkdir -p "$3/bin"; cp "$PROGRAMS/warpwave" "$3/bin/warpwave"; printf '#!/bin/bash\\n' >"$3/bin/python"; chmod +x "$3/bin/python"
"""
NO_BASE = 'case "$1 $2" in "run list") ;; *) exit 1;; esac'
# What is checked out for the plan: the expression, whose value is test_workflows.py's.
HEAD_OR_BASE = WORKFLOWS["gpu.yml"]["jobs"]["plan"]["steps"][0]["with"]["ref"].removeprefix("${{").removesuffix("}}").strip()
RUNNERS = {"cuda": ["self-hosted", "h200"], "rocm": ["self-hosted", "mi300x"], "cpu": "ubuntu-24.04"}


# The job without a card: it leaves a kernel and a report of the compile stage, and says in a file what it was asked.
COMPILES = f"""
case "$1 $2 $3" in
"ci leg cpu") echo "$COMPILE_FOR" >asked; while [ "$1" != --out ]; do shift; done; mkdir -p "$2/raw"; cp -r {{left}} "$2/raw/cpu";;
*) exec {REAL} "$@";;
esac"""


def brings(results):
    """What stands for warpwave on a machine whose card left these results."""
    return f"""
case "$1 $2 $3" in
"ci leg cuda") while [ "$1" != --out ]; do shift; done; mkdir -p "$2/raw"; cp -r {results} "$2/raw/cuda";;
*) exec {REAL} "$@";;
esac"""


def compile_first(runner, planned, left):
    """Run the job that compiles for the cards; return what the jobs with cards need of it. Without `left` it never came."""
    if not planned["steps.plan.outputs.compile"] or left is None:
        return {"needs.compile.outputs.hash": "", "needs.compile.outputs.hash != ''": False}
    artifact = planned["steps.plan.outputs.artifact"]
    values = {f"needs.plan.outputs.{name}": planned[f"steps.plan.outputs.{name}"] for name in ("compile", "artifact")}
    values |= {"inputs.kernels": "kernels", "inputs.options": "--quick", "inputs.known": ""}
    ran = runner("compile", values, warpwave=COMPILES.format(left=left)).run(WORKFLOWS["gpu.yml"]["jobs"]["compile"]["steps"])
    assert ran["status"] == "success", ran["log"]
    digest = ran["outputs"]["steps.compiled.outputs.hash"]
    known = {"needs.compile.outputs.hash": digest, "needs.compile.outputs.hash != ''": digest != ""}
    return known | {"needs.compile.outputs.artifact": f"{artifact}-1"}


def gpu(runner, legs, gh=NO_BASE, more=None, compiled=None):
    """gpu.yml from plan to report. `legs`: what stands for warpwave on each target's machine; None where the job never came.

    `compiled` is what the job without a card leaves; without it that job is skipped, and nobody expects it.
    """
    jobs = WORKFLOWS["gpu.yml"]["jobs"]
    runners = json.dumps({name: RUNNERS[name] for name in legs})
    asked = {"inputs.shards": 1, "inputs.runners": runners, "inputs.kernels": "kernels"}
    planned = runner("plan", asked).run(jobs["plan"]["steps"])
    assert planned["status"] == "success", planned["log"]
    ran = {"plan": planned}
    handed = compile_first(runner, planned["outputs"], compiled)
    for leg in json.loads(planned["outputs"]["steps.plan.outputs.matrix"])["include"]:
        if legs[leg["target"]] is not None:
            inputs = {"inputs.kernels": "kernels", "inputs.engine": "", "inputs.options": "--quick", "inputs.known": ""}
            values = {"matrix.target": leg["target"], "matrix.name": leg["name"], "matrix.shard": leg["shard"], **inputs, **handed}
            machine = runner(leg["name"], values, warpwave=legs[leg["target"]])
            ran[leg["target"]] = machine.run(jobs["leg"]["steps"], jobs["leg"]["env"])
    values = {
        "github.workflow": "CI",
        "inputs.fail-on": WORKFLOWS["gpu.yml"][True]["workflow_call"]["inputs"]["fail-on"]["default"],
        "inputs.threshold": "",
        "inputs.known": "",
        "inputs.kernels": "kernels",
        **(more or {}),
        "needs.plan.outputs.expect": planned["outputs"]["steps.plan.outputs.expect"].removesuffix("" if compiled else ",cpu"),
        "github.base_ref || github.event.repository.default_branch": "main",
    }
    ran["report"] = runner("report", values, gh=gh).run(jobs["report"]["steps"])
    return ran


def comparison(ran, tmp_path):
    return json.loads((tmp_path / "artifacts" / "report-1" / "comparison.json").read_text())
