"""How a defense is asked: in line, in threads or processes, over the wire."""
