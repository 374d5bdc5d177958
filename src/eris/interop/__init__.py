"""Other people's code beside eris: trackers that show a run's figures."""
