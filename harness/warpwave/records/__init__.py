"""Layer 0: the shared records, as frozen dataclasses, for the host and for the inside of the container.

Only the standard library is imported here. Everything that the two halves exchange on disk (`raw/<target>/`) is one of these. `dump` writes
them, and the host reads them through `collect`, which validates every field against its annotation. Units are in the names: `_s` seconds,
`_ms` milliseconds, `_bytes` bytes, `_gbps` GB/s with G = 1e9.
"""

from warpwave.records.gates import *
from warpwave.records.job import *
from warpwave.records.registry import *
from warpwave.records.results import *
from warpwave.records.run import *
from warpwave.records.selection import *
from warpwave.records.words import *
from warpwave.records.writing import *
