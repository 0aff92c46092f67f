"""The verb `adapt`, and what it needs beside the search itself."""
