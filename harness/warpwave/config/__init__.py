"""Files that a user writes: the targets file, and the settings of a kernel package. Read strictly, never trusted to be right."""
