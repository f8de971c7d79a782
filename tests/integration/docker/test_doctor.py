"""`warpwave doctor` on an engine that is up."""

from __future__ import annotations

import json
import subprocess
import sys


def test_an_engine_that_is_up_passes(engine, tmp_path):
    """It is asked for its version, its limits and what killed runs have left; nothing is changed. Of the machine, nothing is said."""
    command = [sys.executable, "-m", "warpwave", "doctor", "--engine", "docker", "--json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    findings = {finding["check"]: finding for finding in json.loads(done.stdout)["findings"]}

    assert findings["docker"]["state"] == "pass", findings
    assert {"limits", "live-restore", "image room", "leftovers"} <= set(findings)
