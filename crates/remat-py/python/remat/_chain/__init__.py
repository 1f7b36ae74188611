"""Models that are chains of stages, trained by a plan that is made ahead of the first step."""
