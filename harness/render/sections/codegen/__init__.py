"""Sections about generated code: what was compiled, what a change did to it, and the gates."""
