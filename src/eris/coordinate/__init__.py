"""The coordinator: a process of its own that keeps roster and clock of a run, and never sees an update or a model.

To read it, begin with `service` (what peers call, and the clock) and `run` (take in, announce, decide, end). Then
`callers` (who may call what), `attendance` (who is there), `take_over` (how a standby becomes the coordinator) and
`gauges`. What it writes down is in `peer/journal`, what it decides in `protocol/coordinator`.
"""
