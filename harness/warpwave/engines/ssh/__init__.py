"""Reach another machine with this machine's own ssh: its configuration, agent, jump hosts and known hosts. Nothing is installed there."""
