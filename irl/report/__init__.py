"""What a run found, for people: on the console and as one HTML page with pictures."""
