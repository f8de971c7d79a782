"""The subcommands that are more than a call, and the options they share. Nothing but the command line imports them."""
