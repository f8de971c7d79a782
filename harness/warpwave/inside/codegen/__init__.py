"""What the compiler made of a launch: registers, spills, occupancy, access widths, and the gates on them."""
