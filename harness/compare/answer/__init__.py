"""The answer that a reader came for: what is wrong, how far each kernel is from its ceiling, and what differs where it falls short."""
