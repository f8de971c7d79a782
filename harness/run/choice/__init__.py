"""Choose the tests of a run: by their ids, by how an earlier run ended, or by what a change touches."""
