"""The timeline of a run, as a file: a page, a trace of Chrome's format, or a snapshot for torch's memory_viz."""
