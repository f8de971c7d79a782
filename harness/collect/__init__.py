"""What lies in raw folders, read and believed by nobody before it was looked at: untrusted XML and JSON → `TargetRun`."""

from harness.collect.raw import collect as collect
from harness.collect.raw import find_raw as find_raw
