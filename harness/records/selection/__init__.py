"""Which part of a package a run takes: its files, the chosen tests, one of several shards."""
