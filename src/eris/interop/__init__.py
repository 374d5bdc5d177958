"""Other people's code beside eris: Flower apps, scikit-learn, JAX, Lightning; trackers that show a run's figures."""
