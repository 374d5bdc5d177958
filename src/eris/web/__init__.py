"""A run in progress, on a page: facts from the stream of events, one self-contained page, server-sent events."""
