"""The engines that run jobs. `seam` defines what an engine must provide; `registry` lists the engines."""
