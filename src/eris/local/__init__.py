"""① What happens at one peer before anything is sent: model spec, update, task."""
