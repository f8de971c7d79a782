"""The Docker Engine, and whatever speaks its API."""
