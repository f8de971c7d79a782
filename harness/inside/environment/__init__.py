"""Where a package's code runs: its import path, its home, Triton's cache, and the limits of the container."""
