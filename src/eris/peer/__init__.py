"""A real peer: drives the roles of `protocol/` over the links of `transport/`, in a process of its own."""
