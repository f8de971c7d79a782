"""A Triton backend of a vendor that does not exist, found by Triton as any other: by an entry point of an installed package."""
