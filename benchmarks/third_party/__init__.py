"""Training programs on packages of other people, as their users write them: nothing in them knows of Remat."""
