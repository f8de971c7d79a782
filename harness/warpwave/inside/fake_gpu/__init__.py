"""Stand-ins for a GPU, so that unmodified kernel packages run on a machine without one."""
