"""Run a target, from the user's options to the record of how the run ended. Start reading at `target`."""

from warpwave.run.target import check_target, commit_of, exit_code_of, run_target

__all__ = ["check_target", "commit_of", "exit_code_of", "run_target"]
