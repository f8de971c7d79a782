"""The commands about toolchains: `upgrade`, `bisect`."""
