"""warpwave: a containerized, multi-vendor CI harness for Triton kernels.

Importing this package costs nothing: both halves of the harness, the host and the inside of the container, pass through here.
"""

__version__ = "0.1.0"
