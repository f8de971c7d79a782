"""What a package's tests compare kernels with: torch's own operations, on the CPU in place of a card."""
