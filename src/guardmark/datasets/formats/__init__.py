"""Files of data, in and out: formats, rows, fields and what is wrong with them."""
