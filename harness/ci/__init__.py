"""What a job of GitHub Actions needs beside a run: its plan, its words to the runner, and the report over everybody's results.

Strings out: nothing here posts. The workflows in `.github/workflows` call it, and hold no logic of their own.
"""
