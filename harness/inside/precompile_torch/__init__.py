"""What torch's compiler does before the card is held: it generates and compiles."""
