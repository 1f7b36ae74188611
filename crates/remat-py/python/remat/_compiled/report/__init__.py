"""Reports on compiled graphs: in words, as JSON, as a picture."""
