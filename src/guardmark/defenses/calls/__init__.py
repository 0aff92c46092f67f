"""What calls of defenses share: failures as answers, and the cluster they are made on."""
