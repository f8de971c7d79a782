"""Objects of torch's that take a device, or make a tensor, past its own calls."""
