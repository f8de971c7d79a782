"""Sweeps → drawings in SVG."""
