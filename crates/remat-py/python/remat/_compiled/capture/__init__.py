"""From torch's joint graph to the graph that the planner reads, and to its cut."""
