"""The bench stage: measures every point of every `perf_report` benchmark on the GPU."""
