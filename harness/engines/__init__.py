"""The engines that run jobs. `protocol` defines what an engine must provide; `harness/records/engines.py` lists the engines."""
