"""The pretended card of the compile stage: tensors there have a shape, a dtype and a device, but no data."""
