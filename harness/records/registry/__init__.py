"""The lists of what a run can have: stages and engines. Adding one is a line here."""
