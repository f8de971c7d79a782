"""The compile stage: compiles every launch for every architecture of the target, without a GPU."""
