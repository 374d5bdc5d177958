"""How peers reach each other: links for data (TLS, or memory), gRPC for control, certificates for identity."""
