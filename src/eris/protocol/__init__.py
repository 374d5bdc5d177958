"""⑦ The round: its steps as pure functions, and three roles without I/O that take them. Time and messages come in."""
