"""Labels of people and of further judges, stored as layers of their own."""
