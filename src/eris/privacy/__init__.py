"""What keeps an update to its member: pads that hide it from whoever adds it up, and noise that hides it in the sum."""
