"""Measures nothing."""

print("nothing to do")
