"""The compile stage: compile every launch for every architecture of the target, without a GPU."""
