"""Errands: everyday work over mail, calendar, files, a shop, a chat and web pages."""
