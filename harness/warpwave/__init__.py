"""warpwave: a containerized, multi-vendor CI harness for Triton kernels.

Importing this package must stay cheap: the host and the inside of the container both import it. PYTEST_DONT_REWRITE: it has a plugin of
pytest, and a test worker has imported it before pytest.
"""

__version__ = "0.1.0"
