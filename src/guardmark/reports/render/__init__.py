"""Four renderers draw a document; none of them knows a figure."""
