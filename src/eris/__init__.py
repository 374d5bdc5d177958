"""Federated learning without a server."""
