"""A real peer: drives the roles of `protocol/` over the links of `transport/`, in a process of its own.

To read it, begin with `node` (what a peer is made of), `roles` (what it is) and `play_round` (a round). Then:

its rounds         training · shared_aggregator · shared_unmasker · catch_up · verdict_history · round_events
other peers        address_book · aggregator_client (we dial) · shard_server (they dial) · framing (messages ⇄ frames)
the coordinator    news (how we hear it) · inbox · witness (what it signed) · roster_cache · roster_check
                   reporter (what we say) · admission
its own process    coordinator_service (what peers call) · coordinator_run (the course) · attendance · journal
who coordinates    coordinator_watch (where we look) · allegiance (what we promised) · kept_log · mandates · take_over
the folder         session · peer_folder · peer_summary · folder_claim · footprint · budget (over all runs)
settings, checks   federation_file · node_settings · own_task · preflight · gauges
for tests          fault_points
"""
