"""Running a target, from what the user asked for to a record of how it ended: `target` is the way in."""

from harness.run.settings import Settings as Settings
from harness.run.target import commit_of as commit_of
from harness.run.target import exit_code_of as exit_code_of
from harness.run.target import new_run_id as new_run_id
from harness.run.target import run_target as run_target
