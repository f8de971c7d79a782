"""What the command line shows of hosts: legs that run side by side, and what their machines lack."""
