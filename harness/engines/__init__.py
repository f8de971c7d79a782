"""The engines that run jobs. `protocol` defines what an engine must provide; `harness/records/registry/engines.py` lists the engines."""
