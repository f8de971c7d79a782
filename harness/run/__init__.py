"""Running a target, from what the user asked for to the record of how it ended. `target` is where to begin to read."""

from harness.run.target import check_target, commit_of, exit_code_of, new_run_id, run_target

__all__ = ["check_target", "commit_of", "exit_code_of", "new_run_id", "run_target"]
