"""The subcommands that need more than a few lines, and their shared options. Only the command line imports this package."""
