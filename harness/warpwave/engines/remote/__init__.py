"""Run jobs in the container engine of another machine, with no folder in common: files travel as archives, the card is leased there."""
