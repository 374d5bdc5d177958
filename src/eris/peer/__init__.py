"""A real peer: drives the roles of `protocol/` over the links of `transport/`, in a process of its own.

To read it, begin with `node` (what a peer is made of), `roles` (what it is) and `play_round` (a round). Then:

its rounds         training · shared_aggregator · shared_unmasker · catch_up · verdict_history
other peers        peer_links (all of them) · address_book · aggregator_client (we dial) · shard_server (they dial)
                   framing (messages ⇄ frames)
the coordinator    coordinator_line (all of it) · news (how we hear it) · inbox · witness (what it signed) · rosters
                   reporter (what we say) · admission
who coordinates    coordinator_watch (where we look) · allegiance (what we promised) · kept_log · journal · mandates
what is told       run_events · round_events · gauges
the folder         session · peer_folder · peer_summary · folder_claim · footprint · budget (over all runs)
settings, checks   federation_file · node_settings · own_task · preflight
for tests          fault_points

The coordinator's own process is `eris.coordinate`.
"""
