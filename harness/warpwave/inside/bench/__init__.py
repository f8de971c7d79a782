"""The bench stage: measure every point of every `perf_report` benchmark on the GPU."""
