"""What every stage needs of its processes: workers, their supervisor, their journals, and the seals on results."""
