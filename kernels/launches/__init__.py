"""From a call to the card: launches that are bound once, straight to the driver, and calls that are made again."""
