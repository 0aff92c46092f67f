"""The exports of guardmark itself (CSV, JSON lines, Parquet), written and read again."""
