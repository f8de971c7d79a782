"""The processes of a stage: workers, their supervisor, their journals, and the seals on results."""
