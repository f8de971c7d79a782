"""Sections about tests: those that did not run, what the sanitizer found, which failures are suspected."""
