"""Raw folders → `TargetRun`. What lies in them was written beside code that nobody trusts: it is looked at before it is believed."""

from harness.collect.raw import collect, collect_all, find_raw

__all__ = ["collect", "collect_all", "find_raw"]
