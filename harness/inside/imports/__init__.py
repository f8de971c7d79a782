"""What a package imports and this environment does not have: extensions that are not built, and plugins that do not fit."""
