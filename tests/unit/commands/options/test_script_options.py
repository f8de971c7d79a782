"""`--bench-script 'benchmarks/*.py -- --dtype bf16'`: how it is read, and what of it a job and a shard get."""

from __future__ import annotations

import json

import pytest
from pydantic import TypeAdapter

from warpwave.config.pyproject import chosen_scripts
from warpwave.errors import ConfigError, UsageError
from warpwave.options import RunOptions
from warpwave.records import BenchScript, Job, Shard, Stage, dump, to_json
from warpwave.records.selection import find_scripts
from warpwave.run.shards import share_scripts


@pytest.fixture
def package(tmp_path):
    """A package with scripts at its root, in a folder, and beside its kernels."""
    for name in ("speed.py", "benchmarks/b.py", "benchmarks/a.py", "benchmarks/deep/c.py", "my_ops/d.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path


@pytest.mark.parametrize(
    ("text", "script"),
    [
        ("speed.py", BenchScript("speed.py")),
        ("benchmarks/*.py -- --dtype bf16", BenchScript("benchmarks/*.py", ("--dtype", "bf16"))),
        ("speed.py -- 'two words' -- x", BenchScript("speed.py", ("two words", "--", "x"))),
        ("speed.py --", BenchScript("speed.py")),
        ("d.py", BenchScript("d.py")),
    ],
)
def test_a_glob_and_its_arguments(package, text, script):
    """Split as a shell splits it; the first -- ends the glob. Where the root has none, the kernels folder may."""
    assert chosen_scripts([text], package / "my_ops", package) == (script,)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is not a glob with arguments"),
        ("-- --dtype bf16", "is not a glob with arguments"),
        ("speed.py --dtype bf16", "is not a glob with arguments"),
        ("'speed.py", "cannot be read: No closing quotation"),
        ("/etc/*.py", "leaves the package"),
        ("../*.py", "leaves the package"),
        ("benchmark/*.py", "matches no file in"),
    ],
)
def test_what_cannot_be_run_is_refused(package, text, words):
    """Before anything runs, and with what to write."""
    with pytest.raises(UsageError) as raised:
        chosen_scripts([text], package / "my_ops", package)
    assert words in raised.value.happened
    assert raised.value.remedy.endswith(".")


def test_a_package_names_its_own_scripts(package):
    """The command line comes first."""
    (package / "pyproject.toml").write_text("[tool.warpwave]\nbench-scripts = ['benchmarks/*.py -- --quick']\n")
    assert chosen_scripts([], package, package) == (BenchScript("benchmarks/*.py", ("--quick",)),)
    assert chosen_scripts(["speed.py"], package, package) == (BenchScript("speed.py"),)
    (package / "pyproject.toml").write_text("[tool.warpwave]\nbench-scripts = 'benchmarks/*.py'\n")
    with pytest.raises(ConfigError, match=r"bench-scripts: found 'benchmarks/.*allowed is a list of globs"):
        chosen_scripts([], package, package)


def test_scripts_travel_in_the_job(tmp_path):
    """And a job from before there were any has none."""
    job = Job("run-1", "cpu", (Stage.BENCH,), "/kernels", "/out", bench_scripts=(BenchScript("*.py", ("-x",)), BenchScript("a.py")))
    dump(job, tmp_path / "job.json")
    old = {key: value for key, value in json.loads(to_json(job)).items() if key != "bench_scripts"}
    (tmp_path / "old.json").write_text(json.dumps(old))

    assert Job.load(tmp_path / "job.json") == job == TypeAdapter(Job).validate_json(to_json(job), strict=True)
    assert Job.load(tmp_path / "old.json").bench_scripts == ()


def test_each_script_is_in_one_shard(package):
    """With its arguments; the shards need not talk to each other."""
    asked = (BenchScript("benchmarks/**/*.py", ("-x",)), BenchScript("speed.py"))
    options = [RunOptions("run-1", package, package, bench_scripts=asked, shard=Shard(number, 3)) for number in (1, 2, 3)]
    shares = [share_scripts(each) for each in options]
    files = [[path for script in share for path, _ in find_scripts(script.pattern, package)] for share in shares]

    assert [len(found) for found in files] == [2, 1, 1]
    assert sorted(path.name for found in files for path in found) == ["a.py", "b.py", "c.py", "speed.py"]
    assert {script.arguments for share in shares for script in share if "speed" not in script.pattern} == {("-x",)}
