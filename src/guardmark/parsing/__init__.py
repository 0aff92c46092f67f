"""What a guard or a judge wrote, read without guessing."""
