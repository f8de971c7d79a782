"""Processes of Python that start as forks of one that has imported what they need: torch alone takes more than a second.

`server` is that process, and `client` asks it. `become` makes a fork look as if Python had just started. `spawn` does the same for what a
forked process starts itself, such as the stages of `warpwave.inside`: they are its real children. What depends on how Python starts, and
what these modules do not know, is started as usual.
"""
