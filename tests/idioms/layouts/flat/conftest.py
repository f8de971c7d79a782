"""It makes pytest put this folder on the path, so that the package beside `tests` is found."""
