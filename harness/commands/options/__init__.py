"""The options of `warpwave run`: their groups, and what they come to."""
