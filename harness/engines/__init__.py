"""The engines that run jobs. `protocol` defines what an engine must provide; `registry` lists the engines."""
