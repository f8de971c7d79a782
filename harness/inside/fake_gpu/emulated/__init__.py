"""A pretended card that executes: each launch is compiled for it, and a CPU executes the machine code over the tensors' own memory."""
