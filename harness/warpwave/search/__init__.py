"""Run legs one after another to find something out: what an upgrade changes, which step broke it."""
