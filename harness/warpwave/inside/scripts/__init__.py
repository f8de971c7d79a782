"""Benchmarks that are scripts: run as they are, with each measurement in them taken as a point."""
