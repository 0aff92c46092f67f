"""What a configuration will do and cost, looked at before anything is spent."""
