"""The test stage: runs pytest over the kernel package and writes JUnit."""
