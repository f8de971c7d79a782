"""The engines that run jobs. `protocol` defines what an engine must provide; `harness/warpwave/records/registry.py` lists the engines."""
