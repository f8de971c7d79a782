"""What torch's compiler and libraries do before the card is held: generate, compile, trace and plan."""
