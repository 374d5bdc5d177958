import os
import signal

from hypothesis import HealthCheck, settings

# Two busy cores are no place for stopwatches: a property is judged by what it says, not by how long it took.
settings.register_profile("eris", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("eris")

# A shell lets what runs in the background ignore Ctrl-C, and all that this starts; here interruptions are tested.
signal.signal(signal.SIGINT, signal.default_int_handler)

# What tests let go of their members' data is nobody's budget; a test of budgets names a folder.
os.environ["ERIS_BUDGET"] = "none"
os.environ["ERIS_REPORT"] = "0"  # of peers: a test of reports asks for one
