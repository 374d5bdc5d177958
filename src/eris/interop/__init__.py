"""Other people's code: Flower apps, Hugging Face, scikit-learn, JAX and Lightning; trackers of a run's figures."""
