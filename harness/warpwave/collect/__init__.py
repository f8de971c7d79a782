"""Raw folders → `TargetRun`. The files were written beside untrusted code, so everything is checked before it is used."""

from __future__ import annotations

from warpwave.collect.raw_folder import collect, collect_all, find_raw, with_logs

__all__ = ["collect", "collect_all", "find_raw", "with_logs"]
