"""Compare two toolchains: what an upgrade changes, which release changed it, which part of the stack does it."""
