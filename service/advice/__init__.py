"""What is wrong with a task, and what to do next: decided here alone, shown by the status, the pages and commands."""
