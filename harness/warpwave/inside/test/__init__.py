"""The test stage: run pytest over the kernel package and write JUnit."""
