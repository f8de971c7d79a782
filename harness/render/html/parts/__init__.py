"""The parts of the page of one comparison, from its first screen to the environments. Pure."""
