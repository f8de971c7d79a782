"""What a GitHub Actions job needs besides a run: the plan, the workflow commands, and the report over all results.

These modules return strings and post nothing. The workflows in `.github/workflows` call them and contain no logic of their own.
"""
