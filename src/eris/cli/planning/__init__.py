"""What `eris plan` and `eris bounds` write on the terminal."""
