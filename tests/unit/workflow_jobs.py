"""The jobs of gpu.yml, run here one after the other; who uses it says what stands for warpwave on each machine."""

import json

import command
import yaml
from recorded import recorded
from runner import ROOT

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
