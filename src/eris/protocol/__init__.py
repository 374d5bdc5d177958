"""⑦ The round as three roles without I/O: member, aggregator, coordinator. Time and messages come in as events."""
