"""The coordinator: a separate process that keeps a run's roster and clock, and never sees an update or a model.

To read it, begin with `service` (what peers call, and the clock) and `run` (take in, announce, decide, end). Then
`callers` (who may call what), `attendance` (who is there), `take_over` (how a standby becomes the coordinator) and
`gauges`. What it records is in `peer/journal`, what it decides in `protocol/coordinator`.
"""
