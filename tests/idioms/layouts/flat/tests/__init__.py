"""Tests that are a package, too."""
